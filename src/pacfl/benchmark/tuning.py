"""The same budget of tuning for every method: four short runs, scored on held-out training samples."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

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
