"""A federation of sites that each have a table: the two functions that a user writes.

Each site has train.csv and test.csv in the folder that its operator names in site.config, as data="/srv/study". The
first column is the class, the others are 64 numbers from 0 to 255.
"""

from pathlib import Path

import numpy as np
from flwr.app import Context
from torch import nn

from pacfl.flower.site import Site


def load_data(context: Context) -> Site:
    """Rows of this site, scaled for the network; the signature is taken of the numbers as they are."""
    folder = Path(str(context.node_config["data"]))
    (x_train, y_train), (x_test, y_test) = (read(folder / name) for name in ("train.csv", "test.csv"))
    return Site(x_train / 255, y_train, x_test / 255, y_test, raw=x_train)


def build_model() -> nn.Module:
    """The network, the same at all sites."""
    return nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))


def read(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Numbers and classes of a table."""
    table = np.loadtxt(path, delimiter=",", dtype=np.float32, ndmin=2)
    return table[:, 1:], table[:, 0].astype(np.int64)
