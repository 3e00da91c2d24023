"""The user's data and model: two functions in one module.

load_data(context) -> Site    the data of this client; context.node_config has the settings of its operator
build_model() -> nn.Module    the network, the same everywhere
"""

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Context
from numpy.typing import NDArray
from torch import nn

from pacfl.errors import ConfigError, DataError
from pacfl.experiment.config import Run
from pacfl.federation.client_side import ClientIndices, ClientSide, Pool, Setup
from pacfl.federation.label_prior import inapplicable, settled
from pacfl.federation.message import ClientId
from pacfl.flower import settings
from pacfl.learning.client_context import Samples
from pacfl.learning.losses import Targets, find_loss
from pacfl.learning.model import Model, as_model

DEFAULT_MEMORY = "~/.pacfl/memory"


@dataclass(frozen=True, eq=False)
class Site:
    """One client's data."""

    x_train: NDArray[Any]  # (n, ...) input of the model: float32, images channels first; integers if it embeds tokens
    y_train: NDArray[Any]  # (n,) classes from 0; labels or values, (n,) or (n, k), for a loss that is for them
    x_test: NDArray[Any]
    y_test: NDArray[Any]
    raw: NDArray[Any] | None = None  # training samples for the signature; None: x_train
    groups: NDArray[Any] | None = None  # (n,) of training samples that depend on each other; None: none do
    is_table: bool = False  # whether samples are rows of a table that a schema encoded: columns are compared too

    def pool(self, client: ClientId, targets: Targets = "classes", tokens: bool = False) -> Pool:
        """The pool of a client's side of an algorithm: this client is the only one in it, whatever its id.

        tokens: the model embeds its samples, so they stay integers.
        """
        train = _samples(self.x_train, self.y_train, "train", targets, tokens)
        test = _samples(self.x_test, self.y_test, "test", targets, tokens)
        own = ClientIndices(np.arange(len(train.y)), np.arange(len(test.y)))
        raw = train.x if self.raw is None else np.asarray(self.raw)
        if len(raw) != len(train.y):
            raise DataError(f"load_data returned {len(train.y)} training samples but {len(raw)} raw ones")
        groups = None if self.groups is None else np.asarray(self.groups)
        if groups is not None and groups.shape != (len(train.y),):
            raise DataError(f"load_data returned groups of shape {groups.shape} for {len(train.y)} training samples")
        if self.is_table and raw.ndim != 2:
            raise DataError(f"load_data returned a table whose rows have shape {raw.shape[1:]}; give (n, columns)")
        return Pool(train, test, raw, (own,) * (client + 1), groups, self.is_table)


def load_client(context: Context, federation: str, client: ClientId) -> tuple[ClientSide, Path]:  # noqa: ARG001
    """The client's side of the run's algorithm, and the folder of its memory."""
    deployment, run = settings.read(context.run_config)
    site = load_site(deployment.task, context)
    memory = Path(str(context.node_config.get("memory", DEFAULT_MEMORY))).expanduser()
    return client_side(site, deployment.task, run, client), memory


def load_site(task: str, context: Context) -> Site:
    """The data that the user's function returns for a context."""
    site = functions(task)[0](context)
    if not isinstance(site, Site):
        raise DataError(f"load_data of {task} must return a Site, got {type(site).__name__}")
    return site


def client_side(site: Site, task: str, run: Run, client: ClientId) -> ClientSide:
    """The client's side of a run's algorithm, for the data of one site."""
    model = load_model(task, run)
    tokens = any(isinstance(layer, nn.Embedding | nn.EmbeddingBag) for layer in model.build().modules())
    pool = site.pool(client, find_loss(run.learning.loss).targets, tokens)
    required = run.algorithm.get("label_prior") is True
    algorithm, _ = settled(run.build_algorithm(), model, run.learning.loss, required=required)
    if algorithm.label_prior and (why := inapplicable(model, run.learning.loss, pool.train.x)):
        raise ConfigError(f"label-prior: {why}; set algorithm.label-prior = false")  # the server expects class counts
    # Compiling does not pay in a process that handles one message
    engine = "eager" if run.engine == "auto" else run.engine
    setup = Setup(algorithm, model, pool, run.learning, run.seed, run.device, engine, run.metrics)
    return ClientSide(setup)


def load_model(task: str, run: Run) -> Model:
    """The user's network as a function of one vector; the seed determines its initial weights at all sites."""
    return as_model(functions(task)[1], run.seed, run.model.batch_norm)


def functions(task: str) -> tuple[Callable[[Context], Site], Callable[[], nn.Module]]:
    """The two functions of a user's module."""
    module = importlib.import_module(task)
    for name in ("load_data", "build_model"):
        if not callable(getattr(module, name, None)):
            raise ConfigError(f"{task} must have a function {name}; docs/own-data.md shows one")
    return module.load_data, module.build_model


def _samples(x: NDArray[Any], y: NDArray[Any], what: str, targets: Targets, tokens: bool) -> Samples:
    x, y = np.asarray(x, dtype=np.int64 if tokens else np.float32), np.asarray(y)
    if targets == "classes" and (y.astype(np.int64) != y).any():
        raise DataError(
            f"load_data returned {what} labels that are not integers, and learning.loss is for classes; number the "
            "classes from 0, or set learning.loss to squared-error for numbers"
        )
    y = y.astype(np.int64 if targets == "classes" else np.float32)
    if len(x) != len(y):
        raise DataError(f"load_data returned {len(x)} {what} samples with {len(y)} labels")
    if what == "train" and not len(x):
        raise DataError("load_data returned no training samples; a client needs at least one")
    return Samples(x, y)
