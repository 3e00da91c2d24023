"""Processes of a deployment: they outlive this one, and are found again and stopped by their ids."""

import json
import os
import secrets
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import psutil

from pacfl.files import write_atomically

FILE: Final = "processes.json"
# Every process gets a token in its environment: an id may be given to another process, and the time at which a process
# was started changes when the clock is set.
TOKEN: Final = "PACFL_PROCESS"
SECONDS_TO_STOP: Final = 10.0


def start(folder: Path, name: str, command: Sequence[str], environment: Mapping[str, str], log: Path) -> int:
    """Start a process in a session of its own and record it; its id. What is left of an earlier one is stopped."""
    stop(folder, name)
    token = secrets.token_hex(8)
    with log.open("ab") as output:
        log.chmod(0o600)
        process = subprocess.Popen(
            command,
            env={**environment, TOKEN: token},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    process.returncode = 0  # it outlives this object, which would warn of that
    _write(folder, {**_recorded(folder), name: {"pid": process.pid, "token": token}})
    return process.pid


def running(folder: Path) -> dict[str, int]:
    """Ids, by name, of the recorded processes that still run."""
    return {name: process.pid for name, process in _running(folder).items()}


def stop(folder: Path, name: str, how: signal.Signals = signal.SIGTERM) -> None:
    """Signal a process and all that it has started, kill those that do not end in time, and drop it from the record.

    Also if it has ended itself and has left others behind.
    """
    recorded = _recorded(folder)
    if name not in recorded:
        return
    family = _family(recorded[name]["token"])
    for one in family:
        with suppress(psutil.NoSuchProcess):
            one.send_signal(how)
    _, alive = psutil.wait_procs(family, SECONDS_TO_STOP)
    for one in alive:
        with suppress(psutil.NoSuchProcess):
            one.kill()
    psutil.wait_procs(alive, SECONDS_TO_STOP)
    _write(folder, {n: p for n, p in _recorded(folder).items() if n != name})


def _family(token: str) -> list[psutil.Process]:
    """All processes with a token: they inherit it, whoever their parent is now. Some are in sessions of their own."""
    return [process for process in psutil.process_iter() if _token(process) == token]


def _token(process: psutil.Process) -> str | None:
    try:
        found: str | None = process.environ().get(TOKEN)
    except (psutil.Error, OSError):  # it has ended, or is another user's
        return None
    return found


def descendants(pid: int) -> list[psutil.Process]:
    """All processes that a process has started, and those that they have."""
    try:
        found: list[psutil.Process] = psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []
    return found


def _running(folder: Path) -> dict[str, psutil.Process]:
    found = {}
    for name, recorded in _recorded(folder).items():
        with suppress(ChildProcessError):  # it is a child of this process, and has ended: let it go
            os.waitpid(recorded["pid"], os.WNOHANG)
        with suppress(psutil.NoSuchProcess):
            process = psutil.Process(recorded["pid"])
            if _token(process) == recorded["token"]:
                found[name] = process
    return found


def _recorded(folder: Path) -> dict[str, Any]:
    try:
        recorded: dict[str, Any] = json.loads((folder / FILE).read_text())
    except FileNotFoundError:
        return {}
    return recorded


def _write(folder: Path, recorded: Mapping[str, Any]) -> None:
    write_atomically(folder / FILE, json.dumps(recorded, indent=2).encode() + b"\n")
    (folder / FILE).chmod(0o600)
