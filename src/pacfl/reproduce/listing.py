"""All items with what they need, whether it is here, and what they cost."""

from typing import Any

from pacfl.data import catalogue
from pacfl.reproduce.availability import missing, wanted
from pacfl.reproduce.cost import steps, steps_per_second
from pacfl.reproduce.items import Item, items
from pacfl.reproduce.making import Request
from pacfl.reproduce.planning import Planned, plan


def listed(request: Request) -> tuple[list[dict[str, Any]], float]:
    """A row for each item, and the steps of LeNet-5 per second that its hours are estimated from."""
    speed = steps_per_second("lenet5", request.workers)
    samples = {entry.name: entry.n_train or 0 for entry in catalogue(request.data)}
    return [_row(item, request, samples, speed) for item in items()], speed


def _row(item: Item, request: Request, samples: dict[str, int], speed: float) -> dict[str, Any]:
    lacking = missing(item, request.scale, request.data)
    here = [column for column in item.columns if column not in lacking]
    planned = (
        [one for column in here for one in plan(item, column, request.scale, (), request.n_seeds)]
        if item.trains
        else []
    )
    return {
        "number": item.number,
        "name": item.name,
        "title": item.title,
        "paper": item.paper,
        "kind": item.kind,
        "needs": sorted({name for column in item.columns for name in wanted(item, column, request.scale)}),
        "data": _data(item, here),
        "missing": lacking,
        "runs": len(planned),
        "rounds": sum(one.run.schedule.rounds for one in planned),
        "hours": sum(_steps(one, samples) for one in planned) / speed / 3600 if planned else None,
    }


def _steps(planned: Planned, samples: dict[str, int]) -> int:
    data = planned.run.data
    return steps(planned.run, data.samples or samples.get(data.name, 0))


def _data(item: Item, here: list[str]) -> str:
    if item.of:
        return f"runs of {', '.join(item.of)}"
    if not item.columns:
        return "none needed"
    return f"{len(here)} of {len(item.columns)}"
