"""What is known of something that runs, for whoever watches it: people on a page, programs in JSON and in metrics."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final, Protocol

from pacfl.experiment.store import RunFolder
from pacfl.experiment.summary import in_percent
from pacfl.folders import Kind
from pacfl.report.summary import ReportData

LAST_ROUNDS: Final = 20  # that say how long a round takes
PHASES: Final = (
    *("starting", "waiting", "waiting for clients", "running", "delivering models", "finished"),
    *("stopped", "stalled", "failed"),
)


@dataclass(frozen=True)
class Site:
    """A client of a federation."""

    name: str
    cluster: int | None
    alive: bool  # whether it was connected when the server looked last
    last_seen: float | None  # time of its last valid reply
    missed: int = 0  # rounds in a row
    failure: str | None = None  # the last reason


@dataclass(frozen=True)
class RunProgress:
    """One of several runs."""

    hash: str
    algorithm: str
    seed: int
    phase: str
    done: int
    planned: int
    clusters: int | None
    metric: str
    score: float | None
    bytes_down: int
    bytes_up: int


@dataclass(frozen=True)
class Cluster:
    """Who learns together."""

    cluster: int
    clients: tuple[str, ...]


@dataclass(frozen=True)
class State:
    """How far it is. Times are in seconds since 1970."""

    kind: Kind
    name: str
    phase: str
    done: int  # rounds of training
    planned: int
    eta: float | None  # seconds until the last round has ended, if rounds take as long as the last ones
    metric: str
    score: float | None  # mean over clients, of the models as received
    bytes_down: int
    bytes_up: int
    updated: float | None  # when it changed last
    version: str  # another one when there is more to report
    clusters: tuple[Cluster, ...] = ()
    sites: tuple[Site, ...] = ()
    runs: tuple[RunProgress, ...] = ()
    errors: tuple[str, ...] = ()  # the last ones first
    problems: tuple[str, ...] = ()  # what somebody has to look at, with what to do

    def as_json(self, now: float) -> dict[str, Any]:
        """All fields, the rounds together, which metrics are shown in percent, and how long ago it changed."""
        content = asdict(self)
        rounds = {"done": content.pop("done"), "planned": content.pop("planned")}
        silent = None if self.updated is None else max(now - self.updated, 0.0)
        shares = sorted(filter(in_percent, {self.metric, *(run.metric for run in self.runs)}))
        return {**content, "rounds": rounds, "shares": shares, "now": now, "seconds_since_update": silent}


class Watched(Protocol):
    """What a dashboard shows."""

    def state(self) -> State:
        """How far it is now."""

    def report(self) -> ReportData:
        """What the report shows of it now."""


class Records:
    """The records of a folder, read again when there are more of them."""

    def __init__(self, folder: RunFolder) -> None:
        """Nothing is read yet."""
        self.folder, self._read, self._stamp = folder, list[dict[str, Any]](), ""

    @property
    def path(self) -> Path:
        """The file."""
        return self.folder.path / "rounds.jsonl"

    @property
    def stamp(self) -> str:
        """Another one when the file has changed."""
        return stamp_of(self.path)

    def read(self) -> list[dict[str, Any]]:
        """One record for each round so far."""
        stamp = self.stamp
        if stamp != self._stamp:
            self._read, self._stamp = self.folder.records(), stamp
        return self._read


def stamp_of(*files: Path) -> str:
    """Another one when one of the files has changed, appeared or disappeared."""
    found = [file.stat() if file.exists() else None for file in files]
    return "-".join(f"{one.st_mtime_ns:x}.{one.st_size:x}" if one else "none" for one in found)


def seconds_left(pauses: Sequence[float], left: int) -> float | None:
    """Until so many rounds have ended, by the seconds that each of the last ones took; None where none was seen.

    The median does not count a night in which nothing ran.

    >>> seconds_left([2.0, 2.0, 4996.0, 2.0], 3)
    6.0
    """
    if left <= 0:
        return 0.0
    return left * max(median(pauses[-LAST_ROUNDS:]), 0.0) if pauses else None
