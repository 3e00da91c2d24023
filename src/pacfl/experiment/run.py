"""The pipeline: the way of the data, from files to results, in one function."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from pacfl import algorithms
from pacfl.data import Dataset, Partition, build_scheme, load, normalised, partition
from pacfl.experiment.config import Run
from pacfl.experiment.store import RunFolder
from pacfl.experiment.summary import record
from pacfl.federation.client_side import Pool, Shard
from pacfl.federation.local import local
from pacfl.federation.rounds import rounds
from pacfl.federation.schedule import events
from pacfl.learning.eager import check_outputs
from pacfl.learning.model import Model, as_model
from pacfl.learning.nets import NETS, InputShape
from pacfl.learning.plan import stream
from pacfl.learning.task import Samples

SECONDS_BETWEEN_CHECKPOINTS = 10.0


def play(
    run: Run,
    folder: RunFolder,
    data_folder: Path | None = None,
    workers: int = 1,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[dict[str, Any]]:
    """Play a run, or go on with it, yielding the record of every round; the last one is its result."""
    dataset = load(run.data.name, data_folder, **_options(run))
    parts = partition(dataset, build_scheme(run.data.scheme), run.data.clients, stream(run.seed, "partition"))
    pool = prepared(dataset, parts)
    model = built(run, dataset, pool)
    algorithm = algorithms.build(**run.algorithm)
    plan = list(events(run.schedule, run.data.clients, run.seed))
    started = saved = clock()
    with local(algorithm, model, pool, run.learning, run.seed, workers) as backend:
        before = folder.load_checkpoint()
        if before and len(folder.records()) < before["round"]:
            before = None  # records were lost with the power: play them again
        state, start = (before["state"], before["round"]) if before else (algorithm.init_server(model), 0)
        if before:
            backend.memory, backend.last = before["memory"], before["last"]
        folder.keep_records(start)
        for played in rounds(algorithm, backend, state, plan, start):
            kept = record(played, parts.truth)
            folder.append(kept)
            if clock() - saved >= SECONDS_BETWEEN_CHECKPOINTS:
                folder.save_checkpoint(
                    {"round": played.t + 1, "state": played.state, "memory": backend.memory, "last": backend.last}
                )
                saved = clock()
            yield kept
    result = _result(run, folder.records(), clock() - started)
    folder.finish(result)
    yield result


def prepared(dataset: Dataset, parts: Partition) -> Pool:
    """Samples as models take them: normalised float32, channels first; the pixels as they are for signatures."""
    scaled = normalised(dataset)
    shards = tuple(Shard(a, b) for a, b in zip(parts.shards, parts.test_shards, strict=True))
    train = Samples(_channels_first(scaled.x_train), scaled.y_train)
    test = Samples(_channels_first(scaled.x_test), scaled.y_test)
    return Pool(train, test, dataset.x_train, shards)


def built(run: Run, dataset: Dataset, pool: Pool) -> Model:
    """The model of the run for these data."""
    shape = _input_shape(pool.train.x)

    def build() -> Any:
        return NETS[run.model.name](shape, dataset.n_classes)

    model = as_model(build, run.seed, dataset.n_classes)
    check_outputs(model.build(), pool.train, dataset.n_classes)
    return model


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


def _result(run: Run, records: list[dict[str, Any]], seconds: float) -> dict[str, Any]:
    last = records[-1]
    return {
        "hash": run.hash,
        "algorithm": run.label(),
        "seed": run.seed,
        "clusters": last["clusters"],
        "ari": last["ari"],
        "accuracy": last["accuracy"],
        "loss": last["loss"],
        "bytes_down": sum(r["bytes_down"] for r in records),
        "bytes_up": sum(r["bytes_up"] for r in records),
        "seconds": round(seconds, 3),
    }
