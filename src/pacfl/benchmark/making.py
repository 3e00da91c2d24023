"""The grid from its settings to its outcome: missing runs are tuned and run, stored ones are not run again."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pacfl.benchmark.grid import Column, Method, Planned, Scale, Tuning, every_run, settings
from pacfl.benchmark.outcome import LOCAL, TARGET_OF, Outcome, empty, merged, place_of, settled, summary
from pacfl.benchmark.tuning import trials, tuned
from pacfl.errors import ConfigError, DataError, ModelError
from pacfl.experiment.config import Run
from pacfl.reproduce.making import Watch, no_display
from pacfl.reproduce.missing_runs import run_missing, stored_result
from pacfl.reproduce.planning import with_settings
from pacfl.settings import build

FIRST = {LOCAL: 0, TARGET_OF: 1}  # the others are compared with them
Ending = Mapping[str, Any] | str | None  # a result, why the parts of a run do not go together, or neither yet


@dataclass(frozen=True)
class Request:
    """What is asked for, and where data and runs are."""

    methods: Sequence[Method]
    columns: Sequence[Column]
    scale: Scale = "quick"
    data: Path | None = None
    runs: Path = Path("runs")
    workers: int = 1
    n_seeds: int | None = None
    run: bool = True  # False: show only what has ended
    exported: Outcome | None = None  # an earlier outcome: its runs and trials are not run again
    watch: Watch = field(default=no_display)


def make(request: Request) -> Outcome:
    """The outcome of a grid, with what an earlier one has."""
    *_, outcome = outcomes(request)
    return outcome


def outcomes(request: Request) -> Iterator[Outcome]:
    """The outcome so far: what an earlier one has, then after each run and each trial that ended."""
    outcome = request.exported or empty(request.scale)
    yield outcome
    for of_column in every_run(request.scale, request.columns, request.methods, request.n_seeds):
        ordered = sorted(of_column, key=lambda one: FIRST.get(one.method.name, len(FIRST)))
        for step in (_tune, _run):
            for so_far in step(ordered, outcome, request):
                yield (outcome := so_far)


def _tune(of_column: Sequence[Planned], outcome: Outcome, request: Request) -> Iterator[Outcome]:
    """Run the trials of a column that are not known yet. They are of the first seed."""
    tuning = tuning_of(request.scale)
    if tuning is None:
        return
    open_ = [one for one in of_column if "chosen" not in _entry(one, outcome)]
    tried = {one: list(trials(replace(one, run=replace(one.run, seed=0)), tuning)) for one in open_}
    known = {one: {own["hash"]: own for own in _entry(one, outcome).get("trials", ())} for one in tried}
    missing = [trial for one, own in tried.items() for trial in own if trial.run.hash not in known[one]]
    with _running([trial.run for trial in missing], request) as run:
        for one, own in tried.items():
            for trial in (trial for trial in own if trial in missing):
                ending = run(trial.run)
                if ending is None:
                    continue
                entry = tuned(own, known[one], trial, ending)
                outcome = merged(outcome, (), [{**place_of(one), **entry}])
                yield outcome
                if "refused" in entry:
                    break  # as all others would be


def _run(of_column: Sequence[Planned], outcome: Outcome, request: Request) -> Iterator[Outcome]:
    """Run what is missing of a column, with what was chosen."""
    ready = list(_ready(of_column, outcome, request.scale))
    known = {run["hash"] for run in outcome["runs"] if "refused" not in run}
    missing = [one for one in ready if one.run.hash not in known]
    with _running([one.run for one in missing], request) as run:
        for one in missing:
            why = _entry(one, outcome).get("refused")
            ending = run(one.run) if why is None else why
            ended = summary(one, request.runs, outcome, ending if isinstance(ending, str) else None)
            if ended is not None:
                outcome = merged(outcome, [ended])
                yield outcome
    by_hash = {one.run.hash: one for one in ready}
    found = [run for run in outcome["runs"] if run["hash"] in by_hash]
    yield merged(outcome, [settled(run, by_hash[run["hash"]], request.runs, outcome) for run in found])


@dataclass(frozen=True)
class Left:
    """What is left of a run of the grid."""

    planned: Planned
    run: bool  # whether it is still to be run
    trials: int  # before it


def left(request: Request) -> Iterator[Left]:
    """What is left of each run that is not in the earlier outcome, nor stored."""
    outcome, tuning = request.exported or empty(request.scale), tuning_of(request.scale)
    known = {run["hash"] for run in outcome["runs"]}
    for of_column in every_run(request.scale, request.columns, request.methods, request.n_seeds):
        ready = {one.method.name: one.run for one in _ready(of_column, outcome, request.scale)}
        for one in of_column:
            run = ready.get(one.method.name)
            has_ended = run is not None and (run.hash in known or stored_result(run, request.runs) is not None)
            of_trials = list(trials(one, tuning)) if tuning is not None and run is None and one.run.seed == 0 else []
            done = {trial["hash"] for trial in _entry(one, outcome).get("trials", ())}
            open_ = [t for t in of_trials if t.run.hash not in done and stored_result(t.run, request.runs) is None]
            if open_ or not has_ended:
                yield Left(one, not has_ended, len(open_))


def _ready(of_column: Sequence[Planned], outcome: Outcome, scale: Scale) -> Iterator[Planned]:
    """The runs whose settings are chosen; and those that are refused, as they are."""
    tuning = tuning_of(scale)
    for one in of_column:
        entry = _entry(one, outcome)
        if tuning is None or "refused" in entry:
            yield one
        elif "chosen" in entry:
            yield replace(one, run=with_settings(one.run, entry["chosen"]))


def tuning_of(scale: Scale) -> Tuning | None:
    """How methods are tuned at a scale, if they are."""
    table = settings(scale).tuning
    return None if table is None else build(Tuning, table, "tuning")


def _entry(one: Planned, outcome: Outcome) -> Mapping[str, Any]:
    """What is known of the trials of a method in a column; empty: nothing."""
    own = place_of(one).items()
    return next((entry for entry in outcome["tuning"] if own <= entry.items()), {})


@contextmanager
def _running(runs: Sequence[Run], request: Request) -> Iterator[Callable[[Run], Ending]]:
    """Runs one of the runs at a time, and shows all of them; or looks only whether it has ended."""
    if not request.run or not runs:
        yield lambda run: stored_result(run, request.runs)
        return
    with request.watch(list(runs)) as show:

        def ending(run: Run) -> Ending:
            record: Ending = None
            try:
                for record in run_missing(run, request.runs, request.data, request.workers):
                    show(run, record)
            except (ConfigError, DataError, ModelError) as error:
                return str(error)
            return record

        yield ending
