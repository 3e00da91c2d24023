"""Processes of a deployment: they outlive this one, and are found again and stopped by their ids."""

import json
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
    """Start a process in a session of its own and record it; its id."""
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
    """Signal a process and its descendants, kill those that have not ended in time, and drop it from the record."""
    process = _running(folder).get(name)
    if process is not None:
        family = [process, *descendants(process.pid)]  # some are in sessions of their own
        for one in family:
            with suppress(psutil.NoSuchProcess):
                one.send_signal(how)
        _, alive = psutil.wait_procs(family, SECONDS_TO_STOP)
        for one in alive:
            with suppress(psutil.NoSuchProcess):
                one.kill()
        psutil.wait_procs(alive, SECONDS_TO_STOP)
    _write(folder, {n: p for n, p in _recorded(folder).items() if n != name})


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
        with suppress(psutil.Error):  # it has ended, or its id is another user's now
            process = psutil.Process(recorded["pid"])
            if process.environ().get(TOKEN) == recorded["token"]:
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
