"""All items with the data they need, whether these are here, and an estimate of the time from a measured speed."""

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np

from pacfl import algorithms
from pacfl.data import catalogue
from pacfl.experiment.config import Run
from pacfl.federation.client_side import ClientIndices, Pool, Setup
from pacfl.federation.local import LocalBackend
from pacfl.learning.client_context import LocalTraining, Samples
from pacfl.learning.model import as_model
from pacfl.learning.nets import NETS
from pacfl.learning.randomness import count_steps
from pacfl.reproduce.items import Item, items, missing, needed
from pacfl.reproduce.making import Request, column_plan
from pacfl.reproduce.missing_runs import stored_result

MEASURED_CLIENTS: Final = 10
MEASURED_SAMPLES: Final = 500


def listed(request: Request) -> tuple[list[dict[str, Any]], float]:
    """A row for each item, and the steps of LeNet-5 per second that its hours are estimated from."""
    speed = steps_per_second("lenet5", request.workers)
    samples = {entry.name: entry.n_train or 0 for entry in catalogue(request.data)}
    return [_row(item, replace(request, run=False), samples, speed) for item in items()], speed


def _row(item: Item, request: Request, samples: Mapping[str, int], speed: float) -> dict[str, Any]:
    lacking = missing(item, request.scale, request.data)
    here = [column for column in item.columns if column not in lacking]
    runs, trials = _planned(item, here, request)
    left = [run for run in (*runs, *trials) if stored_result(run, request.runs) is None]
    return {
        "number": item.number,
        "name": item.name,
        "title": item.title,
        "paper": item.paper,
        "kind": item.kind,
        "needs": sorted({name for column in item.columns for name in needed(item, column, request.scale)}),
        "data": _data(item, here),
        "missing": lacking,
        "runs": len(runs),
        "trials": len(trials),
        "left": len(left),
        "rounds": sum(run.schedule.rounds for run in (*runs, *trials)),
        "hours": sum(_steps(run, samples) for run in left) / speed / 3600 if runs else None,
    }


def _planned(item: Item, columns: list[str], request: Request) -> tuple[list[Run], list[Run]]:
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


def steps(run: Run, n_train: int) -> int:
    """Local steps of a run on so many training samples, the final personalisation of all clients included."""
    clients = run.data.clients
    founders = clients - run.schedule.newcomers
    each = int(run.data.scheme.get("size", n_train // clients))
    local_steps = count_steps(each, run.learning.epochs, run.learning.batch_size)
    sampled = max(round(run.schedule.participation * founders), 1)
    return (run.schedule.rounds * sampled + clients) * local_steps


def steps_per_second(model: str, workers: int) -> float:
    """Steps of a model on 3 × 32 × 32 images in batches of ten, measured now."""
    rng = np.random.default_rng(0)
    n = MEASURED_CLIENTS * MEASURED_SAMPLES
    x = rng.standard_normal((n, 3, 32, 32), dtype=np.float32)
    samples = Samples(x, rng.integers(10, size=n))
    rows = np.split(np.arange(n), MEASURED_CLIENTS)
    pool = Pool(samples, samples, x, tuple(ClientIndices(part, part) for part in rows))
    fitted = as_model(lambda: NETS[model]((3, 32, 32), 10), 0)
    learning = LocalTraining(epochs=1)
    setup = Setup(algorithms.build("fedavg"), fitted, pool, learning, 0, engine="auto")
    with LocalBackend(workers).connect(setup) as backend:
        downloads = {c: {"w": fitted.initial} for c in range(MEASURED_CLIENTS)}
        backend.train(0, downloads, frozenset())  # compiled on first use
        started = time.perf_counter()
        backend.train(1, downloads, frozenset())
        spent = time.perf_counter() - started
    return MEASURED_CLIENTS * count_steps(MEASURED_SAMPLES, 1, learning.batch_size) / spent
