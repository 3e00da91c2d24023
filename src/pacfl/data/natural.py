"""Whose the samples are, in data that were collected by several clients: hospitals, stores, people."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pacfl.errors import DataError

Indices = NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class NaturalClients:
    """The names of the clients, and for each sample the position of its client's name.

    groups: (n,) of training samples that depend on each other, such as those of one recording or one patient.
    """

    names: tuple[str, ...]
    train: Indices
    test: Indices
    groups: Indices | None = None

    def rows(self, train: Indices, test: Indices) -> "NaturalClients":
        """The same clients with some of the samples only."""
        groups = None if self.groups is None else self.groups[train]
        return NaturalClients(self.names, self.train[train], self.test[test], groups)


def natural_clients(train: ArrayLike, test: ArrayLike, groups: ArrayLike | None = None) -> NaturalClients:
    """From the name of each sample's client, and of its group if samples depend on each other.

    >>> natural_clients(["a", "b", "a"], ["b"]).train.tolist()
    [0, 1, 0]
    """
    own = np.asarray(train), np.asarray(test)
    if any(array.ndim != 1 for array in own):
        raise DataError(f"clients must be one name for each sample, got shapes {own[0].shape} and {own[1].shape}")
    names, at = np.unique(np.concatenate(own), return_inverse=True)
    grouped = None if groups is None else np.unique(np.asarray(groups), return_inverse=True)[1]
    return NaturalClients(tuple(map(str, names.tolist())), at[: len(own[0])], at[len(own[0]) :], grouped)


def check_natural(name: str, natural: NaturalClients, n_train: int, n_test: int) -> None:
    """Refuse clients that are not those of n_train and n_test samples."""
    parts: Sequence[tuple[str, Indices, int]] = (
        ("training", natural.train, n_train),
        ("test", natural.test, n_test),
        *([] if natural.groups is None else [("grouped training", natural.groups, n_train)]),
    )
    for what, indices, n in parts:
        if indices.shape != (n,):
            raise DataError(f"{name}: has {n} samples and clients of {indices.shape} {what} samples; give one for each")
    for what, indices in (("training", natural.train), ("test", natural.test)):
        if len(indices) and not (indices.min() >= 0 and indices.max() < len(natural.names)):
            raise DataError(f"{name}: clients of {what} samples must lie in 0..{len(natural.names) - 1}")
