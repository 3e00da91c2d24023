"""What a user brings: data and a model, in two functions of one module.

load_data(context) -> Site    the data at this client; context.node_config has what its operator set
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

from pacfl import algorithms
from pacfl.experiment.config import Run
from pacfl.federation.client_side import ClientIndices, ClientSide, Pool, Setup
from pacfl.federation.message import ClientId
from pacfl.flower import settings
from pacfl.learning.client_context import Samples
from pacfl.learning.model import Model, as_model

DEFAULT_MEMORY = "~/.pacfl/memory"


@dataclass(frozen=True, eq=False)
class Site:
    """One client's data."""

    x_train: NDArray[Any]  # (n, ...) as the model takes them: float32, images channels first
    y_train: NDArray[Any]  # (n,) classes from 0
    x_test: NDArray[Any]
    y_test: NDArray[Any]
    raw: NDArray[Any] | None = None  # training samples for the signature, if it is not to be taken of x_train

    def pool(self, client: ClientId) -> Pool:
        """As the client half of an algorithm wants it: this client is the only one here, whatever its number."""
        train, test = _samples(self.x_train, self.y_train, "train"), _samples(self.x_test, self.y_test, "test")
        own = ClientIndices(np.arange(len(train.y)), np.arange(len(test.y)))
        raw = train.x if self.raw is None else np.asarray(self.raw)
        if len(raw) != len(train.y):
            raise ValueError(f"load_data gave {len(train.y)} training samples but {len(raw)} raw ones")
        return Pool(train, test, raw, (own,) * (client + 1))


def home(context: Context, federation: str, client: ClientId) -> tuple[ClientSide, Path]:  # noqa: ARG001
    """The client half of the algorithm that the run asks for, and where this client remembers."""
    asked, run = settings.read(context.run_config)
    site = functions(asked.task)[0](context)
    if not isinstance(site, Site):
        raise TypeError(f"load_data of {asked.task} must return a Site, got {type(site).__name__}")
    model = model_of(asked.task, run)
    memory = Path(str(context.node_config.get("memory", DEFAULT_MEMORY))).expanduser()
    pool = site.pool(client)
    # A process that lives for one message does not pay for compiling, unless it is told to
    engine = "eager" if run.engine == "auto" else run.engine
    algorithm = algorithms.build(**run.algorithm)
    return ClientSide(Setup(algorithm, model, pool, run.learning, run.seed, run.device, engine)), memory


def model_of(task: str, run: Run) -> Model:
    """The user's network as a function of one vector; its start is drawn by the seed, so all draw the same."""
    return as_model(functions(task)[1], run.seed)


def functions(task: str) -> tuple[Callable[[Context], Site], Callable[[], nn.Module]]:
    """The two functions of a user's module."""
    module = importlib.import_module(task)
    for name in ("load_data", "build_model"):
        if not callable(getattr(module, name, None)):
            raise ValueError(f"{task} must have a function {name}; docs/deployment.md shows one")
    return module.load_data, module.build_model


def _samples(x: NDArray[Any], y: NDArray[Any], what: str) -> Samples:
    x, y = np.asarray(x, dtype=np.float32), np.asarray(y, dtype=np.int64)
    if len(x) != len(y):
        raise ValueError(f"load_data gave {len(x)} {what} samples with {len(y)} classes")
    if what == "train" and not len(x):
        raise ValueError("load_data gave no training samples: this client has nothing to federate with")
    return Samples(x, y)
