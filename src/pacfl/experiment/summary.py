"""Scores of many clients -> the few numbers that are reported, the protocol always named."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pacfl.federation.rounds import Round, Score
from pacfl.subspace import adjusted_rand_index


def record(played: Round, truth: NDArray[np.intp] | None) -> dict[str, Any]:
    """What is kept of a round."""
    cluster_of = played.state.cluster_of
    kept: dict[str, Any] = {
        "round": played.t,
        "clients": len(cluster_of),
        "sampled": list(played.event.sampled),
        "lost": sorted(played.event.lost),
        "bytes_down": played.bytes_down,
        "bytes_up": played.bytes_up,
        "cluster_of": {str(c): k for c, k in sorted(cluster_of.items())},
        **clusters(cluster_of, truth),
    }
    if played.scores:
        kept["accuracy"] = {p: spread({c: s.accuracy for c, s in by.items()}) for p, by in played.scores.items()}
        kept["loss"] = {p: spread({c: s.loss for c, s in by.items()}) for p, by in played.scores.items()}
        kept["by_client"] = {p: _by_client(by) for p, by in played.scores.items()}
    return kept


def clusters(cluster_of: Mapping[int, int], truth: NDArray[np.intp] | None) -> dict[str, Any]:
    """How many clusters have members, how large they are, and how well they agree with the truth where it is known."""
    labels = np.array([cluster_of[c] for c in sorted(cluster_of)], dtype=np.intp)
    sizes = np.bincount(labels) if len(labels) else np.zeros(0, dtype=np.intp)
    ari = None
    if truth is not None and len(labels):
        ari = adjusted_rand_index(labels, truth[sorted(cluster_of)])
    return {"clusters": int((sizes > 0).sum()), "sizes": sizes[sizes > 0].tolist(), "ari": ari}


def spread(values: Mapping[int, float]) -> dict[str, float]:
    """Mean, deviation and worst tenth over clients."""
    array = np.array(list(values.values()), dtype=np.float64)
    worst = np.sort(array)[: max(1, len(array) // 10)]
    return {"mean": float(array.mean()), "std": float(array.std()), "worst_tenth": float(worst.mean())}


def _by_client(scores: Mapping[int, Score]) -> dict[str, list[float]]:
    return {str(c): [s.accuracy, s.loss] for c, s in sorted(scores.items())}
