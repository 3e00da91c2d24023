"""Distributions that clients draw their samples from, simulated or the images of a set."""

from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from studies.scenarios import padded

Array = NDArray[np.float64]

SIMULATED: Final = ("offset", "mixture", "counts", "power", "heavy", "flat")
SETS: Final = ("fmnist", "cifar10", "usps", "mnist_m")
CONCENTRATION: Final = 0.5  # of Dirichlet class shares


class Population(NamedTuple):
    """One distribution of samples with `classes` classes."""

    kind: str  # one of SIMULATED or SETS
    features: int
    classes: int = 1
    folder: Path | None = None  # of the sets

    def draw(self, rng: np.random.Generator, n: int, shares: str = "balanced") -> tuple[Array, NDArray[np.intp]]:
        """Samples (n, features) and their classes (n,), independent of each other.

        Images are drawn with replacement: the set is the distribution.
        """
        classes = rng.choice(self.classes, n, p=class_shares(shares, self.classes, rng))
        if self.kind in SIMULATED:
            return _rolled(simulated(self.kind, rng, n, self.features), classes, self.classes), classes
        images, labels = _images(self.kind, self.features, self.folder)
        if self.classes == 1:
            return images[rng.integers(0, len(images), n)], classes
        rows = np.empty(n, dtype=np.intp)
        for c in np.unique(classes):
            members = np.flatnonzero(labels == c)
            rows[classes == c] = rng.choice(members, int((classes == c).sum()))
        return images[rows], classes


def class_shares(shares: str, classes: int, rng: np.random.Generator) -> Array:
    """Of one client: balanced, with a long tail, which all clients have, or its own by a Dirichlet distribution."""
    if shares == "Dirichlet":
        return rng.dirichlet(np.full(classes, CONCENTRATION))
    weights = 1 / np.arange(1.0, classes + 1) if shares == "long tail" else np.ones(classes)
    return np.asarray(weights / weights.sum())


def simulated(kind: str, rng: np.random.Generator, n: int, features: int) -> Array:
    """Samples of one distribution: (n, features)."""
    order = np.arange(1, features + 1)
    if kind == "counts":
        return rng.poisson(np.exp(np.sin(order / 7)), (n, features)).astype(np.float64)
    x = rng.standard_t(3, (n, features)) if kind == "heavy" else rng.standard_normal((n, features))
    match kind:
        case "offset":
            return x + np.linspace(0.2, 0.8, features)
        case "power":
            return np.asarray(x * order**-0.7)
        case "heavy":
            return np.asarray(x * order**-0.7 + 0.3)
        case "mixture":
            second = np.where(rng.random((n, 1)) < 0.5, 1, 0) * np.sin(order / 5)
            return np.asarray(x * 0.3 + second + np.cos(order / 9))
    return x  # flat: no direction leads


def _rolled(x: Array, classes: NDArray[np.intp], n_classes: int) -> Array:
    """Samples whose features are moved on by a part of the whole that depends on the class."""
    if n_classes == 1:
        return x
    features = x.shape[1]
    moved = (np.arange(features) - (classes * features // n_classes)[:, None]) % features
    return np.take_along_axis(x, moved, axis=1)


@cache
def _images(name: str, features: int, folder: Path | None) -> tuple[NDArray[Any], NDArray[np.intp]]:
    """Images of a set as rows of so many pixels, drawn at random from the half that varies most, and their classes."""
    if folder is None:
        raise ValueError(f"{name} is read from a folder of data sets; name it with --data")
    with np.load(folder / f"{name}.npz", allow_pickle=False) as arrays:
        images, labels = arrays["x_train"], arrays["y_train"].astype(np.intp)
    if features > images[0].size:
        images = padded(images)
    rows = images.reshape(len(images), -1)
    ranked = np.argsort(-rows.astype(np.float32).var(axis=0), kind="stable")
    some = ranked[: max(features, len(ranked) // 2)]
    return np.ascontiguousarray(rows[:, np.random.default_rng(features).permutation(some)[:features]]), labels
