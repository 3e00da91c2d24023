"""An item from its settings to its outcome: missing runs are tuned and run, stored ones are not run again."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pacfl.errors import ConfigError
from pacfl.experiment.config import Run
from pacfl.reproduce.items import Item, Scale, missing
from pacfl.reproduce.missing_runs import run_missing, stored_result
from pacfl.reproduce.outcome import Outcome, outcome
from pacfl.reproduce.planning import Planned, plan, with_chosen
from pacfl.reproduce.tuning import Trial, chosen, trials

Show = Callable[[Run, Mapping[str, Any]], None]
Watch = Callable[[list[Run]], AbstractContextManager[Show]]  # how running runs are shown


@contextmanager
def no_display(_runs: list[Run]) -> Iterator[Show]:
    """Nothing is shown."""
    yield lambda _run, _record: None


@dataclass(frozen=True)
class Request:
    """What is asked for, and where data and runs are."""

    scale: Scale = "quick"
    data: Path | None = None
    runs: Path = Path("runs")
    workers: int = 1
    only: tuple[str, ...] = ()  # methods; none: all
    on: tuple[str, ...] = ()  # columns; none: all
    n_seeds: int | None = None
    tune: bool = False
    run: bool = True  # False: show only what has ended
    exported: Outcome | None = None  # an earlier outcome: a column and seed that it has in full is not run again
    watch: Watch = no_display


@dataclass(frozen=True)
class ColumnPlan:
    """The runs of a column, and how their methods were tuned."""

    ready: list[Planned]
    waiting: list[Planned]  # for trials that have not ended
    tried: list[Trial]
    tuning: list[dict[str, Any]]


def run_item(item: Item, request: Request) -> Outcome:
    """The outcome of an item with runs of its own."""
    lacking = missing(item, request.scale, request.data)
    columns = [column for column in asked_columns(item, request) if column not in lacking]
    planned: list[Planned] = []
    tuning: list[dict[str, Any]] = []
    for column in columns:
        found = column_plan(item, column, request)
        planned += found.ready
        tuning += found.tuning
    planned = not_exported(planned, request)
    planned.sort(key=lambda one: one.run.seed)  # one seed of everything before the next of anything
    _run_missing([one.run for one in planned], request)
    return outcome(item, request.scale, lacking, planned, tuning, request.runs)


def asked_columns(item: Item, request: Request) -> list[str]:
    """The columns that are asked for, checked."""
    for column in request.on:
        if column not in item.columns:
            raise ConfigError(f"{item.name} has no column {column!r}; it has {', '.join(item.columns)}")
    return [column for column in item.columns if not request.on or column in request.on]


def not_exported(planned: Sequence[Planned], request: Request) -> list[Planned]:
    """The runs of columns and seeds of which some run is not in the earlier outcome: they are compared together."""
    have = {run["hash"] for run in (request.exported or {}).get("runs", ())}
    lacking = {(one.column, one.run.seed) for one in planned if one.run.hash not in have}
    return [one for one in planned if (one.column, one.run.seed) in lacking]


def column_plan(item: Item, column: str, request: Request) -> ColumnPlan:
    """The runs of a column; if it is tuned, after its trials."""
    planned = plan(item, column, request.scale, request.only, request.n_seeds)
    spec = item.tuned(column, request.scale) if request.tune else None
    known = [] if spec is None else _exported_tuning(column, request)
    untuned = [one for one in planned if one.tuned_as not in {own["method"] for own in known}]
    tried = trials(untuned, spec) if spec is not None else []
    _run_missing([trial.run for trial in tried], request)
    settled = [*known, *chosen(_settled(tried, request.runs), request.runs)]
    by_method = {one["method"]: one["chosen"] for one in settled}
    ready = [with_chosen(one, by_method) for one in planned if spec is None or one.tuned_as in by_method]
    waiting = [one for one in planned if spec is not None and one.tuned_as not in by_method]
    return ColumnPlan(ready, waiting, tried, [{"column": column, **one} for one in settled])


def _exported_tuning(column: str, request: Request) -> list[dict[str, Any]]:
    """What the earlier outcome has of the trials of a column."""
    tuning = (request.exported or {}).get("tuning", ())
    return [{key: value for key, value in one.items() if key != "column"} for one in tuning if one["column"] == column]


def _settled(tried: Sequence[Trial], runs: Path) -> list[Trial]:
    """The trials of methods of which all trials have ended."""
    open_methods = {trial.method for trial in tried if stored_result(trial.run, runs) is None}
    return [trial for trial in tried if trial.method not in open_methods]


def _run_missing(runs: list[Run], request: Request) -> None:
    if request.run:
        with request.watch(runs) as show:
            for run in runs:
                for record in run_missing(run, request.runs, request.data, request.workers):
                    show(run, record)
