"""What needs several runs, or a question asked later: all from stored records, nothing is run."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from pacfl.experiment.store import RunFolder
from pacfl.experiment.summary import check_targets, higher_is_better, megabits_per_client, metric_of, scores
from pacfl.experiment.tested_on import on_test

Record = Mapping[str, Any]
EVALUATION_SETTINGS: Final = ("evaluate_every", "personal_every", "final_personal")  # they change only what is known


def load_result(folder: RunFolder, solo: Sequence[RunFolder], targets: Sequence[float] = ()) -> dict[str, Any] | None:
    """A finished run's result, how it compares with local training only, and when it reached the targets."""
    result, run = folder.result(), folder.content()
    if result is None or run is None:
        return None
    end = n_rounds(folder)
    records = folder.records()
    baseline = local_baseline(folder, solo)
    result["alone"] = None if baseline is None else baseline.path.name
    theirs = [] if baseline is None else baseline.records()
    their_end, their_last = (theirs[n_rounds(baseline)], theirs[-1]) if baseline is not None else (None, None)
    check_targets(targets, metric_of(result))
    for kind in (None, *result.get("tests", {})):
        own = result if kind is None else result["tests"][kind]
        own["worse_than_alone"] = below_local(records[end], their_end, kind)
        if targets:
            of_kind = [on_test(record, kind) for record in records[: end + 1]]
            own["to_target"] = {str(target): to_target(of_kind, target) for target in targets}
        if "newcomers" in result:
            new = result["newcomers"] if kind is None else result["newcomers"].get("tests", {}).get(kind, {})
            new["worse_than_alone"] = below_local(records[-1], their_last, kind)
    return result


def n_rounds(folder: RunFolder) -> int:
    """Rounds of training of a finished run: those of its schedule, or fewer if it was ended early."""
    ended = (folder.result() or {}).get("ended_after")
    return int(_of(folder, "schedule")["rounds"] if ended is None else ended)


def solo_runs(folders: Sequence[RunFolder]) -> list[RunFolder]:
    """The finished runs of SOLO: the local baselines."""
    return [folder for folder in folders if _of(folder, "algorithm")["name"] == "solo" and folder.result() is not None]


def local_baseline(folder: RunFolder, solo: Sequence[RunFolder]) -> RunFolder | None:
    """The run of SOLO on the same data, model, schedule and seed, scored by the same metric.

    If there are several, the one that trains with the same settings; if none does, there is no baseline.
    """
    found = [other for other in solo if _compared(other) == _compared(folder)]
    if len(found) > 1:
        found = [other for other in found if _of(other, "learning") == _of(folder, "learning")]
    return found[0] if len(found) == 1 else None


def below_local(record: Record, baseline: Record | None, kind: str | None = None) -> dict[str, float | None]:
    """By protocol: the share of clients scored worse than with local training only; None where not known.

    kind: of test samples; None: the primary one.
    """
    record, baseline = on_test(record, kind), None if baseline is None else on_test(baseline, kind)
    sign = 1 if higher_is_better(record) else -1
    shares: dict[str, float | None] = {}
    for protocol, own in record.get("by_client", {}).items():
        base = {} if baseline is None else baseline.get("by_client", {}).get(protocol, {})
        below = [sign * own[c][0] < sign * base[c][0] for c in own if c in base]
        shares[protocol] = sum(below) / len(below) if below else None
    return shares


def to_target(records: Sequence[Record], target: float) -> dict[str, dict[str, float] | None]:
    """By protocol: rounds, and megabits per client, until an evaluation first shows the target as mean of the metric.

    None if no evaluation does.
    """
    reached: dict[str, dict[str, float] | None] = {}
    for i, record in enumerate(records):
        sign = 1 if higher_is_better(record) else -1
        for protocol, spread in scores(record).items():
            reached.setdefault(protocol, None)
            if reached[protocol] is None and sign * spread["mean"] >= sign * target:
                rounds = sum(bool(r["sampled"]) for r in records[: i + 1])
                reached[protocol] = {"rounds": rounds, "megabits_per_client": megabits_per_client(records[: i + 1])}
    return reached


def _of(folder: RunFolder, section: str) -> Any:
    return (folder.content() or {})[section]


def _compared(folder: RunFolder) -> Any:
    """What two runs must have in common to be compared client by client."""
    schedule = {key: value for key, value in _of(folder, "schedule").items() if key not in EVALUATION_SETTINGS}
    metric = metric_of(folder.result() or next(iter(folder.records()), {}))
    stopping = (folder.content() or {}).get("stopping")
    return _of(folder, "seed"), _of(folder, "data"), _of(folder, "model"), schedule, metric, stopping
