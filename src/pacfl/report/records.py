"""Records of rounds -> scores by protocol, and how they came about."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pacfl.experiment.summary import megabits_per_client, metric_of, scores
from pacfl.experiment.tested_on import on_test
from pacfl.report.summary import NEWCOMERS, ON_TEST, Array, Evaluation

Record = Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class Outcome:
    """What the records of a run, or of its rounds so far, come to."""

    metric: str
    scores: Mapping[str, Array]  # of the primary metric: protocol: (n,)
    metrics: Mapping[str, Mapping[str, float]]
    worst_tenth: Mapping[str, float]
    evaluations: tuple[Evaluation, ...]


def outcome(
    records: Sequence[Record], rounds: Sequence[int], n: int, late: int | None = None, only_latest: bool = False
) -> Outcome:
    """The last scores by each protocol, of n clients.

    rounds: that are done after each record; late: the first record of newcomers' scores, if there are any.
    only_latest: without protocols whose last scores are of an earlier round than others, so that all are comparable.
    """
    latest = max((t for record, t in zip(records, rounds, strict=True) if "loss" in record), default=0)
    last = {
        protocol: by
        for i, record in enumerate(records)
        if not only_latest or rounds[i] == latest
        for protocol, by in protocols_of(record, newcomers=late is not None and i >= late).items()
    }
    evaluated: Record = next((record for record in reversed(records) if "loss" in record), {})
    return Outcome(
        metric=metric_of(evaluated),
        scores={protocol: array({c: s[0] for c, s in by["by_client"].items()}, n) for protocol, by in last.items()},
        metrics={
            name: {protocol: by["means"][name] for protocol, by in last.items() if name in by["means"]}
            for name in evaluated.get("metrics", {})
        },
        worst_tenth={protocol: by["worst_tenth"] for protocol, by in last.items()},
        evaluations=tuple(evaluations(records, rounds, late)),
    )


def protocols_of(record: Record, newcomers: bool) -> dict[str, dict[str, Any]]:
    """Scores of a record by protocol.

    Those of newcomers, evaluated separately, and those on other test samples are under names of their own.
    """
    own = _of_kind(record, prefix(None, newcomers), newcomers)
    for kind in record.get("tests", {}):
        own |= _of_kind(on_test(record, kind), prefix(kind, newcomers), newcomers)
    return own


def prefix(kind: str | None, newcomers: bool) -> str:
    """What the names of protocols begin with, by the kind of test samples and of clients."""
    return ("" if kind is None else kind + ON_TEST) + (NEWCOMERS if newcomers else "")


def _of_kind(record: Record, prefix: str, newcomers: bool) -> dict[str, dict[str, Any]]:
    return {
        prefix + protocol: {
            "by_client": record["by_client"][protocol],
            "worst_tenth": scores(record)[protocol]["worst_tenth"],
            "means": _means(record, protocol),
        }
        for protocol in record.get("by_client", {})
        if not (newcomers and protocol == "last_trained")  # newcomers have trained nothing yet
    }


def _means(record: Record, protocol: str) -> dict[str, float]:
    """Of the primary metric, of the others that are defined for some client, and of the loss."""
    others = {name: by[protocol]["mean"] for name, by in record.get("metrics", {}).items()}
    named = {metric_of(record): scores(record)[protocol]["mean"], **others, "loss": record["loss"][protocol]["mean"]}
    return {name: mean for name, mean in named.items() if mean is not None}


def evaluations(records: Sequence[Record], rounds: Sequence[int], late: int | None = None) -> list[Evaluation]:
    """One for each number of rounds: the last round is often evaluated again at the end, by more protocols.

    rounds: that are done after each record; late: the first record of newcomers' scores, if there are any.
    """
    found: dict[int, Evaluation] = {}
    for i, (record, t) in enumerate(zip(records, rounds, strict=True)):
        new = {p: by["means"] for p, by in protocols_of(record, newcomers=late is not None and i >= late).items()}
        if not new:
            continue
        before = found.get(t) or Evaluation(t, megabits_per_client(records[: i + 1]), {})
        names = dict.fromkeys((*before.means, *(name for means in new.values() for name in means)))
        means = {
            name: {**before.means.get(name, {}), **{p: own[name] for p, own in new.items() if name in own}}
            for name in names
        }
        found[t] = replace(before, means=means)
    return list(found.values())


def array(by_client: Mapping[str, float], n: int, missing: float = np.nan) -> Array:
    """(n,) values of clients; others have `missing`."""
    found = np.full(n, missing)
    found[[int(c) for c in by_client]] = list(by_client.values())
    return found
