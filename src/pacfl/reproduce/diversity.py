"""Weighted gradient diversity, recorded during the training of a real federation."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pacfl.experiment.config import Run, expand
from pacfl.experiment.execution import Experiment
from pacfl.experiment.run import build
from pacfl.federation.algorithm import State
from pacfl.federation.client_side import Pool
from pacfl.federation.local import LocalBackend
from pacfl.learning.client_context import Engine, Samples
from pacfl.learning.engines import build_engine
from pacfl.reproduce.items import Item
from pacfl.reproduce.making import Request

Array = NDArray[np.float64]


def weighted_diversity(gradients: Array) -> float:
    """|C| Σ|g_k|² / |Σ g_k|² of gradients (clients, d): 1 where all are equal, without end where they cancel.

    >>> weighted_diversity(np.array([[1.0, 0.0], [0.0, 1.0]]))
    2.0
    """
    together = float((gradients.sum(axis=0) ** 2).sum())
    return len(gradients) * float((gradients**2).sum()) / together if together else np.inf


def recorded(item: Item, column: str, request: Request) -> Iterator[dict[str, Any]]:
    """Diversity within and across clusters, for every method of the item."""
    for run in expand(item.table(column, request.scale)):
        for entry in _recorded(run, request):
            yield {"column": column, "method": run.label(), "hash": run.hash, **entry}


def _recorded(run: Run, request: Request) -> Iterator[dict[str, Any]]:
    """After one round, two, four, ..., and the last."""
    experiment = build(run, request.data)
    setup = experiment.setup
    engine = build_engine(run.engine, setup.model, setup.pool.train.x.shape[1:], run.device, run.learning)
    last = run.schedule.rounds
    wanted = {2**i for i in range(last.bit_length()) if 2**i <= last} | {last}
    with LocalBackend(request.workers).connect(setup) as clients:
        for finished in experiment.rounds(clients, {}):
            if finished.plan.sampled and finished.t + 1 in wanted:
                yield {"round": finished.t + 1, **_within_and_across(experiment, engine, finished.state)}


def _within_and_across(experiment: Experiment, engine: Engine, state: State) -> dict[str, Any]:
    clusters = sorted(set(state.cluster_of.values()))
    everybody = sorted(state.cluster_of)
    within, across = [], []
    for k in clusters:
        gradients = _gradients(experiment.setup.pool, engine, state.models[k], everybody)
        own = [i for i, client in enumerate(everybody) if state.cluster_of[client] == k]
        within.append(weighted_diversity(gradients[own]))
        across.append(weighted_diversity(gradients))
    return {"clusters": len(clusters), "within": float(np.mean(within)), "across": float(np.mean(across))}


def _gradients(pool: Pool, engine: Engine, w: NDArray[np.float32], clients: Sequence[int]) -> Array:
    """Gradient of every client's training loss at one model: (clients, d)."""
    rows = (pool.client_indices[client].train for client in clients)
    samples = (Samples(pool.train.x[at], pool.train.y[at]) for at in rows)
    return np.stack([engine.gradient(w, own) for own in samples]).astype(np.float64)
