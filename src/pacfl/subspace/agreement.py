"""Agreement of two clusterings of the same clients."""

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import linear_sum_assignment

Labels = NDArray[np.intp]


def adjusted_rand_index(a: ArrayLike, b: ArrayLike) -> float:
    """Share of pairs on which clusterings agree, corrected for chance: 1 when equal (Hubert and Arabie, 1985).

    >>> adjusted_rand_index([0, 0, 1, 1], [5, 5, 3, 3])
    1.0
    """
    table = _contingency(a, b)
    n = int(table.sum())
    together, in_a, in_b = (float(_pairs(t).sum()) for t in (table, table.sum(axis=1), table.sum(axis=0)))
    by_chance = in_a * in_b / max(1, n * (n - 1) / 2)
    most = (in_a + in_b) / 2
    # Equal only if both have one cluster, or both one for each client: then they are the same clustering
    return 1.0 if most == by_chance else (together - by_chance) / (most - by_chance)


def best_jaccard(clusters: Labels, others: Labels, n_clusters: int) -> NDArray[np.float64]:
    """For each of 0..n_clusters-1: size of intersection over size of union with the most similar of the others.

    clusters (n,), others (n,)  ->  (n_clusters,), NaN for clusters without members.
    """
    table = np.zeros((n_clusters, int(others.max()) + 1))
    np.add.at(table, (clusters, others), 1)
    sizes = table.sum(axis=1, keepdims=True)
    union = sizes + table.sum(axis=0) - table
    return np.where(sizes[:, 0] > 0, (table / union).max(axis=1), np.nan)


def match(new: ArrayLike, old: ArrayLike) -> Labels:
    """The clusters of `new` under the labels of `old` with which they share most clients.

    new (n,), old (n,)  ->  (n,). One-to-one; a new cluster that is left over gets a label that is not in use.

    >>> match([1, 1, 0, 2], old=[0, 0, 1, 1])
    array([0, 0, 1, 2])
    """
    new_names, new_index = np.unique(np.asarray(new), return_inverse=True)
    old_names = np.unique(np.asarray(old))
    if old_names.dtype.kind not in "ui" or old_names.min() < 0:
        raise ValueError(f"old labels must be integers from 0, got {old_names[:5].tolist()}...")
    table = _contingency(new, old)
    rows, columns = linear_sum_assignment(table, maximize=True)
    pairs = {r: int(old_names[c]) for r, c in zip(rows, columns, strict=True) if table[r, c] > 0}
    fresh = iter(range(int(old_names.max()) + 1, int(old_names.max()) + 1 + len(new_names)))
    label_of = [pairs[r] if r in pairs else next(fresh) for r in range(len(new_names))]
    return np.asarray(label_of, dtype=np.intp)[new_index]


def _contingency(a: ArrayLike, b: ArrayLike) -> NDArray[np.int64]:
    _, rows = np.unique(np.asarray(a), return_inverse=True)
    _, columns = np.unique(np.asarray(b), return_inverse=True)
    if rows.shape != columns.shape or rows.ndim != 1 or rows.size == 0:
        raise ValueError(f"two clusterings of the same clients are wanted, got shapes {rows.shape} and {columns.shape}")
    table = np.zeros((rows.max() + 1, columns.max() + 1), dtype=np.int64)
    np.add.at(table, (rows, columns), 1)
    return table


def _pairs(counts: NDArray[np.int64]) -> NDArray[np.float64]:
    return np.asarray(counts * (counts - 1) / 2)
