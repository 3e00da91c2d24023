"""A run from its settings to its result: `build` assembles it, `resume` runs what is missing of it."""

import json
import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from torch import nn

from pacfl.data import (
    Dataset,
    Normalise,
    Partition,
    build_division,
    build_drift,
    data_folder,
    drawn_swap,
    grouped,
    load_dataset,
    normalised,
    partition,
    subsample,
    validation_split,
)
from pacfl.errors import ConfigError, DataError, MissingLibraryError, StoreError
from pacfl.experiment import description
from pacfl.experiment.config import Run, from_content
from pacfl.experiment.execution import Experiment, execute
from pacfl.experiment.models import LoadedModels, stored_models
from pacfl.experiment.store import RunFolder, data_digest, owned
from pacfl.federation.algorithm import Algorithm
from pacfl.federation.client_side import ClientIndices, Pool, Setup
from pacfl.federation.label_prior import settled
from pacfl.federation.local import LocalBackend
from pacfl.federation.rounds import Backend
from pacfl.federation.schedule import Schedule
from pacfl.learning import evaluation
from pacfl.learning.client_context import LocalTraining, Samples
from pacfl.learning.eager import check_device, check_outputs
from pacfl.learning.losses import LOSSES, Loss, find_loss
from pacfl.learning.model import BatchNorm, as_model
from pacfl.learning.nets import InputShape, architecture
from pacfl.learning.randomness import stream

log = logging.getLogger("pacfl")


