"""Scores of many clients -> the few numbers that are reported, the protocol always named."""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from pacfl.errors import ConfigError
from pacfl.learning.evaluation import Metrics
from pacfl.learning.metrics import METRICS, Metric
from pacfl.subspace import adjusted_rand_index

if TYPE_CHECKING:
    from pacfl.federation.rounds import Round, Scores

Worst = Literal["lowest", "highest"]

ACCURACY: Final = "accuracy"
CLASSIFICATION: Final = Metrics()
NONE: Final[Mapping[str, Any]] = MappingProxyType({})
NO_CLUSTERS: Final[Mapping[str, Any]] = {"clusters": None, "sizes": [], "ari": None}  # of clients that share no model


def record(
    finished: "Round",
    true_cluster: NDArray[np.intp] | None,
    metrics: Metrics = CLASSIFICATION,
    tests: Sequence[str] = ("owned",),
) -> dict[str, Any]:
    """What is stored of a round. Rounds count from 1; the final evaluation comes after the last of them.

    tests: the kinds of test samples, the primary one first.
    """
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
    if metrics.primary != ACCURACY:
        stored["metric"] = metrics.primary
    first, *others = tests
    scores = finished.scores_by_kind(others)
    if primary := scores.pop(None):
        stored |= summaries(primary, metrics)
    if found := {str(kind): summaries(own, metrics) for kind, own in scores.items() if own}:
        stored |= {"test": first, "tests": found}
    return stored


def summaries(scores: "Scores", metrics: Metrics) -> dict[str, Any]:
    """Over clients and by client: of the primary metric, of the loss, and of other metrics where they are defined."""
    primary = _worst(METRICS[metrics.primary])
    stored: dict[str, Any] = {
        metrics.primary: {p: spread([s.primary for s in by.values()], primary) for p, by in scores.items()},
        "loss": {p: spread([s.loss for s in by.values()], "highest") for p, by in scores.items()},
        "by_client": {p: {str(c): [s.primary, s.loss] for c, s in sorted(by.items())} for p, by in scores.items()},
    }
    if metrics.names:
        others = {
            name: {
                p: {str(c): s.metrics[name] for c, s in sorted(by.items()) if name in s.metrics}
                for p, by in scores.items()
            }
            for name in metrics.names
        }
        stored["metrics"] = {
            name: {p: _spread_of_defined(own, len(scores[p]), _worst(metric)) for p, own in others[name].items()}
            for name, metric in metrics.others.items()
        }
        stored["metrics_by_client"] = others
    return stored


def trained(record: Mapping[str, Any]) -> bool:
    """Whether a round changed a model: clients trained, and not all of their updates were lost."""
    return bool(record.get("updates", len(record["sampled"])))


def metric_of(record: Mapping[str, Any]) -> str:
    """The name of the primary metric of a record or a result."""
    return str(record.get("metric", ACCURACY))


def scores(record: Mapping[str, Any]) -> Mapping[str, Mapping[str, float]]:
    """The primary metric of a record or a result: by protocol, the spread over clients."""
    found: Mapping[str, Mapping[str, float]] = record.get(metric_of(record), {})
    return found


def higher_is_better(record: Mapping[str, Any]) -> bool:
    """Whether this is so for the primary metric of a record or a result."""
    return METRICS[metric_of(record)].higher_is_better


def in_percent(metric: str) -> bool:
    """Whether values of a metric are shown in percent: those that are shares."""
    return metric in METRICS and METRICS[metric].share


def check_targets(targets: Iterable[float], metric: str) -> None:
    """Refuse a target that the primary metric cannot reach."""
    for target in targets:
        if METRICS[metric].share and target > 1:
            raise ConfigError(f"targets are {metric} from 0 to 1, got {target:g}; write 0.8 for 80 %")


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
    named = {"metric": record["metric"]} if "metric" in record else {}
    others = {"metrics": record["metrics"]} if "metrics" in record else {}
    own = {**named, metric_of(record): scores(record), "loss": record.get("loss", {}), **others}
    if "tests" not in record:
        return own
    tests = {kind: _scores({**named, **of_kind}) for kind, of_kind in record["tests"].items()}
    return {**own, "test": record["test"], "tests": tests}


# The method of the paper, in words of its settings: inputs are compared, and nothing is added
PAPERS_PACFL: Final[Mapping[str, Any]] = {"compare": "inputs", "label_prior": False, "levels": "none"}


def label(algorithm: Mapping[str, Any], aggregation: Mapping[str, Any] = NONE) -> str:
    """An algorithm in a few characters, with the settings that were given, and an aggregation that is not the default.

    >>> label({"name": "pacfl", "rank": 2}, {"rule": "median"})
    'pacfl(rank=2, rule=median)'
    >>> label({"name": "pacfl", "rank": 2, **PAPERS_PACFL})
    'pacfl(paper, rank=2)'
    """
    settings = {**{key: value for key, value in algorithm.items() if key != "name"}, **aggregation}
    words = []
    if algorithm["name"] == "pacfl" and PAPERS_PACFL.items() <= settings.items():
        settings = {key: value for key, value in settings.items() if key not in PAPERS_PACFL}
        words = ["paper"]
    given = ", ".join([*words, *(f"{key}={value}" for key, value in settings.items())])
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


def spread(values: Iterable[float], worst: Worst = "lowest") -> dict[str, float]:
    """Mean, standard deviation and mean of the worst tenth over clients: the lowest accuracies, the highest losses."""
    array = np.sort(np.fromiter(values, dtype=np.float64))
    n = max(1, len(array) // 10)
    tenth = array[:n] if worst == "lowest" else array[-n:]
    return {"mean": float(array.mean()), "std": float(array.std()), "worst_tenth": float(tenth.mean())}


def _spread_of_defined(by_client: Mapping[str, float], n: int, worst: Worst) -> dict[str, float | None]:
    """Over the clients for which a metric is defined, and for how many of the n clients it is not."""
    nothing = {"mean": None, "std": None, "worst_tenth": None}
    return {**(spread(by_client.values(), worst) if by_client else nothing), "undefined": n - len(by_client)}


def _worst(metric: Metric) -> Worst:
    return "lowest" if metric.higher_is_better else "highest"
