"""Whether random halves of the clients, or halves of every client's samples, give the same clusters.

Clients of one cluster are replicates of its noise: halves of many of them show what noise does. Halves of few have the
same clients with the same noise, and reproduce whatever borders that has drawn. For small clusters noise is drawn anew.
"""

from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import pdist, squareform

from pacfl.subspace.agreement import best_jaccard
from pacfl.subspace.hierarchy import Labels, Linkage, cut, merges
from pacfl.subspace.noise_scale import noise_of_pairs, own_variance

Array = NDArray[np.float64]

RESAMPLINGS: Final = 50  # halves of the federation that are clustered
FEWEST: Final = 8  # clients, of a federation or a cluster: halves of fewer say nothing
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


def recovery(
    square: Array,
    noise: Array,
    energies: Array,
    random_angle: float | None,
    labels: Labels,
    level: float,
    linkage: Linkage,
    rng: np.random.Generator,
) -> float | None:
    """Overlap of the least stable small cluster with clusters from half of every client's samples, 0 to 1.

    square (n, n) degrees, noise (n,) degrees, energies (n, draws) of noise with mean 1, labels (n,) of clusters. level
    at which halves are cut, in units of their noise. None without clusters of fewer than 8 clients, and for Ward's
    heights, which grow with the size of clusters.

    Half of the samples have twice the variance of noise: as much again is added to all clients, 50 times, in the
    directions in which clients of one cluster differ. No client counts as noisier than the second noisiest.
    """
    small = np.bincount(labels) < FEWEST
    if not small.any() or linkage == "ward":
        return None
    rows = _with_small(small[labels], rng)
    square, noise, energies = square[np.ix_(rows, rows)], noise[rows], energies[rows]
    own, n = own_variance(noise, random_angle), len(rows)
    own = np.minimum(own, np.sort(own)[-2:][0])
    added = (noise_of_pairs(4 * own, random_angle) ** 2 - noise_of_pairs(2 * own, random_angle) ** 2) / 2
    of_pairs = noise_of_pairs(2 * np.add.outer(own, own), random_angle)
    positions = _positions(square**2)
    directions = _within(positions / np.sqrt(own)[:, None], labels[rows])
    found = []
    for _ in range(RESAMPLINGS):
        drawn = rng.standard_normal((n, len(directions))) @ directions
        energy = energies[np.arange(n), rng.integers(energies.shape[1], size=n)]
        drawn *= np.sqrt(added * energy / np.maximum((drawn**2).sum(axis=1), 1e-300))[:, None]
        squares = square**2 + _squares(positions + drawn) - _squares(positions)
        distances = np.sqrt(np.maximum(squares, 0.0)) / of_pairs
        np.fill_diagonal(distances, 0.0)
        half = cut(merges(distances, linkage), level)
        found.append(best_jaccard(labels[rows], half, len(small)))
    return _least(np.array(found)[:, small])


def _with_small(small: NDArray[np.bool_], rng: np.random.Generator) -> NDArray[np.intp]:
    """All clients, or a panel of them, first those of small clusters."""
    order = rng.permutation(len(small))
    return np.sort(order[np.argsort(~small[order], kind="stable")][:PANEL])


def _positions(squares: Array) -> Array:
    """Points whose squared distances are nearly these: (n, n) -> (n, n)."""
    centred = squares - squares.mean(axis=0)
    values, vectors = np.linalg.eigh(-0.5 * (centred - centred.mean(axis=1, keepdims=True)))
    return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0)))


def _within(positions: Array, labels: Labels) -> Array:
    """Differences of clients from the middle of their cluster, as large as in large clusters; any, if none has two."""
    sizes = np.bincount(labels)
    middles = np.stack([np.bincount(labels, column) for column in positions.T], axis=1) / np.maximum(sizes, 1)[:, None]
    several = sizes[labels] > 1
    if not several.any():
        return np.eye(len(labels))
    of = sizes[labels[several]]
    return np.asarray((positions - middles[labels])[several] * np.sqrt(of / (of - 1))[:, None])


def _squares(points: Array) -> Array:
    """Squared distances of all points: (n, d) -> (n, n)."""
    return np.asarray(squareform(pdist(points, "sqeuclidean")))


def _least(jaccard: Array) -> float:
    """The least mean over halves: (halves, clusters), NaN where a half has no member of the cluster."""
    met = ~np.isnan(jaccard)
    means = np.nansum(jaccard, axis=0)[met.any(axis=0)] / met.sum(axis=0)[met.any(axis=0)]
    return float(means.min())
