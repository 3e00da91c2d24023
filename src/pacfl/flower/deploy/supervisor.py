"""Keep a federation running: whatever has died is started again, and nothing that runs is touched."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from filelock import Timeout

from pacfl.errors import DeployError
from pacfl.files import locked
from pacfl.flower.deploy import layout, loopback

LOOK: Final = 10.0  # seconds between two looks
LONGEST: Final = 600.0  # seconds between two attempts, for what ends again and again


@dataclass
class Attempts:
    """When each of some things was last started, and how often it has ended soon since."""

    at: dict[str, float] = field(default_factory=dict)
    times: dict[str, int] = field(default_factory=dict)

    def pause(self, name: str) -> float:
        """Seconds between two attempts."""
        return min(LOOK * 2.0 ** (self.times.get(name, 1) - 1), LONGEST)

    def may(self, name: str) -> bool:
        """Whether it may be started now."""
        return name not in self.at or time.monotonic() >= self.at[name] + self.pause(name)

    def note(self, name: str) -> None:
        """It is started now. After it has run for long, what was before counts no more."""
        now = time.monotonic()
        soon = name in self.at and now < self.at[name] + LONGEST
        self.times[name] = self.times.get(name, 0) + 1 if soon else 1
        self.at[name] = now


def supervise(folder: Path) -> Iterator[str]:
    """Start what has died in a deployment, or the run of a server, again and again; yields what was done.

    A federation that has finished is left alone, until its app asks for more rounds.
    """
    whole = (folder / layout.FILE).exists()
    if not whole and not (folder / "run.sh").exists():
        raise DeployError(f"{folder}: nothing to supervise; expected the folder of a deployment, or of its server")
    attempts = Attempts()
    try:
        with locked(folder, timeout=1.0):
            while True:
                yield from _look(loopback.missing(folder) if whole else _missing_run(folder), attempts)
                time.sleep(LOOK)
    except Timeout:
        raise DeployError(f"{folder}: another process supervises it already") from None


def _look(missing: Iterator[tuple[str, Callable[[], str]]], attempts: Attempts) -> Iterator[str]:
    """Start what is missing. Without the server nothing else can be started."""
    for name, start in missing:
        started = False
        if attempts.may(name):
            attempts.note(name)
            try:
                yield f"started {start()}"
                started = True
            except DeployError as error:
                yield f"{name} did not start, next attempt in {attempts.pause(name):.0f} s: {error}"
        if name == loopback.SERVER and not started:
            break


def _missing_run(server: Path) -> Iterator[tuple[str, Callable[[], str]]]:
    if loopback.run_is_due(server):
        yield loopback.RUN, lambda: f"run {loopback.begin_at(server)}"
