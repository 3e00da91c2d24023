"""Whether random halves of the clients give the same clusters."""

from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from pacfl.subspace.agreement import best_jaccard
from pacfl.subspace.hierarchy import Linkage, cut, merges

Array = NDArray[np.float64]

RESAMPLINGS: Final = 50  # halves of the federation that are clustered
FEWEST: Final = 8  # clients: halves of fewer say nothing
PANEL: Final = 300  # clients at most in one of them, so that it takes seconds for any federation


def reproducibility(
    distances: Callable[[NDArray[np.intp]], Array],
    tree: Array,
    levels: list[float],
    linkage: Linkage,
    rng: np.random.Generator,
) -> list[float]:
    """Overlap of the least stable cluster at each level with clusters of random halves of the clients, 0 to 1.

    For every cluster the mean, over halves that have members of it, of its Jaccard index with the most similar cluster
    of the half (Hennig, 2007); the least over clusters. 1 for fewer than 8 clients, of which halves say nothing.
    distances: of some of the clients, by their positions (m,) -> (m, m).
    """
    n = len(tree) + 1
    if n < FEWEST or not levels:
        return [1.0] * len(levels)
    wholes = [cut(tree, level) for level in levels]
    found: list[list[Array]] = [[] for _ in levels]
    for _ in range(RESAMPLINGS):
        half = rng.choice(n, min((n + 1) // 2, PANEL), replace=False)
        part = merges(distances(half), linkage)
        for jaccard, whole, level in zip(found, wholes, levels, strict=True):
            jaccard.append(best_jaccard(whole[half], cut(part, level), int(whole.max()) + 1))
    return [_least(np.array(jaccard)) for jaccard in found]


def _least(jaccard: Array) -> float:
    """The least mean over halves: (halves, clusters), NaN where a half has no member of the cluster."""
    met = ~np.isnan(jaccard)
    means = np.nansum(jaccard, axis=0)[met.any(axis=0)] / met.sum(axis=0)[met.any(axis=0)]
    return float(means.min())
