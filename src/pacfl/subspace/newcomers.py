"""Clients that come later: which cluster is theirs."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

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
    """Where newcomers went. Old labels are as they were."""

    labels: Labels  # (n + m,), old clients first
    opened: tuple[int, ...]  # clusters that did not exist before
    merge_suggestions: tuple[MergeSuggestion, ...]


def place(proximity: ArrayLike, labels: ArrayLike, threshold: float, linkage: Linkage = "average") -> Assignment:
    """A cluster for every newcomer: the nearest within the threshold, or a new one.

    proximity (n + m, n + m) with the newcomers last, or only the newcomers' rows of it (m, n + m), as `newcomer_rows`
    gives them; labels (n,) of the old clients.

    The hierarchy goes on from the old clusters as they stand: newcomers join them or each other, nearest first, until
    everything is further apart than the threshold; two old clusters are never joined.

    >>> place([[0, 9, 1], [9, 0, 9], [1, 9, 0]], labels=[0, 1], threshold=5.0).labels
    array([0, 1, 0])
    """
    if linkage not in LINKAGES or linkage == "ward":
        wanted = ", ".join(word for word in LINKAGES if word != "ward")
        raise ValueError(f"linkage must be one of {wanted} to place newcomers, got {linkage!r}")
    rows = _newcomers_of(proximity, np.size(labels))
    if np.isnan(threshold):
        raise ValueError(f"threshold must be a number, got {threshold!r}")
    given = np.atleast_1d(np.asarray(labels))
    n, m = given.size, rows.shape[1] - given.size
    if given.ndim != 1 or np.ndim(labels) != 1 or m < 0 or (n and (given.dtype.kind not in "ui" or given.min() < 0)):
        raise ValueError(f"labels must be whole numbers from 0, one for each old client, got {n} for {n + m} in all")
    old = given.astype(np.intp)
    names = [int(name) for name in np.unique(old)]
    groups = [np.flatnonzero(old == name) for name in names] + [np.array([i]) for i in range(n, n + m)]
    distances = _from_newcomers(rows, groups, linkage)
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


def _newcomers_of(proximity: ArrayLike, n: int) -> Array:
    """The rows of the newcomers, checked: what is between the n old clients was, when they came."""
    table = np.asarray(proximity, dtype=np.float64)
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
    alive = dict(enumerate(groups))
    update = _UPDATES[linkage]
    while True:
        i, j = sorted(int(k) for k in np.unravel_index(np.argmin(distances), distances.shape))
        if distances[i, j] == np.inf or distances[i, j] > threshold:
            return alive
        joined = update(distances[i], distances[j], len(alive[i]), len(alive[j]))
        joined[i] = np.inf
        if i < n_old:
            joined[:n_old] = np.inf
        distances[i], distances[:, i] = joined, joined
        distances[j], distances[:, j] = np.inf, np.inf
        alive[i] = np.concatenate([alive[i], alive.pop(j)])


_UPDATES: Final[Mapping[Linkage, Callable[[Array, Array, int, int], Array]]] = {
    "average": lambda a, b, n_a, n_b: (n_a * a + n_b * b) / (n_a + n_b),
    "weighted": lambda a, b, n_a, n_b: (a + b) / 2,  # noqa: ARG005 - sizes do not count, that is its point
    "complete": lambda a, b, n_a, n_b: np.maximum(a, b),  # noqa: ARG005
    "single": lambda a, b, n_a, n_b: np.minimum(a, b),  # noqa: ARG005
}


def _from_newcomers(rows: Array, groups: list[NDArray[np.intp]], linkage: Linkage) -> Array:
    """Distances between groups, infinite between two old ones, which are never joined.

    `weighted` depends on the order of merges, which is past: the average stands in.
    """
    order, starts = np.concatenate(groups), np.cumsum([0, *(len(g) for g in groups)][:-1])
    rows = rows[:, order]
    if linkage in ("single", "complete"):
        nearest = (np.minimum if linkage == "single" else np.maximum).reduceat(rows, starts, axis=1)
    else:
        nearest = np.add.reduceat(rows, starts, axis=1) / [len(g) for g in groups]
    distances = np.full((len(groups), len(groups)), np.inf)
    first_new = len(groups) - len(rows)
    distances[first_new:] = nearest
    distances[:, first_new:] = nearest.T
    return distances


def _merge_suggestions(distances: Array, names: list[int], threshold: float) -> tuple[MergeSuggestion, ...]:
    merge_suggestions = []
    for newcomer, row in enumerate(distances):
        near = [k for k in np.argsort(row, kind="stable") if row[k] <= threshold][:2]
        if len(near) == 2:
            a, b = near
            merge_suggestions.append(MergeSuggestion(newcomer, (names[a], names[b]), (float(row[a]), float(row[b]))))
    return tuple(merge_suggestions)