def resume(
    run: Run,
    folder: RunFolder,
    data: Path | None = None,
    backend: Backend | None = None,
    *,
    rerun: bool = False,
    models: bool = True,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[dict[str, Any]]:
    """Run what is missing of a run, yielding the record of every round; the last one is its result.

    Of a finished run only the result is yielded, if its data are still the same; rerun: run it again.
    models: whether a run that finishes stores its models.
    """
    if not folder.is_tidy or rerun:
        with owned(folder):
            if rerun:
                folder.reset()
            if folder.result() is None:  # another process may have finished it meanwhile
                yield from _run(run, folder, data, backend or LocalBackend(), models, clock)
                return
            folder.tidy()
    _check_data(run, folder, data)
    yield folder.result() or {}


def _run(
    run: Run, folder: RunFolder, data: Path | None, backend: Backend, models: bool, clock: Callable[[], float]
) -> Iterator[dict[str, Any]]:
    started = clock()
    experiment = build(run, data)
    _check_data(run, folder, data)
    folder.describe("environment", description.environment())
    dataset, divided = experiment.dataset, experiment.partition
    folder.describe("clients", description.clients(dataset, divided, _source(run, data).digest, divided.names))
    identity = {"hash": run.hash, "algorithm": run.label(), "seed": run.seed}
    yield from execute(experiment, folder, identity, backend, models=models, clock=clock, started=started)


def load_models(folder: RunFolder, data: Path | None = None) -> tuple[Experiment, LoadedModels]:
    """A finished run's experiment and its models, its data read from files."""
    stored, run = stored_models(folder), from_content(folder.content() or {})
    _check_data(run, folder, data)
    experiment = build(run, data)
    return experiment, LoadedModels(stored, experiment.setup.model, experiment.setup)


def build(run: Run, data: Path | None = None) -> Experiment:
    """Everything that a run describes, its data read from files."""
    dataset, divided = divide(run, data)
    net = architecture(run.model.name, run.model.options)
    n_outputs = find_loss(run.learning.loss).n_outputs(dataset.y_train.shape[1:], dataset.n_classes)
    return assemble(
        dataset,
        divided,
        lambda shape: net(shape, n_outputs),
        run.build_algorithm(),
        run.learning,
        run.schedule,
        run.seed,
        run.device,
        run.engine,
        run.metrics,
        run.data.normalise,
        run.model.batch_norm,
        label_prior_required=run.algorithm.get("label_prior") is True,
    )


def assemble(
    dataset: Dataset,
    divided: Partition,
    net: Callable[[InputShape], nn.Module],
    algorithm: Algorithm,
    learning: LocalTraining,
    schedule: Schedule,
    seed: int,
    device: str = "cpu",
    engine: str = "auto",
    metrics: tuple[str, ...] = (),
    normalise: Normalise = "auto",
    batch_norm: BatchNorm = "averaged",
    *,
    label_prior_required: bool = False,
) -> Experiment:
    """Data, model, algorithm and schedule together, each checked against the others before anything is run.

    label_prior_required: refuse a label prior that cannot apply even if it is the algorithm's default.
    """
    check_device(device)
    loss = _fitting_loss(learning.loss, dataset)
    pool = prepare(dataset, divided, normalise)
    shape = _input_shape(pool.train.x)
    model = as_model(lambda: net(shape), seed, batch_norm)
    n_outputs = check_outputs(model.build(), pool.train, dataset.n_classes, loss)
    algorithm, note = settled(algorithm, model, learning.loss, pool.train.x, required=label_prior_required)
    if divided.swap is not None and divided.swap.round > schedule.rounds:
        raise ConfigError(
            f"[data] drift: round {divided.swap.round} is after the last of {schedule.rounds} rounds; drift earlier"
        )
    setup = Setup(algorithm, model, pool, learning, seed, device, engine, evaluation.normalise(metrics, loss.targets))
    setup.scored_by.check(n_outputs)
    experiment = Experiment(dataset, divided, setup, schedule, normalise, notes=(note,) if note else ())
    try:
        experiment.plans  # noqa: B018 - computed once, and checked
    except ConfigError as error:
        raise ConfigError(f"[schedule] {error}") from None
    return experiment


def _fitting_loss(name: str, dataset: Dataset) -> Loss:
    """The loss of a name, refused if it is for other targets than the data have. Any 0 and 1 can be labels."""
    loss = find_loss(name)
    if loss.targets not in (dataset.targets, "labels"):
        own = " or ".join(word for word, other in LOSSES.items() if other.targets == dataset.targets)
        convert = {"classes": "give integers (n,) if they are classes", "values": "give floats if they are values"}
        raise ConfigError(
            f"{dataset.name} has {dataset.targets}, the loss {name!r} is for {loss.targets}; use {own}, or "
            f"{convert[loss.targets]}"
        )
    return loss


def divide(run: Run, data: Path | None = None) -> tuple[Dataset, Partition]:
    """The data of the run, and what each client has of them."""
    seed = run.seed if run.data.seed is None else run.data.seed
    scheme, groups = build_division(run.data.scheme)
    dataset = _source(run, data)
    if run.data.samples:
        dataset = subsample(dataset, run.data.samples, stream(seed, "thinned"))
    divided = partition(
        dataset, scheme, run.data.clients, stream(seed, "partition"), run.data.test, stream(seed, "test")
    )
    if run.data.validation:
        dataset, divided = validation_split(dataset, divided, run.data.validation, stream(seed, "validation"))
    if groups is not None:
        dataset, divided = grouped(dataset, divided, groups, stream(seed, "groups"))
    if run.data.drift is not None:
        swap = drawn_swap(build_drift(run.data.drift), divided.true_cluster, stream(seed, "drift"))
        divided = replace(divided, swap=swap)
    return dataset, divided


# Most runs of an experiment share their data, and reading and normalising them may take longer than training
_normalised: WeakKeyDictionary[Dataset, dict[str, Dataset]] = WeakKeyDictionary()  # of data sets still in use


def _source(run: Run, data: Path | None) -> Dataset:
    """The data set of a run, before it is divided."""
    options: dict[str, Any] = dict(run.data.options or {})
    if run.data.sets:
        options["sets"] = run.data.sets
    if run.data.disjoint_labels is not None:
        options["disjoint_labels"] = run.data.disjoint_labels
    return _load(run.data.name, data_folder(data).resolve(), json.dumps(options, sort_keys=True))


@lru_cache(maxsize=1)
def _load(name: str, folder: Path, options: str) -> Dataset:
    return load_dataset(name, folder, **json.loads(options))


def _check_data(run: Run, folder: RunFolder, data: Path | None) -> None:
    """Refuse a run that was started on other data than those of its name now."""
    recorded = data_digest(folder)
    if recorded is None:
        return
    try:
        current = _source(run, data).digest
    except (DataError, MissingLibraryError) as error:
        log.warning("%s: the stored result was not checked against its data: %s", folder.path, error)
        return
    if current != recorded:
        raise StoreError(
            f"{folder.path}: was run on other data than {run.data.name} is now; give the folder with the data it was "
            "run on (--data), run it again on these (--rerun), or use another folder of runs (--runs)"
        )


def prepare(dataset: Dataset, divided: Partition, normalise: Normalise = "auto") -> Pool:
    """Samples as models take them: normalised, channels first; the raw pixels for signatures."""
    scaled = _normalised.get(dataset, {}).get(normalise) or normalised(dataset, normalise)
    if scaled is not dataset:  # which would never be forgotten
        _normalised.setdefault(dataset, {})[normalise] = scaled
    indices = tuple(
        ClientIndices(train, test, {kind: of[c] for kind, of in divided.other_tests.items()})
        for c, (train, test) in enumerate(zip(divided.train_indices, divided.test_indices, strict=True))
    )
    train = Samples(_channels_first(scaled.x_train), _as_model_targets(scaled.y_train))
    test = Samples(_channels_first(scaled.x_test), _as_model_targets(scaled.y_test))
    groups = None if dataset.natural is None else dataset.natural.groups
    return Pool(train, test, dataset.x_train, indices, groups, dataset.columns is not None, divided.swap)


def _as_model_targets(y: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Classes as integers; labels and values as float32."""
    return y if y.ndim == 1 else y.astype(np.float32, copy=False)


def _channels_first(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    if x.ndim == 3:
        return np.ascontiguousarray(x[:, None])
    return np.ascontiguousarray(np.moveaxis(x, -1, 1)) if x.ndim == 4 else x


def _input_shape(x: np.ndarray[Any, Any]) -> InputShape:
    shape = x.shape[1:]
    if len(shape) == 3:
        return shape[0], shape[1], shape[2]
    return 1, 1, int(np.prod(shape))
