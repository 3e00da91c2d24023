"""All items with what they need, whether it is here, and what they cost."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pacfl.data import catalogue
from pacfl.experiment.config import Run
from pacfl.reproduce.availability import missing, wanted
from pacfl.reproduce.cost import steps, steps_per_second
from pacfl.reproduce.items import Item, items
from pacfl.reproduce.making import Request, column_plan
from pacfl.reproduce.missing_runs import ended


def listed(request: Request) -> tuple[list[dict[str, Any]], float]:
    """A row for each item, and the steps of LeNet-5 per second that its hours are estimated from."""
    speed = steps_per_second("lenet5", request.workers)
    samples = {entry.name: entry.n_train or 0 for entry in catalogue(request.data)}
    return [_row(item, replace(request, play=False), samples, speed) for item in items()], speed


def _row(item: Item, request: Request, samples: Mapping[str, int], speed: float) -> dict[str, Any]:
    lacking = missing(item, request.scale, request.data)
    here = [column for column in item.columns if column not in lacking]
    runs, trials = _asked(item, here, request)
    left = [run for run in (*runs, *trials) if ended(run, request.runs) is None]
    return {
        "number": item.number,
        "name": item.name,
        "title": item.title,
        "paper": item.paper,
        "kind": item.kind,
        "needs": sorted({name for column in item.columns for name in wanted(item, column, request.scale)}),
        "data": _data(item, here),
        "missing": lacking,
        "runs": len(runs),
        "trials": len(trials),
        "left": len(left),
        "rounds": sum(run.schedule.rounds for run in (*runs, *trials)),
        "hours": sum(_steps(run, samples) for run in left) / speed / 3600 if runs else None,
    }


def _asked(item: Item, columns: list[str], request: Request) -> tuple[list[Run], list[Run]]:
    """The runs of an item, and the short ones by which they are tuned."""
    plans = [column_plan(item, column, request) for column in columns] if item.trains else []
    runs = [one.run for plan in plans for one in (*plan.ready, *plan.waiting)]
    return runs, [trial.run for plan in plans for trial in plan.tried]


def _steps(run: Run, samples: Mapping[str, int]) -> int:
    return steps(run, run.data.samples or samples.get(run.data.name, 0))


def _data(item: Item, here: list[str]) -> str:
    if item.of:
        return f"runs of {', '.join(item.of)}"
    return f"{len(here)} of {len(item.columns)}" if item.columns else "none needed"
