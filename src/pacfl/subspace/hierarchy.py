"""Proximity matrix -> dendrogram -> clusters."""

from typing import Final, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.cluster.hierarchy import fcluster
from scipy.cluster.hierarchy import linkage as scipy_linkage
from scipy.spatial.distance import squareform

Array = NDArray[np.float64]
Labels = NDArray[np.intp]
Linkage = Literal["average", "weighted", "complete", "single", "ward"]
LINKAGES: Final[tuple[Linkage, ...]] = get_args(Linkage)


def agglomerate(proximity: ArrayLike, threshold: float, linkage: Linkage = "average") -> Labels:
    """Clusters of the dendrogram cut at `threshold`: merges above it are undone.

    proximity (n, n)  ->  (n,) labels 0..k-1, in the order of each cluster's first member.

    >>> agglomerate([[0, 1, 9], [1, 0, 9], [9, 9, 0]], threshold=5.0)
    array([0, 0, 1])
    """
    if not np.isfinite(threshold) and threshold != np.inf:
        raise ValueError(f"threshold must not be NaN or -infinity, got {threshold!r}")
    return cut(dendrogram(proximity, linkage), threshold)


def agglomerate_into(proximity: ArrayLike, n_clusters: int, linkage: Linkage = "average") -> Labels:
    """Exactly `n_clusters` clusters: the last n_clusters - 1 merges of the dendrogram are undone.

    proximity (n, n)  ->  (n,) labels 0..n_clusters-1.
    """
    tree = dendrogram(proximity, linkage)
    n = len(tree) + 1
    _check_number(n_clusters, n)
    if n == 1:
        return np.zeros(1, dtype=np.intp)
    order = np.arange(n - 1, dtype=np.float64)
    return in_order_of_appearance(fcluster(tree, n - n_clusters - 1, "monocrit", monocrit=order))


def dendrogram(proximity: ArrayLike, linkage: Linkage = "average") -> Array:
    """The merges, in scipy's form: (n, n) -> (n - 1, 4)."""
    if linkage not in LINKAGES:
        raise ValueError(f"linkage must be one of {', '.join(LINKAGES)}, got {linkage!r}")
    return merges(check_proximity(proximity), linkage)


def merges(square: Array, linkage: Linkage) -> Array:
    """The dendrogram of a proximity that is known to be one."""
    if len(square) == 1:
        return np.empty((0, 4))
    tree: Array = scipy_linkage(squareform(square, checks=False), linkage)
    return tree


def condensed_merges(condensed: Array, linkage: Linkage) -> Array:
    """The dendrogram of a proximity in scipy's condensed form: the rows of its upper triangle."""
    if linkage not in LINKAGES:
        raise ValueError(f"linkage must be one of {', '.join(LINKAGES)}, got {linkage!r}")
    tree: Array = scipy_linkage(condensed, linkage) if len(condensed) else np.empty((0, 4))
    return tree


def cut(tree: Array, threshold: float) -> Labels:
    """Labels 0..k-1 of the dendrogram with the merges above `threshold` undone."""
    if len(tree) == 0:
        return np.zeros(1, dtype=np.intp)
    return in_order_of_appearance(fcluster(tree, threshold, "distance"))


def level_of(tree: Array, n_clusters: int) -> float:
    """A threshold that leaves n_clusters, or the next lower number that is possible where merges tie.

    The middle between the last merge that is done and the first that is undone.
    """
    _check_number(n_clusters, len(tree) + 1)
    heights = tree[::-1, 2]
    for k in range(n_clusters, 1, -1):
        undone, done = float(heights[k - 2]), float(heights[k - 1]) if k - 1 < len(heights) else 0.0
        if done < undone:
            middle = (done + undone) / 2
            return middle if middle < undone else done  # adjacent floats have no middle
    undone = float(heights[0] * 2) if len(heights) else 90.0
    return ((float(heights[0]) if len(heights) else 0.0) + undone) / 2


def in_order_of_appearance(labels: ArrayLike) -> Labels:
    """The same clusters named 0..k-1 in the order of each one's first member."""
    _, first, inverse = np.unique(np.asarray(labels), return_index=True, return_inverse=True)
    rank = np.argsort(np.argsort(first))
    ordered: Labels = rank[inverse].astype(np.intp)
    return ordered


def _check_number(n_clusters: int, n: int) -> None:
    if not 1 <= n_clusters <= n:
        raise ValueError(f"the number of clusters must be between 1 and the number of clients, {n}; got {n_clusters}")


def check_proximity(proximity: ArrayLike, since: int = 0) -> Array:
    """The proximity as a square, finite, non-negative, symmetric float64 matrix with a zero diagonal.

    since: only rows and columns from this one on are checked, where the others were checked before.
    """
    square = np.asarray(proximity, dtype=np.float64)
    if square.ndim != 2 or square.shape[0] != square.shape[1] or len(square) == 0:
        raise ValueError(f"proximity must be square, one row and column for each client, got shape {square.shape}")
    rows = square[since:]
    if rows.size and not (rows.min() >= 0 and rows.max() < np.inf):  # NaN is neither
        raise ValueError("proximity must be finite and not negative; were the signatures checked?")
    if np.diagonal(square)[since:].any() or not _symmetric(square, since):
        raise ValueError("proximity must be symmetric with a zero diagonal; use pacfl.subspace.proximity")
    return square


def _symmetric(square: Array, since: int, tile: int = 512) -> bool:
    """Whether a matrix equals its transpose but for rounding, in tiles: a large transpose is slow to read."""
    columns = range(0, len(square), tile)
    tiles = ((slice(max(j, since), j + tile), slice(i, i + tile)) for j in columns for i in columns if i <= j)
    return all(_close(square[a, b], square[b, a].T) for a, b in tiles)


def _close(a: Array, b: Array) -> bool:
    """As np.allclose, of finite numbers."""
    return bool((np.abs(a - b) <= 1e-9 + 1e-9 * np.abs(b)).all())
