"""Processes of a deployment that belong together end together: none is left behind, and none seems alive."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from pacfl.flower import warm
from pacfl.flower.deploy import executor, files, processes

SLEEPER = [sys.executable, "-c", "import time; time.sleep(60)"]


def until(condition: Callable[[], object], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def program(text: str, **environment: str) -> subprocess.Popen[str]:
    where = {**os.environ, **environment}
    return subprocess.Popen(
        [sys.executable, "-c", text], env=where, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def test_what_a_killed_process_has_left_behind_is_stopped(tmp_path: Path) -> None:
    """As an app that a SuperNode had started; it is in a session of its own, and has another parent now."""
    child, report = f"subprocess.Popen({SLEEPER!r}, start_new_session=True)", str(tmp_path / "child")
    code = f"import pathlib, subprocess\nc = {child}\npathlib.Path({report!r}).write_text(str(c.pid))\nc.wait()"
    pid = processes.start(tmp_path, "one", [sys.executable, "-c", code], {}, tmp_path / "log")
    until(lambda: (tmp_path / "child").exists() and (tmp_path / "child").read_text())
    left = int((tmp_path / "child").read_text())
    os.kill(pid, signal.SIGKILL)
    until(lambda: not processes.running(tmp_path))
    assert psutil.pid_exists(left)
    processes.start(tmp_path, "one", SLEEPER, {}, tmp_path / "log")
    assert not psutil.pid_exists(left)
    processes.stop(tmp_path, "one")


def test_a_child_that_has_ended_is_not_left_as_a_zombie(tmp_path: Path) -> None:
    """Whoever supervises a deployment is the parent of its processes; Flower's take a zombie for alive."""
    pid = processes.start(tmp_path, "one", [sys.executable, "-c", ""], {}, tmp_path / "log")
    until(lambda: not processes.running(tmp_path))
    until(lambda: not (processes.running(tmp_path) or psutil.pid_exists(pid)))


def test_a_message_that_is_handled_for_a_stopped_supernode_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """And so does the process of the app end that waits for the reply: it reads the end of the stream."""
    monkeypatch.setattr(warm, "_reply", lambda _: time.sleep(60))
    others = psutil.Process().children()  # of other tests
    supernode = subprocess.Popen(SLEEPER)
    here, there = socket.socketpair()
    with here, there:
        warm._reply_in_fork(there, supernode.pid)
        there.close()
        supernode.kill()
        supernode.wait()
        here.settimeout(30)
        assert here.recv(1) == b""
    until(lambda: (warm._reap(), not set(psutil.Process().children()) - set(others))[1])


def test_who_needs_an_executor_stops_when_it_has_ended() -> None:
    companion = subprocess.Popen(SLEEPER)
    text = """
import signal, sys, time
from pacfl.flower.deploy import executor
signal.signal(signal.SIGTERM, lambda *_: sys.exit("asked to stop"))
executor.end_with_it()
print("ready", flush=True)
time.sleep(60)
"""
    with program(text, **{executor.VARIABLE: str(companion.pid)}) as supernode:
        assert supernode.stdout is not None
        assert supernode.stdout.readline() == "ready\n"
        companion.kill()  # and nobody waits for it: it is a zombie
        output = supernode.stdout.read()
    companion.wait()
    assert "asked to stop" in output
    assert f"process {companion.pid}) has ended" in output


@pytest.mark.parametrize("script", [files.superlink("127.0.0.1", 1), files.supernode("localhost", 1, 2, 0, 1)])
def test_scripts_say_who_the_executor_is(script: str) -> None:
    lines = script.splitlines()
    (at,) = (i for i, line in enumerate(lines) if line == f"export {executor.VARIABLE}=$!")
    assert lines[at - 1].endswith("--parent-pid $$ &")


def test_a_supernode_whose_connection_fails_ends() -> None:
    """Flower logs the error (of TLS, for example), and a thread of it would hold the process for ever."""
    text = """
import threading, time
from pacfl.flower.deploy import supernode
def flower_supernode():
    threading.Thread(target=time.sleep, args=(60,)).start()
supernode.flower_supernode = flower_supernode
supernode.needs_secret = lambda: None
supernode.main()
"""
    start = time.monotonic()
    with program(text) as process:
        output = process.communicate()[0]
    assert process.returncode == 1
    assert "the connection to the server ended" in output
    assert time.monotonic() - start < 50


def test_no_page_names_an_exit_code_that_cannot_be() -> None:
    """Exit codes are numbers from 0 to 255."""
    pages = (*Path("docs").rglob("*.md"), Path("README.md"))
    found = [
        (str(page), int(code))
        for page in pages
        for code in re.findall(r"exit code (\d+)", page.read_text(encoding="utf-8"), re.IGNORECASE)
    ]
    assert found
    assert [pair for pair in found if pair[1] > 255] == []
