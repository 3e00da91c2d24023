"""How far will diabetes have progressed in a year? scikit-learn's embedded table, and a net with BatchNorm."""

from pathlib import Path

import numpy as np
from sklearn.datasets import load_diabetes
from torch import Tensor, nn

from pacfl import Dataset, from_arrays


def load(folder: Path) -> Dataset:  # noqa: ARG001 - pacfl passes the folder with data; this data set needs none
    """Ten measurements of 442 patients; the target is in units of 100 points. Every fifth patient is for testing."""
    x, y = load_diabetes(return_X_y=True, scaled=False)
    test = np.arange(len(y)) % 5 == 0
    y = y / 100
    return from_arrays(x[~test], y[~test], x[test], y[test], name="diabetes")


class Net(nn.Module):
    """One hidden layer with batch normalisation."""

    def __init__(self, shape: tuple[int, ...], n_values: int) -> None:
        """From measurements to one value."""
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(shape[-1], 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, n_values))

    def forward(self, x: Tensor) -> Tensor:
        """Values (n, 1) of measurements (n, 10)."""
        values: Tensor = self.layers(x)
        return values
