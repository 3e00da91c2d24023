"""The grid from its settings to its outcome: missing runs are tuned and run, stored ones are not run again."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pacfl.benchmark.grid import Column, Method, Planned, Scale, Tuning, every_run, settings
from pacfl.benchmark.outcome import Outcome, merged, summaries
from pacfl.benchmark.tuning import trials
from pacfl.errors import ConfigError, DataError, ModelError
from pacfl.experiment.config import Run
from pacfl.reproduce.making import Watch, no_display
from pacfl.reproduce.missing_runs import run_missing, stored_result
from pacfl.reproduce.planning import with_settings
from pacfl.reproduce.tuning import Trial, chosen
from pacfl.settings import build

Refused = dict[str, str]  # hash of a run: why its data, model and method do not go together


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
    exported: Outcome | None = None  # an earlier outcome: its runs are not run again
    watch: Watch = field(default=no_display)


def make(request: Request) -> Outcome:
    """The outcome of a grid, with what an earlier one has."""
    outcome = request.exported or {"scale": request.scale, "tuning": [], "runs": []}
    for of_column in every_run(request.scale, request.columns, request.methods, request.n_seeds):
        ready, tuned, refused = _tuned(of_column, outcome, request)
        known = {run["hash"] for run in outcome["runs"] if "refused" not in run}
        refused |= _run_missing([one.run for one in ready if one.run.hash not in {*known, *refused}], request)
        outcome = merged(outcome, summaries(ready, request.runs, refused, known), tuned)
    return outcome


def _tuned(
    of_column: Sequence[Planned], outcome: Outcome, request: Request
) -> tuple[list[Planned], list[dict[str, Any]], Refused]:
    """The runs whose settings are chosen, how, and those whose trials are refused.

    Trials are of the first seed. Those of an earlier outcome are not run again.
    """
    table = settings(request.scale).tuning
    if table is None:
        return list(of_column), [], {}
    tuning = build(Tuning, table, "tuning")
    place = {"data_set": of_column[0].column.data_set, "column": of_column[0].column.name}
    known = [one for one in outcome["tuning"] if place.items() <= one.items()]
    open_ = [one for one in of_column if one.method.name not in {own["method"] for own in known}]
    tried = {one: list(trials(replace(one, run=replace(one.run, seed=0)), tuning)) for one in open_}
    why = _run_missing([trial.run for of_method in tried.values() for trial in of_method], request)
    refused = {
        one.run.hash: why[trial.run.hash] for one, own in tried.items() for trial in own if trial.run.hash in why
    }
    ended = [trial for own in tried.values() if _have_ended(own, request.runs) for trial in own]
    found = [*known, *({**place, **one} for one in chosen(ended, request.runs))]
    settled = {one["method"]: one["chosen"] for one in found}
    ready = [
        replace(one, run=with_settings(one.run, settled.get(one.method.name, {})))
        for one in of_column
        if one.method.name in settled or one.run.hash in refused
    ]
    return ready, found, refused


def _have_ended(tried: Sequence[Trial], runs: Path) -> bool:
    return all(stored_result(trial.run, runs) is not None for trial in tried)


def _run_missing(runs: Sequence[Run], request: Request) -> Refused:
    """Run what has not ended; the runs whose parts do not go together, and why."""
    refused: Refused = {}
    if not request.run or not runs:
        return refused
    with request.watch(list(runs)) as show:
        for run in runs:
            try:
                for record in run_missing(run, request.runs, request.data, request.workers):
                    show(run, record)
            except (ConfigError, DataError, ModelError) as error:
                refused[run.hash] = str(error)
    return refused
