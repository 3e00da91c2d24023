"""What a page shows, as plain data, without files."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from pacfl.folders import Kind
from pacfl.subspace import Clustering, Diagnosis, Explanation, MergeSuggestion
from pacfl.subspace.compared import Compared

Array = NDArray[np.float64]
Counts = NDArray[np.int64]
NEWCOMERS: Final = "newcomers, "  # prefix of the protocols by which clients are evaluated that joined after the rounds
ON_TEST: Final = " test samples, "  # after a kind of them: prefix of the protocols on others than the primary kind


@dataclass(frozen=True)
class Evaluation:
    """Means over clients after a round, by metric and protocol."""

    round: int  # counted from 1
    megabits: float  # per client, until then
    means: Mapping[str, Mapping[str, float]]  # of every metric, and of the loss


@dataclass(frozen=True, eq=False)
class Clients:
    """One entry for each client."""

    names: tuple[str, ...]
    train: Counts  # (n,) samples
    labels: Counts  # (n, classes) samples of each class; (n, 0) where that is not known
    true_cluster: tuple[str | None, ...]  # its name, where it is known

    @classmethod
    def named(cls, names: tuple[str, ...], train: Sequence[int | None] = ()) -> "Clients":
        """Clients of which only the names are known, and the samples of some."""
        n = len(names)
        samples = np.array([count or 0 for count in train or (0,) * n], dtype=np.int64)
        return cls(names, samples, np.zeros((n, 0), dtype=np.int64), (None,) * n)


@dataclass(frozen=True, eq=False)
class ClientClustering:
    """A clustering by principal angles, and which clients its rows are, in the order of joining."""

    clients: Counts  # (n,) which client a row is
    clustering: Clustering
    compared: Compared  # what decided the clusters
    newcomers: tuple[int, ...] = ()  # clients
    merge_suggestions: tuple[MergeSuggestion, ...] = ()  # newcomers by their number as clients
    merge_unit: str = "°"  # of their distances


@dataclass(frozen=True, eq=False)
class RunSummary:
    """A run: one algorithm, one seed."""

    hash: str
    seed: int
    algorithm: str
    settings: Mapping[str, Any]  # of run.json
    evaluations: tuple[Evaluation, ...]
    metric: str  # the primary one
    scores: Mapping[str, Array]  # of it: protocol: (n,) at the end; NaN for clients that were not evaluated by it
    metrics: Mapping[str, Mapping[str, float]]  # others: protocol: mean at the end, where it is defined
    worst_tenth: Mapping[str, float]
    below_local: Mapping[str, float]  # protocol: share of clients below the local baseline; empty without one
    clusters: int | None  # None for a method without clusters
    ari: float | None
    cluster_of: Counts  # (n,), -1 for clients that never joined
    bytes_down: int
    bytes_up: int
    megabits: float
    seconds: float | None  # None while it runs
    clients: Clients
    clustering: ClientClustering | None = None
    unfinished: tuple[int, int] | None = None  # rounds so far, and all; None once it is finished
    federation: str | None = None  # the name of the federation of real sites that it is, if it is one


@dataclass(frozen=True, eq=False)
class SignatureFederation:
    """Parties whose signatures were clustered, by `pacfl cluster` or by a server."""

    name: str
    hash: str  # of everything in the folder
    kind: Kind  # of the folder
    clients: Clients
    clustering: ClientClustering
    answer: str  # in one sentence
    reasons: str  # the evidence in words
    diagnosis: Diagnosis
    explanations: tuple[Explanation, ...]  # of pairs of clusters
    placements: tuple[str, ...] = ()  # of newcomers, in words
    cautions: tuple[str, ...] = ()  # about newcomers and clients that drifted


@dataclass(frozen=True, eq=False)
class ReportData:
    """Everything on a page."""

    runs: tuple[RunSummary, ...]
    unfinished: Mapping[str, int] = field(default_factory=dict)  # hash: rounds so far
    federations: tuple[SignatureFederation, ...] = ()
