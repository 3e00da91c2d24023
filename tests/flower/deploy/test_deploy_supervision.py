"""A supervised deployment of real processes: pytest -m slow -s tests/flower/deploy/test_deploy_supervision.py.

It prints the rows of a table in docs/deployment.md.
"""

import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from loopback_federation import Loopback, deployed

from pacfl.flower import health
from pacfl.flower.deploy import keys, layout, loopback, pausing, processes

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::ResourceWarning")]

SITE = loopback.site("1")
SETTINGS: dict[str, dict[str, Any]] = {
    "federation": {"minimum-clients": 1, "deadline": 60.0, "log": "json"},
    "schedule": {"rounds": 400, "participation": 1.0},
    "learning": {"epochs": 1, "batch_size": 10, "lr": 0.05, "momentum": 0.5},
}


@contextmanager
def supervised(folder: Path) -> Iterator[None]:
    """The command, in a process of its own."""
    command = [sys.executable, "-m", "pacfl.cli", "deploy", "supervise", str(folder), "--json"]
    with (folder / "supervisor.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            yield
        finally:
            process.terminate()
            process.wait()


def actions(folder: Path) -> list[str]:
    return [json.loads(line)["action"] for line in (folder / "supervisor.log").read_text().splitlines()]


def row(what: str, happened: str, seconds: float) -> None:
    print(f"| {what} | {happened} | {seconds:.0f} s |", flush=True)


def exit_code(sites: Loopback) -> int:
    return health.exit_code(loopback.state(sites.folder)[1])


def replies(sites: Loopback, client: int) -> list[int]:
    """The rounds in which a client trained, and its reply was valid."""
    return [
        record["round"]
        for record in sites.records
        if client in record["sampled"]
        and client not in {x["client"] for x in record["reply_failures"]}
        and client not in record["paused"]
    ]


def trains_again(sites: Loopback, client: int) -> Callable[[], bool]:
    before = len(replies(sites, client))
    return lambda: len(replies(sites, client)) > before


def test_whatever_is_killed_is_noticed_and_started_again(short_path: Path) -> None:
    with deployed(short_path, 2, SETTINGS) as sites, supervised(short_path):
        row("a folder is supervised", "server, two sites and a run start; round 1", sites.wait_for_round(1, 400))
        sites.wait("both sites train", lambda: all(replies(sites, c) for c in (0, 1)), 400)
        server_app_is_killed(sites)
        executor_is_killed(sites)
        site_is_paused(sites)
        supernode_is_killed(sites)
        done = [record["round"] for record in sites.records]
        assert done == list(range(1, len(done) + 1)), "no round is lost or doubled"
        sent = [json.loads(line) for line in (short_path / "sites" / "1" / "sent.jsonl").read_text().splitlines()]
        assert set(replies(sites, 1)) <= {line["round"] for line in sent if line["kind"] == "train"}
        row("the record of site 1", f"{len(sent)} lines, every update among them", 0)


def server_app_is_killed(sites: Loopback) -> None:
    pid = sites.part(loopback.SERVER, "flwr-serverapp")
    assert pid is not None
    done, start = len(sites.records), time.monotonic()
    os.kill(pid, signal.SIGKILL)
    sites.wait("the status is not 0", lambda: exit_code(sites) == health.STALLED, 60)
    noticed = time.monotonic() - start
    assert noticed < 36
    row("the server app is killed", "'pacfl status' ends with 4 and says so", noticed)
    sites.wait_for_round(done + 1, 400)
    assert [a for a in actions(sites.folder) if a.startswith("started run")][1:], "by the supervisor"
    row("", "the supervisor has started a run, and the next round is done", time.monotonic() - start)


def executor_is_killed(sites: Loopback) -> None:
    """Its SuperNode ends, and both are started again."""
    client = sites.number(1)
    assert client is not None
    executor, before = sites.part(SITE, "superexec"), processes.running(sites.folder)[SITE]
    assert executor is not None
    start = time.monotonic()
    os.kill(executor, signal.SIGKILL)
    sites.wait("the SuperNode ends", lambda: processes.running(sites.folder).get(SITE) != before, 60)
    row("the executor of a site is killed", "its SuperNode ends", time.monotonic() - start)
    sites.wait("it trains again", trains_again(sites, client), 400)
    row("", "the supervisor has started the site, and it trains again", time.monotonic() - start)


def site_is_paused(sites: Loopback) -> None:
    client, start = sites.number(1), time.monotonic()
    assert client is not None
    place = sites.folder / "sites" / "1"
    pausing.pause(place)
    sites.wait("the status says so", lambda: bool(sites.status["clients"][str(client)]["paused"]), 200)
    row("a site is paused by its operator", "the status says paused", time.monotonic() - start)
    done, trained = len(sites.records), len(replies(sites, client))
    sites.wait_for_round(done + 2, 300)
    assert len(replies(sites, client)) == trained
    assert not [x for record in sites.records[done:] for x in record["reply_failures"] if x["client"] == client]
    start = time.monotonic()
    pausing.resume(place)
    sites.wait("it trains again", trains_again(sites, client), 400)
    row("it resumes", "it trains again", time.monotonic() - start)


def supernode_is_killed(sites: Loopback) -> None:
    """While an app is at work: nothing of the site is left behind, before anybody starts it again."""
    trained = sites.log(1).count("Receiving: train")
    sites.wait("site 1 is given a training", lambda: sites.log(1).count("Receiving: train") > trained, 200)
    pid, start = processes.running(sites.folder)[SITE], time.monotonic()
    family = [psutil.Process(pid), *processes.descendants(pid)]
    os.kill(pid, signal.SIGKILL)
    _, left = psutil.wait_procs(family[1:], 30)
    assert not left, [process.cmdline() for process in left]
    row("a SuperNode is killed while an app is at work", f"its {len(family) - 1} others end", time.monotonic() - start)


def test_a_site_whose_server_has_a_certificate_of_another_authority_ends(short_path: Path) -> None:
    """Flower logs the error and would then hang, connected to nobody."""
    with deployed(short_path, 1, SETTINGS) as sites:
        loopback.start_server(short_path)
        sites.join(0)
        sites.wait("the site connects", lambda: "SuperNode ID" in sites.log(0), 200)
        sites.kill(loopback.SERVER)
        with tls_server(short_path / "other", layout.load(short_path).port):
            name = loopback.site("0")
            seconds = sites.wait("the site ends", lambda: name not in processes.running(short_path), 200)
        assert "the connection to the server ended" in sites.log(0)
        row("the server's certificate is of another authority", "the site ends, and says so", seconds)


@contextmanager
def tls_server(folder: Path, port: int) -> Iterator[None]:
    """Something that shakes hands with a certificate of its own."""
    folder.mkdir()
    keys.write_certificates(folder, folder, ["localhost", "127.0.0.1"])
    context, over = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), threading.Event()
    context.load_cert_chain(folder / "server.crt", folder / "server.key")

    def serve(listening: socket.socket) -> None:
        while not over.is_set():
            with suppress(OSError):
                context.wrap_socket(listening.accept()[0], server_side=True).close()

    with socket.create_server(("127.0.0.1", port), reuse_port=True) as listening:
        listening.settimeout(0.5)
        thread = threading.Thread(target=serve, args=(listening,))
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
