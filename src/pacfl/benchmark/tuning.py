"""The same budget of tuning for every method: four short runs, scored on held-out training samples."""

from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

from pacfl.benchmark.grid import Planned, Tuning, with_drift_at_half_time
from pacfl.reproduce.planning import with_settings
from pacfl.reproduce.tuning import Trial, protocol_of


def trials(planned: Planned, tuning: Tuning) -> Iterator[Trial]:
    """Every choice of settings of a method, as a short run of its own."""
    run, own = planned.run, planned.method.tune
    schedule = replace(
        run.schedule, rounds=tuning.rounds, evaluate_every=0, final_personal=protocol_of(run) == "personal"
    )
    data = replace(run.data, validation=tuning.validation, test="owned")  # held-out samples are the only tests
    short = with_drift_at_half_time(replace(run, data=data, schedule=schedule))
    axes = {"lr": tuning.lr_beside if own else tuning.lr, **own}
    for values in product(*axes.values()):
        chosen = dict(zip(axes, values, strict=True))
        yield Trial(planned.method.name, chosen, with_settings(short, chosen))


def tuned(
    tried: Sequence[Trial],
    known: MutableMapping[str, Mapping[str, Any]],
    ended: Trial,
    ending: Mapping[str, Any] | str,
) -> dict[str, Any]:
    """The entry of a method once a trial has ended: its trials so far and, after all, the settings of the best.

    known: the trials so far by hash, to which this one is added; ending: its result, or why it is refused.
    """
    protocol = protocol_of(ended.run)
    if isinstance(ending, str):
        return {"evaluated_by": protocol, "trials": [], "refused": ending}
    accuracy = None if "diverged" in ending else float(ending["accuracy"][protocol]["mean"])
    known[ended.run.hash] = {**ended.settings, "accuracy": accuracy, "hash": ended.run.hash}
    found = [known[trial.run.hash] for trial in tried if trial.run.hash in known]
    entry: dict[str, Any] = {"evaluated_by": protocol, "trials": found}
    if len(found) == len(tried):
        scores = [-1.0 if one["accuracy"] is None else one["accuracy"] for one in found]
        entry["chosen"] = dict(tried[scores.index(max(scores))].settings)
    return entry
