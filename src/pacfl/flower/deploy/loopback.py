"""A complete federation on this machine, with TLS and authentication as on many."""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

from pacfl.errors import DeployError
from pacfl.flower import delivery, health
from pacfl.flower.deploy import files, layout, processes, registration, roster, starting
from pacfl.folders import FEDERATION

SERVER: Final = "server"
RUN: Final = "run"
SECONDS_TO_START: Final = 60.0


def up(folder: Path) -> Iterator[str]:
    """Start whatever is not running, and start or resume the federation; yields what was started."""
    for _, start in missing(folder):
        yield start()


def missing(folder: Path) -> Iterator[tuple[str, Callable[[], str]]]:
    """What should run and does not: its name, and what starts it and says so. Each may need the one before it."""
    deployment = layout.load(folder)
    fresh = SERVER not in processes.running(folder)
    if fresh:
        yield SERVER, partial(start_server, folder)
    for name in deployment.sites:
        if site(name) not in processes.running(folder):
            yield site(name), partial(join, folder, name)
    if fresh or run_is_due(folder / "server"):
        yield RUN, lambda: f"run {begin(folder)}"


def run_is_due(server: Path) -> bool:
    """Whether a server should run its federation and does not, or its app asks for more rounds than it has run."""
    asked = starting.settings(server.parent / "app")
    where = starting.federation(asked, server)
    known = health.read(where) or {}
    more = known.get("phase") == "finished" and known["rounds"] < asked.get("schedule", {}).get("rounds", 0)
    return more or health.run_is_due(where)


def deliver(folder: Path) -> str:
    """Ask for a delivery of models; what happens next. On this machine a run that has ended is started again."""
    here = (folder / layout.FILE).exists()
    where = federation(folder) if here else folder
    known = health.read(where)
    if known is None:
        raise DeployError(f"{where}: there is no federation yet; start one first")
    delivery.request(where)
    if known["phase"] != "finished":
        return "all sites that are connected get their models before the next round"
    return f"started run {begin(folder)}" if here else "the run has ended: start it again with ./run.sh"


def down(folder: Path) -> Iterator[str]:
    """Stop all that `up` started, sites first."""
    layout.load(folder)
    for name in sorted(processes.running(folder), reverse=True):
        processes.stop(folder, name)
        yield name


def state(folder: Path) -> tuple[dict[str, int | None], list[health.Problem]]:
    """The ids of all processes, and what is wrong with them and with the federation."""
    running = processes.running(folder)
    expected = [SERVER, *(site(name) for name in layout.load(folder).sites)]
    problems = health.problems(federation(folder))
    down = [name for name in expected if name not in running]
    if down and (health.read(federation(folder)) or {}).get("phase") != "finished":
        what = f"{', '.join(down)}: not running; see superlink.log or supernode.log, then 'pacfl deploy up {folder}'"
        problems.insert(0, health.Problem(what, health.NOT_RUNNING))
    return {name: running.get(name) for name in expected}, problems


def start_server(folder: Path) -> str:
    """Start the SuperLink and wait until it listens; what was started."""
    deployment = layout.load(folder)
    server, address = folder / "server", files.own_address(deployment.bind, deployment.port)
    processes.start(folder, SERVER, [str(server / "start.sh")], _environment(), server / "superlink.log")
    end = time.monotonic() + SECONDS_TO_START
    while time.monotonic() < end:
        if SERVER not in processes.running(folder):
            break
        with socket.socket() as probe:
            probe.settimeout(1.0)
            if probe.connect_ex((address.partition(":")[0], deployment.port)) == 0:
                return f"server on {deployment.hosts[0]}:{deployment.port}"
        time.sleep(0.2)
    raise DeployError(
        f"the server did not start; the end of {server / 'superlink.log'}:\n{_tail(server / 'superlink.log')}"
    )


def register(folder: Path, name: str) -> None:
    """Register a site under its name. Nothing changes for one that is registered."""
    public = registration.public_key(folder / "sites" / name / "node.pub")
    end = time.monotonic() + SECONDS_TO_START
    while True:
        try:
            roster.admit(folder / "server", public, name)
            break
        except registration.ServerDownError:  # it has just started
            if time.monotonic() > end:
                raise
        time.sleep(0.2)


def start_site(folder: Path, name: str) -> None:
    """Start the SuperNode of a site."""
    where = folder / "sites" / name
    processes.start(folder, site(name), [str(where / "start.sh")], _environment(), where / "supernode.log")


def join(folder: Path, name: str) -> str:
    """Register a site, and start it; what was started."""
    register(folder, name)
    start_site(folder, name)
    return f"site {name}"


def begin(folder: Path, *options: str) -> str:
    """Start a run of the federation of a deployment; its id."""
    return begin_at(folder / "server", *options)


def begin_at(server: Path, *options: str) -> str:
    """Start a run of the federation of a server; its id."""
    done = _flower(server, "run.sh", *options)
    if not done.get("success"):
        raise DeployError(f"the run did not start: {done.get('error-message', done)}")
    return str(done["run-id"])


def site(name: str) -> str:
    """Name of a site's process."""
    return f"site-{name}"


def federation(folder: Path) -> Path:
    """The folder in which the server stores the federation."""
    return folder / FEDERATION


def _flower(server: Path, script: str, *arguments: str) -> dict[str, Any]:
    """The reply to one of the operator's scripts; a server that has just started may be too busy at first."""
    end = time.monotonic() + SECONDS_TO_START
    while True:
        reply = _reply([str((server / script).absolute()), *arguments])
        if "is unavailable" not in str(reply.get("error-message")) or time.monotonic() > end:
            return reply


def _reply(command: list[str]) -> dict[str, Any]:
    done = subprocess.run(command, env=_environment(), capture_output=True, text=True, check=False, timeout=120)
    try:
        reply: dict[str, Any] = json.loads(done.stdout[done.stdout.index("{") :])
    except ValueError:
        return {"success": False, "error-message": (done.stdout + done.stderr)[-2000:]}
    return reply


def _environment() -> dict[str, str]:
    """Flower starts its programs by name: those beside this Python come first."""
    here = str(Path(sys.executable).parent)
    return {**os.environ, "PATH": f"{here}{os.pathsep}{os.environ.get('PATH', '')}"}


def _tail(path: Path) -> str:
    return "\n".join(path.read_text(errors="replace").splitlines()[-15:]) if path.exists() else ""
