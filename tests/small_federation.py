"""A small federation of digits in two domains, every algorithm with settings that show, and runs to compare."""

import dataclasses
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import nn

from pacfl import algorithms
from pacfl.algorithms import FedBN, build
from pacfl.data import digits, normalised
from pacfl.federation.algorithm import Algorithm
from pacfl.federation.client_side import ClientIndices, ClientSide, Pool, Setup
from pacfl.federation.local import LocalBackend, LocalClients
from pacfl.federation.rounds import Round, rounds
from pacfl.federation.schedule import Schedule, round_plans
from pacfl.learning.client_context import LocalTraining, Samples
from pacfl.learning.model import Model, as_model
from pacfl.learning.nets import mlp

torch.set_num_threads(1)  # as in every run, with backend or without

SEED = 3
LEARNING = LocalTraining(epochs=1, batch_size=8, lr=0.1, momentum=0.5)

# Settings that take effect within a few rounds: CFL splits whatever it may, PACFL cuts at given degrees
LIVELY: Mapping[str, Mapping[str, Any]] = {
    "fedavg-ft": {"epochs": 3},
    "fedprox": {"mu": 0.5},
    "ditto": {"lam": 0.5},
    "pfedme": {"lam": 1.0, "eta": 0.5, "inner_steps": 3, "beta": 0.9},
    "fedala": {"eta": 50.0},
    "fedbabu": {"epochs": 2},
    "per-fedavg": {"alpha": 0.05},
    "lg-fedavg": {"shared_layers": 1},
    "cfl": {"eps1": 1e9, "eps2": 0.0, "first_split": 1},
    "pacfl": {"threshold": 12.0, "levels": "none"},
    "flexcfl": {"inter_group_lr": 0.1},
    "fedem": {"clusters": 2},
    "feddag-clusters": {"coordinates": 0.5},
    "fedrc": {"clusters": 2},
    "flis": {"inputs": 100},
}

# Those that train any net. FedBN needs normalisation: `model("fedbn")` has it
NAMES = tuple(name for name in algorithms.NAMES if name != "fedbn")

# Those whose shared models have a label prior that clients can correct
CORRECTED = tuple(name for name in NAMES if build(name).no_label_prior() is None)


def lively(name: str) -> Algorithm:
    """An algorithm by name, with settings under which it differs from all others, and no label prior."""
    return build(name, **LIVELY.get(name, {}), label_prior=False)


@cache
def model(name: str = "") -> Model:
    """A net of 610 weights in two layers; for FedBN with batch normalisation between them."""

    def net() -> nn.Module:
        flatten, first, *rest = mlp((1, 8, 8), 10, hidden=8).children()
        return nn.Sequential(flatten, first, *([nn.BatchNorm1d(8)] if name == "fedbn" else []), *rest)

    return as_model(net, SEED)


def model_of(algorithm: Algorithm) -> Model:
    """A net that an algorithm trains."""
    return model("fedbn" if isinstance(algorithm, FedBN) else "")


@cache
def pool(domains: tuple[str, ...] = ("upright", "negative"), sizes: tuple[int, ...] = (21, 34, 55)) -> Pool:
    """A client of each size for every domain; clients also differ in classes, and are tested on their whole domain."""
    dataset = digits(domains)
    scaled = normalised(dataset)
    rng = np.random.default_rng(SEED)
    indices = []
    for domain in range(len(domains)):
        members = np.flatnonzero(dataset.source_train == domain)
        test = np.flatnonzero(dataset.source_test == domain)[::4]
        for i, size in enumerate(sizes):
            skewed = members[dataset.y_train[members] != i]
            indices.append(ClientIndices(np.sort(rng.choice(skewed, size, replace=False)), test))
    return Pool(
        Samples(scaled.x_train[:, None], scaled.y_train),
        Samples(scaled.x_test[:, None], scaled.y_test),
        dataset.x_train,
        tuple(indices),
    )


@cache
def two_groups(n_clients: int = 8, size: int = 80) -> Pool:
    """Clients with an even number have the digits as they are; to the others, every digit is the fifth after it."""
    dataset = digits(("upright",))
    x = normalised(dataset).x_train[:, None]
    rows = np.random.default_rng(0).permutation(len(x))[: n_clients * size].reshape(n_clients, size)
    y = dataset.y_train.copy()
    y[rows[1::2]] = (y[rows[1::2]] + 5) % 10
    clients = tuple(ClientIndices(np.sort(own), np.sort(own)[:20]) for own in rows)
    return Pool(Samples(x, y), Samples(x, y), dataset.x_train, clients)


def side(algorithm: Algorithm, clients: Pool | None = None, learning: LocalTraining = LEARNING) -> ClientSide:
    """The client half of an algorithm."""
    return ClientSide(Setup(algorithm, model_of(algorithm), clients or pool(), learning, SEED))


def local(
    algorithm: Algorithm,
    own_model: Model,
    clients: Pool,
    learning: LocalTraining = LEARNING,
    seed: int = SEED,
    workers: int = 1,
) -> AbstractContextManager[LocalClients]:
    """The clients of a small federation on this machine."""
    return LocalBackend(workers).connect(Setup(algorithm, own_model, clients, learning, seed))


def run_rounds(
    algorithm: Algorithm,
    schedule: Schedule,
    clients: Pool | None = None,
    learning: LocalTraining = LEARNING,
    workers: int = 1,
) -> list[Round]:
    """All rounds of a run."""
    clients = clients or pool()
    own = model_of(algorithm)
    with local(algorithm, own, clients, learning, SEED, workers) as connected:
        plans = round_plans(schedule, len(clients.client_indices), SEED)
        return list(rounds(algorithm, connected, algorithm.init_server(own), plans))


def same(a: Any, b: Any) -> bool:
    """Whether two values are equal to the last bit, however arrays are nested in them."""
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return (
            isinstance(a, np.ndarray)
            and isinstance(b, np.ndarray)
            and a.dtype == b.dtype
            and a.shape == b.shape
            and a.tobytes() == b.tobytes()
        )
    if dataclasses.is_dataclass(a) and not isinstance(a, type):
        names = [f.name for f in dataclasses.fields(a)]
        return type(a) is type(b) and all(same(getattr(a, name), getattr(b, name)) for name in names)
    if isinstance(a, Mapping):
        return isinstance(b, Mapping) and list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, Sequence) and not isinstance(a, str):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    return bool(a == b) and type(a) is type(b)


def arrays_in(value: Any) -> list[np.ndarray]:
    """Every array that a value holds."""
    if isinstance(value, np.ndarray):
        return [value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [array for f in dataclasses.fields(value) for array in arrays_in(getattr(value, f.name))]
    if isinstance(value, Mapping):
        return [array for part in value.values() for array in arrays_in(part)]
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [array for part in value for array in arrays_in(part)]
    return []
