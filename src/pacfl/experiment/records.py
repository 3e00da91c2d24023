"""Rounds of a run as the Python API shows them. Needs no torch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pacfl.experiment.tested_on import on_test

Client = int | str  # the name that the user gave, or a number from 0
Scores = Mapping[str, Mapping[str, "Spread"]]  # protocol: metric: over clients


@dataclass(frozen=True)
class Spread:
    """A metric over clients."""

    mean: float
    std: float
    worst_tenth: float  # the mean of the worst tenth of the clients: the lowest accuracies, the highest losses


@dataclass(frozen=True, repr=False)
class RoundRecord:
    """What happened in one round.

    round: from 1; the final evaluation, and that of newcomers, come after the last round of training.
    final: whether this is one of them. sampled: the clients that trained; lost: those whose reply was lost.
    clusters: the cluster of each client that the server knows; empty where clients share no model.
    ari: the adjusted Rand index with the true clusters, if these are known.
    scores: protocol, then metric; empty where clients were not evaluated. by_client: the same for every client.
    tests: the same record on other kinds of test samples than the primary one, where clients were evaluated on several.
    """

    round: int
    final: bool
    sampled: tuple[Client, ...]
    lost: tuple[Client, ...]
    clusters: Mapping[Client, int]
    ari: float | None
    bytes_down: int
    bytes_up: int
    scores: Scores = field(default_factory=dict)
    by_client: Mapping[str, Mapping[str, Mapping[Client, float]]] = field(default_factory=dict)
    tests: "Mapping[str, RoundRecord]" = field(default_factory=dict)

    def on(self, test: str | None) -> "RoundRecord":
        """The same record on another kind of test samples, without scores if it has none; None: as it is."""
        if test is None:
            return self
        return self.tests.get(test) or replace(self, scores={}, by_client={}, tests={})

    @property
    def n_clusters(self) -> int:
        """Clusters that have members."""
        return len(set(self.clusters.values()))

    @property
    def accuracy(self) -> Mapping[str, Spread]:
        """The accuracy by protocol, where there is one."""
        return by_protocol(self.scores, "accuracy")

    @property
    def loss(self) -> Mapping[str, Spread]:
        """The loss by protocol."""
        return by_protocol(self.scores, "loss")

    def __repr__(self) -> str:
        scores = (
            f"{protocol} {metric} {spread.mean:.4g}"
            for protocol, metrics in self.scores.items()
            for metric, spread in list(metrics.items())[:1]
        )
        what = "final evaluation" if self.final else f"{len(self.sampled)} trained"
        clusters = [counted(self.n_clusters, "cluster")] if self.clusters else []
        return f"RoundRecord({', '.join([f'round {self.round}', what, *clusters, *scores])})"


def counted(n: int, what: str) -> str:
    """A number of things.

    >>> counted(1, "cluster"), counted(2, "cluster")
    ('1 cluster', '2 clusters')
    """
    return f"{n} {what}{'' if n == 1 else 's'}"


def by_protocol(scores: Scores, metric: str) -> dict[str, Spread]:
    """One metric by protocol."""
    return {protocol: metrics[metric] for protocol, metrics in scores.items() if metric in metrics}


def read_record(stored: Mapping[str, Any], names: Sequence[Client], n_rounds: int) -> RoundRecord:
    """The record of a round as it is stored; names: of all clients, n_rounds: of training."""
    shared = stored["clusters"] is not None
    return RoundRecord(
        round=stored["round"],
        final=stored["round"] > n_rounds,
        sampled=tuple(names[c] for c in stored["sampled"]),
        lost=tuple(names[c] for c in stored["lost"]),
        clusters={names[int(c)]: k for c, k in stored["cluster_of"].items()} if shared else {},
        ari=stored["ari"],
        bytes_down=stored["bytes_down"],
        bytes_up=stored["bytes_up"],
        scores=_scores(stored),
        by_client=_by_client(stored, names),
        tests={kind: read_record(on_test(stored, kind), names, n_rounds) for kind in stored.get("tests", {})},
    )


def _scores(stored: Mapping[str, Any]) -> Scores:
    """Of the primary metric, the loss, and others, where they are defined for any client."""
    primary = stored.get("metric", "accuracy")
    metrics = {name: stored[name] for name in (primary, "loss") if name in stored} | stored.get("metrics", {})
    found: dict[str, dict[str, Spread]] = {protocol: {} for protocol in stored.get("by_client", {})}
    for metric, protocols in metrics.items():
        for protocol, spread in protocols.items():
            if spread["mean"] is not None:
                found[protocol][metric] = Spread(*(spread[key] for key in ("mean", "std", "worst_tenth")))
    return found


def _by_client(stored: Mapping[str, Any], names: Sequence[Client]) -> dict[str, dict[str, dict[Client, float]]]:
    primary = stored.get("metric", "accuracy")
    found = {
        protocol: {
            metric: {names[int(c)]: pair[i] for c, pair in scores.items()} for i, metric in enumerate((primary, "loss"))
        }
        for protocol, scores in stored.get("by_client", {}).items()
    }
    for metric, protocols in stored.get("metrics_by_client", {}).items():
        for protocol, scores in protocols.items():
            found[protocol][metric] = {names[int(c)]: score for c, score in scores.items()}
    return found
