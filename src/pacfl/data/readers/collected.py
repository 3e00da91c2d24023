"""Data that clients collected, as a reader finds them -> a data set for training."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pacfl.data.dataset import Dataset, Flags, from_arrays
from pacfl.data.natural import natural_clients
from pacfl.features.description import describe
from pacfl.features.merging import merged
from pacfl.features.schema import Encoded
from pacfl.features.splitting import rows_for_testing

Columns = Mapping[str, NDArray[Any]]  # name -> (n,) numbers, NaN where missing, or text, empty where missing


@dataclass(frozen=True, eq=False)
class Collected:
    """Samples with their targets and clients, and which are for testing.

    x: the columns of a table, or (n, steps, channels) of signals, or what computes features of text, or pixels.
    groups: (n,) of samples that depend on each other; all of a group are for training, or all for testing.
    """

    x: Columns | NDArray[Any] | Callable[[], NDArray[Any]]
    y: NDArray[Any]
    client: NDArray[Any]
    test: Flags
    groups: NDArray[Any] | None = None

    def dataset(self, name: str, n_classes: int) -> Dataset:
        """The data set; columns and channels are scaled by the training samples of all clients."""
        train, columns = ~self.test, None
        if isinstance(self.x, Mapping):
            x, columns = encoded(self.x, self.client, train)
        else:
            x = self.x() if callable(self.x) else _scaled(self.x, train)
        groups = None if self.groups is None else self.groups[train]
        natural = natural_clients(self.client[train], self.client[self.test], groups)
        halves = x[train], self.y[train], x[self.test], self.y[self.test]
        return from_arrays(*halves, name=name, n_classes=n_classes or None, natural=natural, columns=columns)


Reader = Callable[[Sequence[Path]], Collected]


def count(reader: Reader, paths: Sequence[Path]) -> tuple[int, int]:
    """Numbers of training and test samples; files that have not changed are not read again."""
    return _count(reader, tuple((path, path.stat().st_mtime_ns) for path in paths))


@lru_cache(maxsize=32)
def _count(reader: Reader, files: tuple[tuple[Path, int], ...]) -> tuple[int, int]:
    test = reader([path for path, _ in files]).test
    return int((~test).sum()), int(test.sum())


def read(reader: Reader, name: str, paths: Sequence[Path], n_classes: int) -> Dataset:
    """The data set that a reader collects from its files."""
    return reader(paths).dataset(name, n_classes)


def enough(client: NDArray[Any], least: int) -> Flags:
    """The samples of clients that have at least so many."""
    _, at, sizes = np.unique(client, return_inverse=True, return_counts=True)
    return np.asarray(sizes[at] >= least)


def every_fifth(client: NDArray[Any], groups: NDArray[Any] | None = None) -> Flags:
    """Every fifth sample of a client is for testing, or every fifth of its groups, in the order of the file."""
    test = np.zeros(len(client), dtype=np.bool_)
    for name in np.unique(client):
        own = np.flatnonzero(client == name)
        test[own] = rows_for_testing(len(own), None if groups is None else groups[own])
    return test


def last_part(client: NDArray[Any], time: NDArray[Any], share: float = 0.2) -> Flags:
    """The last of each client's times are for testing: what comes later is predicted from what came before."""
    test = np.zeros(len(client), dtype=np.bool_)
    for name in np.unique(client):
        own = np.flatnonzero(client == name)
        times = np.unique(time[own])
        test[own] = time[own] >= times[min(len(times) - 1, round(len(times) * (1 - share)))]
    return test


def encoded(columns: Columns, client: NDArray[Any], train: Flags) -> Encoded:
    """Columns as numbers, by the schema that the clients agree on from their training samples."""
    import pyarrow

    arrays = {name: pyarrow.array(column, mask=_missing(column)) for name, column in columns.items()}
    table = pyarrow.table(arrays)
    described = {name: describe(table.filter(train & (client == name))) for name in np.unique(client[train]).tolist()}
    return merged(described).encode(table)


def _missing(column: NDArray[Any]) -> Flags:
    return np.asarray(np.isnan(column) if column.dtype.kind == "f" else column == "")


def _scaled(x: NDArray[Any], train: Flags) -> NDArray[np.float32]:
    """Signals with every channel at mean 0 and standard deviation 1 over the training samples of all clients."""
    mean, std = x[train].mean(axis=(0, 1)), x[train].std(axis=(0, 1))
    scaled: NDArray[np.float32] = ((x - mean) / np.where(std > 0, std, 1.0)).astype(np.float32)
    return scaled
