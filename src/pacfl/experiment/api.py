"""An experiment from Python: the user's own arrays, module and algorithm, nothing written down."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from torch import nn

from pacfl.data import Dataset, Given, partition
from pacfl.data.schemes import Scheme
from pacfl.experiment import summary
from pacfl.experiment.run import assembled, going_on
from pacfl.federation.algorithm import Algorithm
from pacfl.federation.schedule import Schedule
from pacfl.learning.model import ModelError
from pacfl.learning.plan import stream
from pacfl.learning.task import Learning


def federate(
    dataset: Dataset,
    clients: int | Sequence[ArrayLike],
    module: Callable[[], nn.Module],
    algorithm: Algorithm,
    learning: Learning | None = None,
    schedule: Schedule | None = None,
    *,
    scheme: Scheme | None = None,
    seed: int = 0,
    workers: int = 1,
    device: str = "cpu",
) -> Iterator[dict[str, Any]]:
    """Play an experiment, yielding the record of every round; the last one is its result.

    clients: for each its positions in the training data, or how many there are, and then a scheme divides the data.
    module: a function or class that builds the module when it is called; images come to it as (n, channels, h, w).
    """
    if isinstance(module, nn.Module):
        raise ModelError("module must be a function that builds it, got a module; write lambda: nn.Sequential(...)")
    n = clients if isinstance(clients, int) else len(clients)
    if (scheme is None) is isinstance(clients, int):
        raise ValueError("either give positions for each client, or a number of clients and a scheme that divides")
    if not isinstance(clients, int):
        scheme = Given(tuple(tuple(np.asarray(rows).tolist()) for rows in clients))
    parts = partition(dataset, scheme, n, stream(seed, "partition"))  # type: ignore[arg-type]  # one of the two is given
    schedule = schedule or Schedule()
    federation = assembled(dataset, parts, lambda _: module(), algorithm, learning or Learning(), schedule, seed)
    records = []
    with federation.backend(workers, device) as backend:
        for played in going_on(federation, backend, {}):
            records.append(summary.record(played, parts.truth))
            yield records[-1]
    yield summary.result(records, schedule.rounds)
