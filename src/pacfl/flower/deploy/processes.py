"""Processes that are ours: started apart from this one, found again and stopped by their own ids."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from pacfl.files import write_atomically

FILE: Final = "processes.json"
SECONDS_TO_STOP: Final = 10.0
SECONDS_FOR_CHILDREN: Final = 3.0


def start(folder: Path, name: str, command: Sequence[str], environment: Mapping[str, str], log: Path) -> int:
    """Start a process in a session of its own, which outlives this one, and write down which it is."""
    with log.open("ab") as output:
        log.chmod(0o600)
        process = subprocess.Popen(
            command,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    process.returncode = 0  # it outlives this object, which is not to warn of that
    known = _known(folder)
    _write(folder, {**known, name: {"pid": process.pid, "born": _born(process.pid)}})
    return process.pid


def running(folder: Path) -> dict[str, int]:
    """Names and ids of those that still run. An id that was given to another process since does not count."""
    return {name: p["pid"] for name, p in _known(folder).items() if _born(p["pid"]) == p["born"]}


def stop(folder: Path, name: str, how: int = signal.SIGTERM) -> None:
    """Stop a process and its children, by force if it does not heed, and forget it."""
    pid = running(folder).get(name)
    if pid is not None:
        family = {child: _born(child) for child in _descendants(pid)}  # some in sessions of their own
        born_here = _born(pid)
        _signal(pid, how)
        if not _gone(pid, born_here, SECONDS_TO_STOP):
            _signal(pid, signal.SIGKILL)
            _gone(pid, born_here, SECONDS_TO_STOP)
        for child, born in family.items():
            if not _gone(child, born, SECONDS_FOR_CHILDREN):
                with suppress(ProcessLookupError):
                    os.kill(child, signal.SIGKILL)
    _write(folder, {n: p for n, p in _known(folder).items() if n != name})


def _descendants(pid: int) -> list[int]:
    own: list[int] = []
    for children in Path(f"/proc/{pid}/task").glob("*/children"):  # of every thread
        with suppress(OSError):  # which may end meanwhile
            own += map(int, children.read_text().split())
    return [*own, *(further for child in own for further in _descendants(child))]


def _gone(pid: int, born: int | None, seconds: float) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if born is None or _born(pid) != born:
            return True
        time.sleep(0.1)
    return False


def _signal(group: int, how: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(group, how)  # a session's first process leads its group


def _born(pid: int) -> int | None:
    """When a living process was started, in the kernel's ticks; None if there is none, or only its remains."""
    with suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)  # if it is our child and has ended
    try:
        after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if after_name[0] in "ZX" else int(after_name[19])


def _known(folder: Path) -> dict[str, Any]:
    try:
        known: dict[str, Any] = json.loads((folder / FILE).read_text())
    except FileNotFoundError:
        return {}
    return known


def _write(folder: Path, known: Mapping[str, Any]) -> None:
    write_atomically(folder / FILE, json.dumps(known, indent=2).encode() + b"\n")
    (folder / FILE).chmod(0o600)
