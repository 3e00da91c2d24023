"""An experiment from Python: the user's own arrays, module and algorithm, nothing stored."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from torch import nn

from pacfl.data import Dataset, Given, Partition, from_arrays, partition
from pacfl.errors import ModelError
from pacfl.experiment import summary
from pacfl.experiment.run import assemble
from pacfl.federation.algorithm import Algorithm
from pacfl.federation.local import LocalBackend
from pacfl.federation.schedule import Schedule
from pacfl.learning.client_context import LocalTraining

Arrays = tuple[ArrayLike, ArrayLike, ArrayLike, ArrayLike]  # x_train, y_train, x_test, y_test


def federate(
    dataset: Dataset,
    divided: Partition,
    module: Callable[[], nn.Module],
    algorithm: Algorithm,
    learning: LocalTraining | None = None,
    schedule: Schedule | None = None,
    *,
    seed: int = 0,
    workers: int = 1,
    device: str = "cpu",
) -> Iterator[dict[str, Any]]:
    """Run an experiment, yielding the record of every round; the last one is its result.

    dataset and divided: from `from_clients`, or from `load` or `from_arrays` and `partition`.
    module: a function or class that builds the module when it is called; it gets images as (n, channels, h, w).
    """
    if isinstance(module, nn.Module):
        raise ModelError("module must be a function that builds it, got a module; write lambda: nn.Sequential(...)")
    schedule = schedule or Schedule()
    experiment = assemble(
        dataset, divided, lambda _: module(), algorithm, learning or LocalTraining(), schedule, seed, device
    )
    records = []
    with LocalBackend(workers).connect(experiment.setup) as clients:
        for finished in experiment.rounds(clients, {}):
            records.append(experiment.record(finished))
            yield records[-1]
    yield summary.result(records, schedule.rounds)


def from_clients(clients: Sequence[Arrays]) -> tuple[Dataset, Partition]:
    """The data of clients that bring their own: for each x_train, y_train, x_test and y_test."""
    arrays = [[np.asarray(array) for array in four] for four in clients]
    dataset = from_arrays(*(np.concatenate(parts) for parts in zip(*arrays, strict=True)))  # type: ignore[arg-type]  # four
    given = Given(_ranges([len(four[1]) for four in arrays]), _ranges([len(four[3]) for four in arrays]))
    return dataset, partition(dataset, given, len(clients), np.random.default_rng())  # which draws nothing


def _ranges(sizes: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    ends = np.cumsum(sizes).tolist()
    return tuple(tuple(range(end - n, end)) for end, n in zip(ends, sizes, strict=True))
