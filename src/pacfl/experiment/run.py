"""The pipeline: the way of the data, from files to results."""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from torch import nn

from pacfl import algorithms
from pacfl.data import Dataset, Partition, build_scheme, load, normalised, partition, subsample, validation_split
from pacfl.data import data_folder as place_of_data
from pacfl.errors import ConfigError, StoreError
from pacfl.experiment import description, summary
from pacfl.experiment.config import Run
from pacfl.experiment.store import RunFolder, data_digest
from pacfl.federation.algorithm import Algorithm
from pacfl.federation.client_side import ClientIndices, Pool
from pacfl.federation.local import Local, local
from pacfl.federation.membership import PACFLState
from pacfl.federation.rounds import Round, rounds
from pacfl.federation.schedule import RoundPlan, Schedule, round_plans
from pacfl.learning.client_context import LocalTraining, Samples
from pacfl.learning.eager import check_device, check_outputs
from pacfl.learning.model import Model, as_model
from pacfl.learning.nets import NETS, InputShape
from pacfl.learning.randomness import stream

Reach = Callable[..., AbstractContextManager[Any]]  # ways to reach clients: local, or another of its form


@dataclass(frozen=True, eq=False)
class Federation:
    """All that is played: data divided among clients, a model, an algorithm and a plan."""

    dataset: Dataset
    parts: Partition
    pool: Pool
    model: Model
    algorithm: Algorithm
    learning: LocalTraining
    plan: tuple[RoundPlan, ...]
    seed: int

    def backend(
        self, workers: int, device: str, engine: str = "auto", reach: Reach = local
    ) -> AbstractContextManager[Local]:
        """A way to reach the clients, to be entered."""
        check_device(device)
        n = workers if device == "cpu" else 1  # a forked process cannot share its parent's accelerator
        return reach(self.algorithm, self.model, self.pool, self.learning, self.seed, n, device, engine)


def play(
    run: Run,
    folder: RunFolder,
    data_folder: Path | None = None,
    workers: int = 1,
    clock: Callable[[], float] = time.monotonic,
    reach: Reach = local,
) -> Iterator[dict[str, Any]]:
    """Play a run, or go on with it, yielding the record of every round; the last one is its result."""
    started = clock()
    federation = read(run, data_folder)
    if data_digest(folder) not in (None, federation.dataset.digest):
        raise StoreError(
            f"{folder.path}: the run was begun on other data than {run.data.name} is now; "
            "give it the folder with the data it began with (--data), or keep runs on these elsewhere (--runs)"
        )
    folder.describe("clients", description.clients(federation.dataset, federation.parts))
    before = folder.load_checkpoint() or {}
    start, spent = before.get("round", 0), before.get("seconds", 0.0)
    folder.keep_records(start)
    with federation.backend(workers, run.device, run.engine, reach) as backend:
        for played in going_on(federation, backend, before):
            kept = summary.record(played, federation.parts.true_cluster)
            _describe_clustering(folder, played)
            folder.append(kept)
            seconds = spent + clock() - started
            folder.save_checkpoint(_checkpoint(played, backend, seconds))
            yield kept
    told = summary.result(folder.records(), run.schedule.rounds)
    seconds = round(spent + clock() - started, 3)
    result = {"hash": run.hash, "algorithm": run.label(), "seed": run.seed, **told, "seconds": seconds}
    folder.finish(result)
    yield result


def read(run: Run, data_folder: Path | None) -> Federation:
    """The federation that a run describes, its data read from files."""
    dataset, parts = divided(run, data_folder)
    algorithm = algorithms.build(**run.algorithm)

    def architecture(shape: InputShape) -> nn.Module:
        return NETS[run.model.name](shape, dataset.n_classes)

    return assembled(dataset, parts, architecture, algorithm, run.learning, run.schedule, run.seed)


