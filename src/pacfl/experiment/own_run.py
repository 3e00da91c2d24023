"""A run from Python as plain values: what decides its result, and the hash by which the result is found."""

import hashlib
import inspect
import json
from collections.abc import Container, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, Final

import numpy as np
from torch import nn

from pacfl import plugins, settings
from pacfl.data import Dataset, Partition
from pacfl.errors import ConfigError
from pacfl.experiment.callbacks import EarlyStopping
from pacfl.experiment.execution import Experiment
from pacfl.experiment.store import FORMAT, PYTHON
from pacfl.experiment.summary import label
from pacfl.federation.algorithm import Algorithm
from pacfl.federation.client_side import Setup
from pacfl.learning.metrics import METRICS
from pacfl.learning.model import Model
from pacfl.learning.settings import LOSS_NAMES, OPTIMISER_NAMES

OWN: Final = "pacfl.algorithms."


@dataclass(frozen=True, eq=False)
class OwnRun:
    """An experiment whose data, model and algorithm were given from Python, and when it ends."""

    experiment: Experiment
    stopping: Sequence[EarlyStopping] = ()
    stored: bool = True  # whether its result is to be found again, so that all of its code must be known

    def content(self) -> dict[str, Any]:
        """Everything that decides the result, as plain values; data, model and own code by their digests."""
        return self._content

    @cached_property
    def _content(self) -> dict[str, Any]:
        setup, dataset, divided = self.experiment.setup, self.experiment.dataset, self.experiment.partition
        algorithm, code = described_algorithm(setup.algorithm, self.stored)
        code |= plugins.digests(_import_paths(setup)) | setup.algorithm.code()
        plain: dict[str, Any] = {
            "format": FORMAT,
            "origin": PYTHON,
            "seed": setup.seed,
            "data": {
                "name": dataset.name,
                "clients": divided.n_clients,
                "scheme": {"kind": "given"},
                "digest": divided_digest(dataset, divided),
            },
            "model": {"name": type(setup.model.build()).__name__, "digest": model_digest(setup.model)},
            "learning": settings.content(setup.learning),
            "schedule": settings.content(self.experiment.schedule),
            "algorithm": algorithm,
            "device": setup.device,
            "engine": setup.engine,
        }
        if divided.other_tests:
            plain["data"] = {**plain["data"], "test": divided.tests}
        if self.experiment.normalise != "auto":
            plain["data"] = {**plain["data"], "normalise": self.experiment.normalise}
        if setup.model.local.any():
            plain["model"] = {**plain["model"], "batch_norm": "local"}
        if aggregation := settings.content(setup.algorithm.aggregation):
            plain["aggregation"] = aggregation
        if setup.metrics:
            plain["metrics"] = setup.metrics
        if self.stopping:
            plain["stopping"] = [settings.content(rule) for rule in self.stopping]
        if code:
            plain["plugins"] = code
        try:
            written = json.dumps(plain, sort_keys=True, allow_nan=False, default=None if self.stored else repr)
            content: dict[str, Any] = json.loads(written)
        except (TypeError, ValueError) as error:
            raise ConfigError(
                f"the settings of the run cannot be stored ({error}); use numbers, strings and tuples of them as "
                f"fields of {type(setup.algorithm).__name__}, or runs=None"
            ) from None
        return content

    @cached_property
    def hash(self) -> str:
        """The name of this content."""
        return hashlib.sha256(json.dumps(self.content(), sort_keys=True).encode()).hexdigest()[:16]

    def identity(self) -> dict[str, Any]:
        """What a result begins with."""
        content = self.content()
        name = label(content["algorithm"], content.get("aggregation", {}))
        return {"hash": self.hash, "algorithm": name, "seed": content["seed"]}


def _import_paths(setup: Setup) -> list[str]:
    """Where the parts that are named come from, if they are not pacfl's own."""
    named: tuple[tuple[plugins.Kind, str, Container[str]], ...] = (
        ("losses", setup.learning.loss, LOSS_NAMES),
        ("optimisers", setup.learning.optimiser, OPTIMISER_NAMES),
        *(("metrics", name, METRICS) for name in setup.metrics),
    )
    paths = (plugins.import_path(kind, name) for kind, name, own in named if name not in own)
    return [path for path in paths if path is not None]


def described_algorithm(algorithm: Algorithm, strictly: bool = True) -> tuple[dict[str, Any], dict[str, str]]:
    """Its name and the fields that differ from their defaults, and the digest of its code if it is not pacfl's own.

    strictly: refuse code whose source is not known.
    """
    kind = type(algorithm)
    own = [f for f in fields(algorithm) if f.name != "aggregation"]
    given = {f.name: getattr(algorithm, f.name) for f in own if getattr(algorithm, f.name) != f.default}
    if kind.__module__.startswith(OWN):
        return {"name": kind.__module__.removeprefix(OWN).replace("_", "-"), **settings.content(given)}, {}
    path = f"{kind.__module__}:{kind.__qualname__}"
    importable = kind.__module__ != "__main__" and "<locals>" not in kind.__qualname__
    try:
        code = plugins.digests([path]) if importable else {kind.__qualname__: source_digest(kind)}
    except ConfigError:
        if strictly:
            raise
        code = {}
    return {"name": path if importable else kind.__name__, **settings.content(given)}, code


def source_digest(kind: type) -> str:
    """The SHA-256 of the source of a class that is in no module that could be imported."""
    try:
        return hashlib.sha256(inspect.getsource(kind).encode()).hexdigest()
    except (OSError, TypeError):
        raise ConfigError(
            f"the source of {kind.__name__} cannot be found, so that a stored result could not be found by it; define "
            "it in a file, or use runs=None"
        ) from None


def model_digest(model: Model) -> str:
    """Of the layers, of the source of those that are not torch's where it is known, and of how weights are drawn."""
    module = model.build()
    digest = hashlib.sha256(repr(module).encode())
    for kind in sorted({type(part) for part in module.modules()}, key=lambda kind: kind.__qualname__):
        if kind is nn.Module or not kind.__module__.startswith("torch."):
            digest.update(_source_if_known(kind).encode())
    digest.update(model.fresh(0).tobytes())  # not those of the run's own seed: runs with other seeds have this model
    return digest.hexdigest()[:32]


def _source_if_known(kind: type) -> str:
    try:
        return inspect.getsource(kind)
    except (OSError, TypeError):
        return kind.__qualname__


def divided_digest(dataset: Dataset, divided: Partition) -> str:
    """Of all samples and targets, and of whose they are."""
    digest = hashlib.blake2b(dataset.digest.encode(), digest_size=16)
    others = (indices for of_kind in divided.other_tests.values() for indices in of_kind)
    swap = () if divided.swap is None else ([divided.swap.round, divided.swap.reprofile], divided.swap.source)
    for indices in (*divided.train_indices, *divided.test_indices, *others, *swap):
        digest.update(f"{len(indices)} ".encode() + np.ascontiguousarray(indices, dtype=np.int64).tobytes())
    return digest.hexdigest()
