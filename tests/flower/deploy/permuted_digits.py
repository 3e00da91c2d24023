"""Four sites with different samples of the same digits; those at odd partitions number the classes otherwise."""

import numpy as np
from flwr.app import Context
from torch import nn

from pacfl.data import digits
from pacfl.flower.site import Site
from pacfl.learning.nets import mlp
from pacfl.learning.randomness import stream

SITES = 4
PERMUTED = np.array([3, 4, 5, 6, 7, 8, 9, 0, 1, 2])


def load_data(context: Context) -> Site:
    partition = int(str(context.node_config["partition-id"]))
    dataset = digits(("upright",))
    own = np.sort(np.array_split(stream(0, "digits").permutation(len(dataset.y_train)), SITES)[partition])
    y_train, y_test = dataset.y_train[own], dataset.y_test
    if partition % 2:
        y_train, y_test = PERMUTED[y_train], PERMUTED[y_test]
    x_train, x_test = (x[:, None].astype(np.float32) / 255 for x in (dataset.x_train[own], dataset.x_test))
    return Site(x_train, y_train, x_test, y_test, raw=dataset.x_train[own])


def build_model() -> nn.Module:
    return mlp((1, 8, 8), 10, hidden=32)
