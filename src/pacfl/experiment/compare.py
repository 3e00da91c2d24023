"""What only several runs, or a question that came later, can tell of a run: all from records, nothing is played."""

from collections.abc import Mapping, Sequence
from typing import Any

from pacfl.experiment.store import RunFolder
from pacfl.experiment.summary import megabits_per_client

Record = Mapping[str, Any]
HOW_OFTEN_JUDGED = ("evaluate_every", "personal_every")  # settings that change nothing but what is known of a run


def told(folder: RunFolder, solo: Sequence[RunFolder], targets: Sequence[float] = ()) -> dict[str, Any] | None:
    """A finished run's result, with how it compares with learning alone, and when it reached the targets."""
    result, run = folder.result(), folder.content()
    if result is None or run is None:
        return None
    end = run["schedule"]["rounds"]
    records = folder.records()
    reference = alone(folder, solo)
    result["alone"] = None if reference is None else reference.path.name
    theirs = [None] * len(records) if reference is None else reference.records()
    result["worse_than_alone"] = below_local(records[end], theirs[end])
    if "newcomers" in result:
        result["newcomers"]["worse_than_alone"] = below_local(records[-1], theirs[-1])
    if targets:
        result["to_target"] = {str(target): to_target(records[: end + 1], target) for target in targets}
    return result


def solo_runs(folders: Sequence[RunFolder]) -> list[RunFolder]:
    """The finished runs of SOLO, which are what the others are compared with."""
    return [folder for folder in folders if _of(folder, "algorithm")["name"] == "solo" and folder.result() is not None]


def alone(folder: RunFolder, solo: Sequence[RunFolder]) -> RunFolder | None:
    """The run of SOLO on the same data, model, plan and seed.

    If there are several, the one that learns with the same settings; if none does, there is no reference.
    """
    found = [other for other in solo if _setting(other) == _setting(folder)]
    if len(found) > 1:
        found = [other for other in found if _of(other, "learning") == _of(folder, "learning")]
    return found[0] if len(found) == 1 else None


def below_local(record: Record, reference: Record | None) -> dict[str, float | None]:
    """By protocol: the share of clients whose accuracy is below what they had alone; None where that is not known."""
    shares: dict[str, float | None] = {}
    for protocol, scores in record.get("by_client", {}).items():
        base = {} if reference is None else reference.get("by_client", {}).get(protocol, {})
        worse = [scores[c][0] < base[c][0] for c in scores if c in base]
        shares[protocol] = sum(worse) / len(worse) if worse else None
    return shares


def to_target(records: Sequence[Record], target: float) -> dict[str, dict[str, float] | None]:
    """By protocol: rounds played, and megabits per client sent, when the mean accuracy was first seen at the target.

    It is seen only where it was judged; None if it never was.
    """
    reached: dict[str, dict[str, float] | None] = {}
    for i, record in enumerate(records):
        for protocol, accuracy in record.get("accuracy", {}).items():
            reached.setdefault(protocol, None)
            if reached[protocol] is None and accuracy["mean"] >= target:
                rounds = sum(bool(r["sampled"]) for r in records[: i + 1])
                reached[protocol] = {"rounds": rounds, "megabits_per_client": megabits_per_client(records[: i + 1])}
    return reached


def _of(folder: RunFolder, section: str) -> Any:
    return (folder.content() or {})[section]


def _setting(folder: RunFolder) -> Any:
    """What two runs must have in common to be compared client by client."""
    plan = {key: value for key, value in _of(folder, "schedule").items() if key not in HOW_OFTEN_JUDGED}
    return _of(folder, "seed"), _of(folder, "data"), _of(folder, "model"), plan
