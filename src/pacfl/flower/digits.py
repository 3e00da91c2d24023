"""An example federation: handwritten digits, upright at even partitions and in negative at odd ones."""

import numpy as np
from flwr.app import Context
from torch import nn

from pacfl.data import digits
from pacfl.flower.site import Site
from pacfl.learning.nets import mlp
from pacfl.learning.randomness import stream

SAMPLES = 150


def load_data(context: Context) -> Site:
    """The digits of this client's partition."""
    partition = int(str(context.node_config.get("partition-id", 0)))
    dataset = digits(("upright", "negative"))
    members = np.flatnonzero(dataset.source_train == partition % 2)
    own = np.sort(stream(0, "digits", partition).choice(members, SAMPLES, replace=False))
    test = np.flatnonzero(dataset.source_test == partition % 2)
    x_train, x_test = (x[:, None].astype(np.float32) / 255 for x in (dataset.x_train[own], dataset.x_test[test]))
    return Site(x_train, dataset.y_train[own], x_test, dataset.y_test[test], raw=dataset.x_train[own])


def build_model() -> nn.Module:
    """A small network."""
    return mlp((1, 8, 8), 10, hidden=32)
