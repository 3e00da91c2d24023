"""Scores of many clients -> the few numbers that are reported, the protocol always named."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from pacfl.subspace import adjusted_rand_index

if TYPE_CHECKING:
    from pacfl.federation.rounds import Round, Score


NO_CLUSTERS: Final[Mapping[str, Any]] = {"clusters": None, "sizes": [], "ari": None}  # of clients that share no model


def record(finished: "Round", true_cluster: NDArray[np.intp] | None) -> dict[str, Any]:
    """What is stored of a round. Rounds count from 1; the final evaluation comes after the last of them."""
    cluster_of = finished.state.cluster_of
    stored: dict[str, Any] = {
        "round": finished.t + 1,
        "clients": len(cluster_of),
        "sampled": list(finished.plan.sampled),
        "lost": sorted(finished.plan.lost),
        "bytes_down": finished.bytes_down,
        "bytes_up": finished.bytes_up,
        "cluster_of": {str(c): int(k) for c, k in sorted(cluster_of.items())},
        **(clusters(cluster_of, true_cluster) if len(finished.state.models) else NO_CLUSTERS),
    }
    if norms := getattr(finished.state, "update_norms", None):  # what CFL's thresholds are compared with
        stored["update_norms"] = {str(k): {"mean": mean, "largest": most} for k, mean, most in norms}
    if finished.scores:
        stored["accuracy"] = {p: spread([s.accuracy for s in by.values()]) for p, by in finished.scores.items()}
        stored["loss"] = {p: spread([s.loss for s in by.values()], "highest") for p, by in finished.scores.items()}
        stored["by_client"] = {p: _by_client(by) for p, by in finished.scores.items()}
    return stored


def result(records: Sequence[Mapping[str, Any]], rounds: int) -> dict[str, Any]:
    """The outcome of a run of so many rounds: the final evaluation, that of newcomers, and what was sent."""
    last, *after = records[rounds:]
    outcome = {
        "clusters": records[-1]["clusters"],
        "sizes": records[-1]["sizes"],
        "ari": records[-1]["ari"],
        **_scores(last),
        "bytes_down": sum(r["bytes_down"] for r in records),
        "bytes_up": sum(r["bytes_up"] for r in records),
        "megabits_per_client": megabits_per_client(records),
    }
    return {**outcome, "newcomers": _scores(after[-1])} if after else outcome


def _scores(record: Mapping[str, Any]) -> dict[str, Any]:
    return {"accuracy": record.get("accuracy", {}), "loss": record.get("loss", {})}


def label(algorithm: Mapping[str, Any]) -> str:
    """An algorithm in a few characters, with the settings that were given.

    >>> label({"name": "pacfl", "rank": 2})
    'pacfl(rank=2)'
    """
    given = ", ".join(f"{k}={v}" for k, v in algorithm.items() if k != "name")
    return f"{algorithm['name']}({given})" if given else str(algorithm["name"])


def megabits_per_client(records: Sequence[Mapping[str, Any]]) -> float:
    """The paper's measure of communication, of the messages that were really sent: both ways, over all clients.

    Where some left for good, over the largest number of clients there was.
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
    """Mean, standard deviation and mean of the worst tenth over clients: the lowest accuracies, the highest losses."""
    array = np.sort(np.fromiter(values, dtype=np.float64))
    n = max(1, len(array) // 10)
    tenth = array[:n] if worst == "lowest" else array[-n:]
    return {"mean": float(array.mean()), "std": float(array.std()), "worst_tenth": float(tenth.mean())}


def _by_client(scores: "Mapping[int, Score]") -> dict[str, list[float]]:
    return {str(c): [s.accuracy, s.loss] for c, s in sorted(scores.items())}