def assembled(
    dataset: Dataset,
    parts: Partition,
    architecture: Callable[[InputShape], nn.Module],
    algorithm: Algorithm,
    learning: LocalTraining,
    schedule: Schedule,
    seed: int,
) -> Federation:
    """Data, model, algorithm and plan together, each checked against the others before anything is played."""
    pool = prepared(dataset, parts)
    shape = _input_shape(pool.train.x)
    model = as_model(lambda: architecture(shape), seed)
    check_outputs(model.build(), pool.train, dataset.n_classes)
    try:
        plan = tuple(round_plans(schedule, parts.n_clients, seed))
    except ValueError as error:
        raise ConfigError(f"[schedule] {error}") from None
    return Federation(dataset, parts, pool, model, algorithm, learning, plan, seed)


def going_on(federation: Federation, backend: Local, before: dict[str, Any]) -> Iterator[Round]:
    """The rounds that are still to be played after a checkpoint, or all of them after none."""
    if before:
        backend.memory, backend.last = before["memory"], before["last"]
    state = before["state"] if before else federation.algorithm.init_server(federation.model)
    for played in rounds(federation.algorithm, backend, state, federation.plan, before.get("round", 0)):
        backend.forget(played.plan.gone)
        yield played


def divided(run: Run, data_folder: Path | None = None) -> tuple[Dataset, Partition]:
    """The data of the run, and what each client has of them."""
    dataset = _loaded(run.data.name, place_of_data(data_folder).resolve(), **_options(run))
    if run.data.samples:
        dataset = subsample(dataset, run.data.samples, stream(run.seed, "subsample"))
    parts = partition(dataset, build_scheme(run.data.scheme), run.data.clients, stream(run.seed, "partition"))
    if run.data.validation:
        return validation_split(dataset, parts, run.data.validation, stream(run.seed, "validation"))
    return dataset, parts


# Most runs of an experiment share their data, and reading and normalising them may take longer than playing
_loaded = lru_cache(maxsize=1)(load)
_normalised: WeakKeyDictionary[Dataset, Dataset] = WeakKeyDictionary()  # of data sets that somebody still holds


def prepared(dataset: Dataset, parts: Partition) -> Pool:
    """Samples as models take them: normalised float32, channels first; the pixels as they are for signatures."""
    if dataset not in _normalised:
        _normalised[dataset] = normalised(dataset)
    scaled = _normalised[dataset]
    shards = tuple(ClientIndices(a, b) for a, b in zip(parts.train_indices, parts.test_indices, strict=True))
    train = Samples(_channels_first(scaled.x_train), scaled.y_train)
    test = Samples(_channels_first(scaled.x_test), scaled.y_test)
    return Pool(train, test, dataset.x_train, shards)


def _checkpoint(played: Round, backend: Local, seconds: float) -> dict[str, Any]:
    clients = {"memory": backend.memory, "last": backend.last}
    return {"round": played.t + 1, "seconds": seconds, "state": played.state, **clients}


def _describe_clustering(folder: RunFolder, played: Round) -> None:
    """Whenever somebody came: what is decided then stays so until somebody else does."""
    if played.plan.joining and isinstance(played.state, PACFLState):
        found = description.clustering(played.state)
        if found is not None:
            folder.describe("clustering", found[0], **found[1])


def _options(run: Run) -> dict[str, Any]:
    options: dict[str, Any] = {"sets": run.data.sets} if run.data.sets else {}
    if run.data.disjoint_labels is not None:
        options["disjoint_labels"] = run.data.disjoint_labels
    return options


def _channels_first(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    if x.ndim == 3:
        return np.ascontiguousarray(x[:, None])
    return np.ascontiguousarray(np.moveaxis(x, -1, 1)) if x.ndim == 4 else x


def _input_shape(x: np.ndarray[Any, Any]) -> InputShape:
    shape = x.shape[1:]
    if len(shape) == 3:
        return shape[0], shape[1], shape[2]
    return 1, 1, int(np.prod(shape))
