"""Do neighbouring samples depend on each other? Then random halves show less noise than there is."""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array

from pacfl.subspace.signature import as_labels, drawn, rows_of
from pacfl.subspace.sparse import coordinates, is_sparse
from pacfl.subspace.stored import StoredRows
from pacfl.subspace.units import as_groups, members_of

Array = NDArray[np.float64]

PERMUTATIONS: Final = 999  # independent samples pass for dependent in one case of a thousand
RUNS: Final = 8  # of consecutive samples, where there are too many
MOST_OF_RUN: Final = 64


class DependenceWarning(UserWarning):
    """Neighbouring samples depend on each other, and their groups were not given."""


@dataclass(frozen=True)
class Neighbours:
    """How similar samples are to those that follow them."""

    cosine: float  # mean over consecutive samples of a class, as seen from the mean of the class
    by_chance: float  # the same in random order
    squared: bool  # whether these are means of squared cosines, which stand out more
    dependent: bool  # whether they stand out more than in any of very many random orders


def neighbours(x: ArrayLike, labels: ArrayLike | None = None, groups: ArrayLike | None = None) -> Neighbours:
    """Compare each sample with the next one of its class, and with others of its class at random.

    x (n, ...), labels (n,). groups (n,): compare their means instead. Cosines find samples that resemble the one
    before; squared cosines also those that are its opposite, as in a swing. A permutation test of what stands out more:
    exact for any distribution, with one false alarm in a thousand data sets in random order within classes.
    """
    rows = rows_of(x)
    n = rows.shape[0]
    classes = None if labels is None else as_groups(as_labels(labels, n))
    units = None if groups is None else as_groups(groups, n)
    if units is not None and classes is not None:  # samples of one group and class
        units = as_groups(classes.astype(np.int64) * (int(units.max()) + 1) + units)
        of_samples, classes = classes, np.zeros(int(units.max()) + 1, dtype=np.intp)
        classes[units] = of_samples
    at = _runs(n if units is None else int(units.max()) + 1)
    chosen = at if classes is None else _in_order(classes, at)
    of = np.zeros(len(at), np.intp) if classes is None else classes[chosen]
    vectors = _centred(drawn(rows, chosen) if units is None else _means(rows, units, chosen), of)
    pairs = np.flatnonzero((np.diff(of) == 0) & (np.diff(at) == 1))
    if not len(pairs):
        return Neighbours(0.0, 0.0, squared=False, dependent=False)
    cosines = vectors @ vectors.T
    rng = np.random.default_rng(len(at))
    orders = [np.arange(len(at)), *(np.lexsort((rng.random(len(at)), of)) for _ in range(PERMUTATIONS))]
    found = np.array([cosines[order[pairs], order[pairs + 1]] for order in orders])  # the order of the data first
    means = np.stack([found.mean(axis=1), (found**2).mean(axis=1)])
    by_chance = means[:, 1:].mean(axis=1)
    spread = np.maximum(means.std(axis=1, keepdims=True), 1e-9)
    deviations = (means - means.mean(axis=1, keepdims=True)) / spread
    highest = deviations.max(axis=0)
    which = int(deviations[:, 0].argmax())
    dependent = bool((highest[1:] < highest[0] - 1e-6).all())
    return Neighbours(float(means[which, 0]), float(by_chance[which]), squared=which == 1, dependent=dependent)


def _in_order(classes: NDArray[np.integer[Any]], at: NDArray[np.intp]) -> NDArray[np.intp]:
    """Which samples come at some places if they are sorted by class: argsort(classes, stable)[at], at ascending."""
    found, start = [], 0
    for name in range(int(classes.max()) + 1):
        own = np.flatnonzero(classes == name)
        inside = at[(at >= start) & (at < start + len(own))] - start
        found.append(own[inside])
        start += len(own)
    return np.concatenate(found)


def _runs(n: int) -> NDArray[np.intp]:
    """Positions of all samples, or of a few runs of them, evenly spaced."""
    if n <= RUNS * MOST_OF_RUN:
        return np.arange(n)
    starts = np.linspace(0, n - MOST_OF_RUN, RUNS).astype(np.intp)
    return (starts[:, None] + np.arange(MOST_OF_RUN)).ravel()


def _centred(rows: Array, classes: NDArray[np.integer[Any]]) -> Array:
    """Differences from the mean of the class, of length 1, or 0 where there is none."""
    vectors = rows / max(float(np.abs(rows).max()), 1e-300)
    for name in np.unique(classes):
        vectors[classes == name] -= vectors[classes == name].mean(axis=0)
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.where(lengths > 1e-12, vectors / np.maximum(lengths, 1e-12), 0.0)


def _means(rows: Any, units: NDArray[np.integer[Any]], chosen: NDArray[np.intp]) -> Array:
    """The means of the samples of chosen units."""
    place = np.full(int(units.max()) + 1, -1)
    place[chosen] = np.arange(len(chosen))
    own = np.sort(np.concatenate(members_of(units, chosen)))
    at = place[units[own]]
    counts = np.bincount(at)
    if is_sparse(rows):
        return coordinates(
            csr_array((1 / counts[at], (at, np.arange(len(at)))), shape=(len(counts), len(at))) @ rows[own]
        )
    sums = np.zeros((len(counts), rows.shape[1]))
    if isinstance(rows, StoredRows):
        done = 0
        for block in rows[own].blocks("comparing neighbours"):
            np.add.at(sums, at[done : done + len(block)], block)
            done += len(block)
    else:
        np.add.at(sums, at, rows[own])
    return np.asarray(sums / counts[:, None])
