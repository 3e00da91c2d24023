"""Scores of many clients -> the few numbers that are reported, the protocol always named."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from pacfl.federation.rounds import Round, Score
from pacfl.subspace import adjusted_rand_index


def record(played: Round, true_cluster: NDArray[np.intp] | None) -> dict[str, Any]:
    """What is kept of a round."""
    cluster_of = played.state.cluster_of
    kept: dict[str, Any] = {
        "round": played.t,
        "clients": len(cluster_of),
        "sampled": list(played.plan.sampled),
        "lost": sorted(played.plan.lost),
        "bytes_down": played.bytes_down,
        "bytes_up": played.bytes_up,
        "cluster_of": {str(c): int(k) for c, k in sorted(cluster_of.items())},
        **clusters(cluster_of, true_cluster),
    }
    if played.scores:
        kept["accuracy"] = {p: spread([s.accuracy for s in by.values()]) for p, by in played.scores.items()}
        kept["loss"] = {p: spread([s.loss for s in by.values()], "highest") for p, by in played.scores.items()}
        kept["by_client"] = {p: _by_client(by) for p, by in played.scores.items()}
    return kept


def result(records: Sequence[Mapping[str, Any]], rounds: int) -> dict[str, Any]:
    """What came of a run of so many rounds: how everybody is served at its end, how newcomers are, what was sent."""
    last, *after = records[rounds:]
    told = {
        "clusters": records[-1]["clusters"],
        "sizes": records[-1]["sizes"],
        "ari": records[-1]["ari"],
        **_scores(last),
        "bytes_down": sum(r["bytes_down"] for r in records),
        "bytes_up": sum(r["bytes_up"] for r in records),
        "megabits_per_client": megabits_per_client(records),
    }
    return {**told, "newcomers": _scores(after[-1])} if after else told


def _scores(record: Mapping[str, Any]) -> dict[str, Any]:
    return {"accuracy": record.get("accuracy", {}), "loss": record.get("loss", {})}


def megabits_per_client(records: Sequence[Mapping[str, Any]]) -> float:
    """The paper's unit of communication, of the messages that were really sent: both ways, over all clients.

    Where some left for good, over as many as there were at most.
    """
    sent = sum(r["bytes_down"] + r["bytes_up"] for r in records)
    return float(8e-6 * sent / max([1, *(r["clients"] for r in records)]))


def clusters(cluster_of: Mapping[int, int], true_cluster: NDArray[np.intp] | None) -> dict[str, Any]:
    """How many clusters have members, how large they are, and how well they agree with the true clusters, if known."""
    labels = np.array([cluster_of[c] for c in sorted(cluster_of)], dtype=np.intp)
    sizes = np.bincount(labels) if len(labels) else np.zeros(0, dtype=np.intp)
    ari = None
    if true_cluster is not None and len(labels):
        ari = adjusted_rand_index(labels, true_cluster[sorted(cluster_of)])
    return {"clusters": int((sizes > 0).sum()), "sizes": sizes[sizes > 0].tolist(), "ari": ari}


def spread(values: Iterable[float], worst: Literal["lowest", "highest"] = "lowest") -> dict[str, float]:
    """Mean, deviation and mean of the worst tenth over clients: the lowest accuracies, the highest losses."""
    array = np.sort(np.fromiter(values, dtype=np.float64))
    n = max(1, len(array) // 10)
    tenth = array[:n] if worst == "lowest" else array[-n:]
    return {"mean": float(array.mean()), "std": float(array.std()), "worst_tenth": float(tenth.mean())}


def _by_client(scores: Mapping[int, Score]) -> dict[str, list[float]]:
    return {str(c): [s.accuracy, s.loss] for c, s in sorted(scores.items())}
