"""What a page is about, as plain data: it knows nothing of files."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from pacfl.subspace import MergeSuggestion

Array = NDArray[np.float64]
Counts = NDArray[np.int64]
NEWCOMERS: Final = "newcomers, "  # begins the protocols by which clients are judged who came after the last round


@dataclass(frozen=True)
class Judgement:
    """What was known of a run after a round: means over clients, by protocol."""

    round: int  # how many were played
    megabits: float  # per client, until then
    clusters: int
    accuracy: Mapping[str, float]
    loss: Mapping[str, float]


@dataclass(frozen=True, eq=False)
class Clients:
    """Who takes part: one entry for each client."""

    names: tuple[str, ...]
    train: Counts  # (n,) samples
    labels: Counts  # (n, classes) samples of each class; (n, 0) where that is not known
    groups: tuple[str | None, ...]  # the true one, where it is known

    @classmethod
    def named(cls, names: tuple[str, ...]) -> "Clients":
        """Clients of whom nothing but their names is known."""
        n = len(names)
        return cls(names, np.zeros(n, dtype=np.int64), np.zeros((n, 0), dtype=np.int64), (None,) * n)


@dataclass(frozen=True, eq=False)
class Grouped:
    """How clients were grouped by their angles. Rows are in the order of joining."""

    clients: Counts  # (n,) which client a row is
    proximity: Array  # (n, n) degrees, as measured
    distances: Array  # (n, n) what the threshold cuts
    merges: Array  # (n - 1, 4) dendrogram of the distances, in scipy's form
    labels: Counts  # (n,) the clusters that the run worked with
    measure: str
    linkage: str
    threshold: float
    reference_scale: float | None  # degrees of typical noise, if distances are adjusted to it
    evidence: Mapping[str, Any]
    newcomers: tuple[int, ...] = ()  # clients
    bridges: tuple[MergeSuggestion, ...] = ()  # newcomers by their number as clients


@dataclass(frozen=True, eq=False)
class Played:
    """A finished run: one algorithm, one seed."""

    hash: str
    seed: int
    algorithm: str
    settings: Mapping[str, Any]  # of run.json
    judgements: tuple[Judgement, ...]
    accuracy: Mapping[str, Array]  # protocol: (n,) at the end; NaN for clients who were not judged by it
    worst_tenth: Mapping[str, float]
    clusters: int
    ari: float | None
    cluster_of: Counts  # (n,), -1 for clients who never came
    bytes_down: int
    bytes_up: int
    megabits: float
    seconds: float
    clients: Clients
    grouped: Grouped | None = None


@dataclass(frozen=True, eq=False)
class Alike:
    """Parties that exchanged signatures (`pacfl cluster`): who is alike, and nothing learnt."""

    name: str
    hash: str  # of all that the folder holds
    clients: Clients
    grouped: Grouped


@dataclass(frozen=True, eq=False)
class Gathered:
    """What a page is about."""

    runs: tuple[Played, ...]
    unfinished: Mapping[str, int] = field(default_factory=dict)  # hash: rounds so far
    federations: tuple[Alike, ...] = ()
