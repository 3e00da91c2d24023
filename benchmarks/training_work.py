"""Nets and clients of `benchmarks.local_training`; samples are drawn around one image per class."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.flop_counter import FlopCounterMode

from pacfl.federation.client_side import ClientIndices, Pool
from pacfl.learning.client_context import LocalTraining, Samples
from pacfl.learning.model import Model, as_model
from pacfl.learning.nets import InputShape, ResNet9, lenet5, logistic, mlp

CLASSES = 10
LEARNING = LocalTraining(epochs=1, batch_size=10, lr=0.01, momentum=0.5)


def two_convolutions(shape: InputShape, n_classes: int) -> nn.Module:
    """The net of McMahan et al.: 32 and 64 channels, 512 hidden units; 1,663,370 weights for 1 × 28 × 28."""
    channels, height, width = shape
    return nn.Sequential(
        nn.Conv2d(channels, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(64 * (height // 4) * (width // 4), 512), nn.ReLU(), nn.Linear(512, n_classes),
    )  # fmt: skip


def small_convolutions(shape: InputShape, n_classes: int) -> nn.Module:
    """Two 3 × 3 convolutions of 32 and 64 channels, one pool, 128 hidden units."""
    channels, height, width = shape
    return nn.Sequential(
        nn.Conv2d(channels, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(64 * (height // 2 - 2) * (width // 2 - 2), 128), nn.ReLU(), nn.Linear(128, n_classes),
    )  # fmt: skip


@dataclass(frozen=True)
class Net:
    """A net for samples of one shape."""

    name: str
    build: Callable[[InputShape, int], nn.Module]
    shape: InputShape

    def module(self) -> nn.Module:
        """The module."""
        return self.build(self.shape, CLASSES)

    def model(self) -> Model:
        """The module as a function of a vector."""
        return as_model(self.module, 0)


NETS = {
    "lenet5-3x32x32": Net("LeNet-5, 3x32x32", lenet5, (3, 32, 32)),
    "lenet5-1x28x28": Net("LeNet-5, 1x28x28", lenet5, (1, 28, 28)),
    "mlp": Net("MLP 784-200-10", partial(mlp, hidden=200), (1, 28, 28)),
    "logistic": Net("logistic regression, 784", logistic, (1, 28, 28)),
    "cnn": Net("CNN 32-64-512, 1x28x28", two_convolutions, (1, 28, 28)),
    "small-cnn": Net("CNN 32-64-128, 3x32x32", small_convolutions, (3, 32, 32)),
    "resnet9": Net("ResNet-9, 3x32x32", ResNet9, (3, 32, 32)),
}


def clients(net: Net, n_clients: int, n_samples: int, n_test: int = 10, seed: int = 0) -> Pool:
    """A pool of clients with n_samples each."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(CLASSES, *net.shape)).astype(np.float32)

    def drawn(n: int) -> Samples:
        y = rng.integers(0, CLASSES, n)
        return Samples(0.5 * centres[y] + rng.standard_normal((n, *net.shape), dtype=np.float32), y)

    train, test = drawn(n_clients * n_samples), drawn(n_test)
    rows = np.arange(n_clients * n_samples).reshape(n_clients, n_samples)
    return Pool(train, test, train.x, tuple(ClientIndices(own, np.arange(n_test)) for own in rows))


def flops(net: Net) -> int:
    """Floating-point operations of one SGD step."""
    batch = LEARNING.batch_size
    x, y = torch.zeros(batch, *net.shape), torch.zeros(batch, dtype=torch.int64)
    with FlopCounterMode(display=False) as counter:
        cross_entropy(net.module()(x), y).backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
    return int(counter.get_total_flops())
