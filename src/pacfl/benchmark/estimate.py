"""About how long the rest of a grid takes on this machine: a few rounds of every method, extrapolated."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from pacfl.benchmark.grid import Tuning, methods, planned
from pacfl.benchmark.making import Request, left, tuning_of
from pacfl.benchmark.outcome import TARGET_OF
from pacfl.errors import ConfigError, DataError, ModelError
from pacfl.experiment.config import Run
from pacfl.experiment.execution import execute
from pacfl.experiment.run import build
from pacfl.experiment.store import RunMemory
from pacfl.federation.local import LocalBackend
from pacfl.federation.schedule import Schedule

ROUNDS: Final = 3  # the first one also profiles clients, the second one is evaluated
EVALUATED: Final = 2


@dataclass(frozen=True)
class Cost:
    """Processor seconds of the parts of a run."""

    whole: float  # a run of ROUNDS rounds
    round: float
    evaluation: float  # of the models as received, between rounds

    def of(self, schedule: Schedule) -> float:
        """Of a run with this schedule."""
        evaluated = schedule.rounds // schedule.evaluate_every if schedule.evaluate_every else 0
        return self.whole + (schedule.rounds - ROUNDS) * self.round + (evaluated - 1) * self.evaluation


@dataclass(frozen=True)
class Estimate:
    """What is left to run of a method on a data set, and about how long it takes."""

    data_set: str
    method: str
    run_seconds: float | None  # of a run, on one core; None: nothing is left, or the method is refused
    runs: int
    trials: int
    core_hours: float


def estimates(request: Request, clock: Callable[[], float] = time.process_time) -> Iterator[Estimate]:
    """Of each method on each data set, measured in the first of the columns. clock: processor seconds."""
    tuning = tuning_of(request.scale)
    missing = list(left(request))
    for column in {column.data_set: column for column in reversed(request.columns)}.values():
        of_set = [one for one in missing if one.planned.column.data_set == column.data_set]
        if of_set:
            (first,) = methods([TARGET_OF])
            _measured(planned(request.scale, column, first, 0).run, request.data, clock)  # it loads and compiles
        for method in request.methods:
            own = [one for one in of_set if one.planned.method is method]
            runs, trials = sum(one.run for one in own), sum(one.trials for one in own)
            run = planned(request.scale, column, method, 0).run
            cost = _measured(run, request.data, clock) if runs or trials else None
            if cost is None:
                yield Estimate(column.data_set, method.name, None, runs, trials, 0.0)
                continue
            seconds = cost.of(run.schedule)
            spent = runs * seconds + trials * _of_trial(cost, run.schedule, tuning)
            yield Estimate(column.data_set, method.name, seconds, runs, trials, spent / 3600)


def _of_trial(cost: Cost, schedule: Schedule, tuning: Tuning | None) -> float:
    if tuning is None:
        return 0.0
    return (1 - tuning.validation) * cost.of(replace(schedule, rounds=tuning.rounds, evaluate_every=0))


def _measured(run: Run, data: Path | None, clock: Callable[[], float]) -> Cost | None:
    """The cost of a run, from a few rounds that are stored nowhere; None if its parts do not go together."""
    drift = None if run.data.drift is None else {**run.data.drift, "round": ROUNDS}
    schedule = replace(run.schedule, rounds=ROUNDS, evaluate_every=EVALUATED)
    short = replace(run, data=replace(run.data, drift=drift), schedule=schedule)
    started = clock()
    try:
        rounds = execute(build(short, data), RunMemory(), {}, LocalBackend(1), models=False)
        first, second, third, *_, end = (clock() for _ in rounds)
    except (ConfigError, DataError, ModelError):
        return None
    return Cost(end - started, third - second, max(0.0, (second - first) - (third - second)))
