"""The clusters of clients that come later."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pacfl.subspace.hierarchy import LINKAGES, Labels, Linkage, check_proximity

Array = NDArray[np.float64]


@dataclass(frozen=True)
class MergeSuggestion:
    """A newcomer that is within the threshold of two old clusters: a suggestion to merge them."""

    newcomer: int
    clusters: tuple[int, int]
    distances: tuple[float, float]


@dataclass(frozen=True, eq=False)
class Assignment:
    """The clusters of newcomers. Old labels do not change."""

    labels: Labels  # (n + m,), old clients first
    opened: tuple[int, ...]  # clusters that did not exist before
    merge_suggestions: tuple[MergeSuggestion, ...]


def place(proximity: ArrayLike, labels: ArrayLike, threshold: float, linkage: Linkage = "average") -> Assignment:
    """A cluster for every newcomer: the nearest within the threshold, or a new one.

    proximity (n + m, n + m) with the newcomers last, or only the newcomers' rows of it (m, n + m), as `newcomer_rows`
    gives them; labels (n,) of the old clients. Ward's linkage needs all of it.

    The agglomeration continues from the old clusters: newcomers join them or each other, nearest first, until all
    clusters are further apart than the threshold. Two old clusters are never merged.

    >>> place([[0, 9, 1], [9, 0, 9], [1, 9, 0]], labels=[0, 1], threshold=5.0).labels
    array([0, 1, 0])
    """
    if linkage not in LINKAGES:
        raise ValueError(f"linkage must be one of {', '.join(LINKAGES)}, got {linkage!r}")
    table = np.asarray(proximity, dtype=np.float64)
    rows = _newcomers_of(table, np.size(labels))
    if np.isnan(threshold):
        raise ValueError(f"threshold must not be NaN, got {threshold!r}")
    given = np.atleast_1d(np.asarray(labels))
    n, m = given.size, rows.shape[1] - given.size
    if given.ndim != 1 or np.ndim(labels) != 1 or m < 0 or (n and (given.dtype.kind not in "ui" or given.min() < 0)):
        raise ValueError(f"labels must be integers from 0, one for each old client, got {n} for {n + m} clients in all")
    old = given.astype(np.intp)
    names = [int(name) for name in np.unique(old)]
    groups = [np.flatnonzero(old == name) for name in names] + [np.array([i]) for i in range(n, n + m)]
    distances = _from_newcomers(rows, groups, linkage, _spreads(table, groups) if linkage == "ward" else None)
    merge_suggestions = _merge_suggestions(distances[len(names) :, : len(names)], names, threshold)
    merged = _merge_newcomers(distances, groups, len(names), threshold, linkage)
    new_labels = np.concatenate([old, np.zeros(m, dtype=np.intp)])
    opened: list[int] = []
    for first, members in merged.items():
        if first < len(names):
            new_labels[members] = names[first]
        else:
            name = max(names, default=-1) + 1 + len(opened)
            opened.append(name)
            new_labels[members] = name
    return Assignment(new_labels, tuple(opened), merge_suggestions)


def _newcomers_of(table: Array, n: int) -> Array:
    """The rows of the newcomers, checked; angles between the n old clients were checked before."""
    if table.ndim != 2 or table.shape[0] == table.shape[1]:
        return check_proximity(table, since=n)[n:]
    if table.shape[0] != table.shape[1] - n:
        raise ValueError(f"proximity must be square, or a row for each newcomer after {n} clients; got {table.shape}")
    if not np.isfinite(table).all() or (table < 0).any():
        raise ValueError("proximity must be finite and not negative; were the signatures checked?")
    check_proximity(table[:, n:])
    return table


def _merge_newcomers(
    distances: Array, groups: list[NDArray[np.intp]], n_old: int, threshold: float, linkage: Linkage
) -> dict[int, NDArray[np.intp]]:
    """Agglomerate until nothing is within the threshold, old clusters never with each other."""
    distances = distances.copy()
    np.fill_diagonal(distances, np.inf)
    clusters = dict(enumerate(groups))
    sizes = np.array([len(group) for group in groups])
    while True:
        i, j = sorted(int(k) for k in np.unravel_index(np.argmin(distances), distances.shape))
        height = distances[i, j]
        if height == np.inf or height > threshold:
            return clusters
        merged = _UPDATES[linkage](_Merge(distances[i], distances[j], sizes[i], sizes[j], float(height), sizes))
        merged[i] = np.inf
        if i < n_old:
            merged[:n_old] = np.inf
        distances[i], distances[:, i] = merged, merged
        distances[j], distances[:, j] = np.inf, np.inf
        clusters[i] = np.concatenate([clusters[i], clusters.pop(j)])
        sizes[i] += sizes[j]


class _Merge(NamedTuple):
    """Two clusters that become one: their distances to all clusters, sizes, height; and the sizes of all."""

    a: Array
    b: Array
    n_a: int
    n_b: int
    height: float
    sizes: NDArray[np.intp]


def _ward(m: _Merge) -> Array:
    squares = (m.n_a + m.sizes) * m.a**2 + (m.n_b + m.sizes) * m.b**2 - m.sizes * m.height**2
    return np.sqrt(np.maximum(squares, 0.0) / (m.n_a + m.n_b + m.sizes))


# Distances of the merged cluster to all others (Lance and Williams, 1967).
_UPDATES: Final[Mapping[Linkage, Callable[[_Merge], Array]]] = {
    "average": lambda m: (m.n_a * m.a + m.n_b * m.b) / (m.n_a + m.n_b),
    "weighted": lambda m: (m.a + m.b) / 2,
    "complete": lambda m: np.maximum(m.a, m.b),
    "single": lambda m: np.minimum(m.a, m.b),
    "ward": _ward,
}


def _from_newcomers(rows: Array, groups: list[NDArray[np.intp]], linkage: Linkage, spreads: Array | None) -> Array:
    """Distances between groups, infinite between two old ones, which are never merged.

    `weighted` depends on the order of past merges, which is not known: the average is used instead.
    """
    order, starts = np.concatenate(groups), np.cumsum([0, *(len(g) for g in groups)][:-1])
    rows = rows[:, order]
    sizes = np.array([len(g) for g in groups])
    if linkage in ("single", "complete"):
        nearest = (np.minimum if linkage == "single" else np.maximum).reduceat(rows, starts, axis=1)
    elif spreads is not None:
        # Between centroids |a - b|² = mean |aᵢ - bⱼ|² - spread of a - spread of b, and a newcomer has no spread
        between = np.add.reduceat(rows**2, starts, axis=1) / sizes - spreads
        nearest = np.sqrt(np.maximum(2 * sizes * between, 0.0) / (sizes + 1))
    else:
        nearest = np.add.reduceat(rows, starts, axis=1) / sizes
    distances = np.full((len(groups), len(groups)), np.inf)
    first_new = len(groups) - len(rows)
    distances[first_new:] = nearest
    distances[:, first_new:] = nearest.T
    return distances


def _spreads(square: Array, groups: list[NDArray[np.intp]]) -> Array:
    """Mean squared distance of each group's members to its centroid: half the mean of all squared pairs."""
    if square.shape[0] != square.shape[1]:
        raise ValueError("ward linkage needs the whole proximity to place newcomers, got only their rows")
    return np.array([(square[np.ix_(g, g)] ** 2).mean() / 2 for g in groups])


def _merge_suggestions(distances: Array, names: list[int], threshold: float) -> tuple[MergeSuggestion, ...]:
    suggestions = []
    for newcomer, row in enumerate(distances):
        near = [k for k in np.argsort(row, kind="stable") if row[k] <= threshold][:2]
        if len(near) == 2:
            a, b = near
            suggestions.append(MergeSuggestion(newcomer, (names[a], names[b]), (float(row[a]), float(row[b]))))
    return tuple(suggestions)
