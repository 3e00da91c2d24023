"""Average linkage where pairs carry unequal evidence, and the assignment of clients to the clusters it finds.

The distance of two clusters is that of their pairs, weighted by evidence: Σ squares / Σ weights over all pairs. A pair
without evidence has no weight, and neither joins nor separates anybody.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.cluster.hierarchy import leaves_list

from pacfl.subspace.hierarchy import Labels, in_order_of_appearance
from pacfl.subspace.pairs import ClassPairs

Array = NDArray[np.float64]

ROUNDS: Final = 20  # of reassigning clients and merging clusters; it settles in two or three
GROUP: Final = 4  # clients on both sides from which a contrast is known
ROUNDING: Final = 1e-12  # of the sum over all pairs


@dataclass(frozen=True, eq=False)
class Limits:
    """What chance passes at the error rate, for groups of at least 1, 2, 4, ... clients.

    The height of a merge is in units of noise. Its contrast is the height over the root mean square distance inside the
    two groups: it does not depend on how well the noise is known.
    """

    heights: Array
    contrasts: Array  # infinite for less than `GROUP` clients

    def ratios(self, heights: Array, contrasts: Array, smaller: NDArray[np.intp]) -> Array:
        """How far merges go beyond chance, if more than 1; smaller: class of size of the smaller group."""
        at = np.minimum(smaller, len(self.heights) - 1)
        return np.maximum(heights / self.heights[at], contrasts / self.contrasts[at])


def by_height(heights: Array) -> Limits:
    """Limits of heights alone."""
    return Limits(heights, np.full(len(heights), np.inf))


def weighted_merges(pairs: ClassPairs) -> Array:
    """The dendrogram in scipy's form, heights in units of noise: (n - 1, 4). Infinite where there is no evidence.

    By chains of nearest neighbours: a merged cluster is not nearer to others than its parts were, so merging mutual
    neighbours in any order gives the same tree.
    """
    n = len(pairs.weights)
    squares, weights = pairs.squares.copy(), pairs.weights.copy()
    gone = np.zeros(n, dtype=bool)
    merged: list[tuple[int, int, float]] = []
    chain: list[int] = []
    for _ in range(n - 1):
        while True:
            if not chain:
                chain = [int(np.argmin(gone))]
            last = chain[-1]
            distances = _distances(squares[last], weights[last])
            distances[gone] = np.inf
            distances[last] = np.inf
            nearest = int(np.argmin(distances))
            if len(chain) > 1 and distances[chain[-2]] <= distances[nearest]:
                nearest = chain[-2]  # ties: a chain must not run in circles
            if distances[nearest] == np.inf:  # nothing connects it to others: any other that is left
                others = ~gone
                others[last] = False
                nearest = int(np.argmax(others))
                break
            if len(chain) > 1 and nearest == chain[-2]:
                break
            chain.append(nearest)
        merged.append((last, nearest, float(distances[nearest])))
        chain = chain[:-2]
        squares[nearest] += squares[last]
        weights[nearest] += weights[last]
        squares[:, nearest] = squares[nearest]
        weights[:, nearest] = weights[nearest]
        gone[last] = True
    return _in_scipys_form(merged, n)


def _distances(squares: Array, weights: Array) -> Array:
    distances = np.full(len(weights), np.inf)
    np.divide(squares, weights, out=distances, where=weights > 0)
    return np.asarray(np.sqrt(distances))


def _in_scipys_form(merged: list[tuple[int, int, float]], n: int) -> Array:
    """Merges sorted by height, clusters numbered as they appear, with sizes."""
    tree = np.empty((n - 1, 4))
    name, size = list(range(n)), [1] * n
    parent = list(range(n))

    def root(i: int) -> int:
        while parent[i] != i:
            parent[i] = parent[parent[i]]
            i = parent[i]
        return i

    for step, k in enumerate(np.argsort([height for _, _, height in merged], kind="stable")):
        a, b = root(merged[k][0]), root(merged[k][1])
        parent[a] = b
        size[b] += size[a]
        tree[step] = min(name[a], name[b]), max(name[a], name[b]), merged[k][2], size[b]
        name[b] = n + step
    return tree


def merge_contrasts(pairs: ClassPairs, tree: Array) -> Array:
    """The contrast of every merge of a dendrogram: (n - 1,); 0 where a side has less than `GROUP` clients."""
    n = len(tree) + 1
    order = leaves_list(tree)
    sums = [np.pad(part[np.ix_(order, order)].cumsum(axis=0).cumsum(axis=1), (1, 0)) for part in pairs.parts[:2]]
    inside = np.zeros((2, 2 * n - 1))  # Σ squares and Σ weights of the pairs of a group, which is a block of leaves
    sizes = np.concatenate([np.ones(n, dtype=np.intp), tree[:, 3].astype(np.intp)])
    first = np.concatenate([np.argsort(order), np.zeros(n - 1, dtype=np.intp)])
    for node, (a, b) in enumerate(tree[:, :2].astype(np.intp), n):
        first[node] = start = min(first[a], first[b])
        end = start + sizes[node]
        inside[:, node] = [s[end, end] - s[start, end] - s[end, start] + s[start, start] for s in sums]
    inside[inside < ROUNDING * inside[:, -1:]] = 0.0  # differences of large sums
    a, b = tree[:, :2].T.astype(np.intp)
    return contrasts(tree[:, 2], inside[:, a] + inside[:, b], np.minimum(sizes[a], sizes[b]))


def contrasts(heights: Array, inside: Array, smaller: NDArray[np.intp]) -> Array:
    """Heights over the root mean square distance inside, or 0; inside: Σ squares and Σ weights, (2, n)."""
    found = np.zeros(len(heights))
    squares, weights = inside
    known = (smaller >= GROUP) & (squares > 0) & (weights > 0) & np.isfinite(heights)
    found[known] = heights[known] / np.sqrt(squares[known] / weights[known])
    return found


def settle(pairs: ClassPairs, labels: Labels, limits: Limits) -> Labels:
    """Clusters after clients moved to their nearest ones and clusters that chance explains were dissolved.

    Early merges of a dendrogram join clients of few samples; against whole clusters they are assigned far better.
    """
    settled = _Clusters.of(pairs, labels)
    for _ in range(ROUNDS):
        before = settled.labels
        settled = _dissolve(_reassign(settled), limits)
        if np.array_equal(before, settled.labels):
            break
    return settled.labels


def reassign(pairs: ClassPairs, labels: Labels) -> Labels:
    """Every client in the cluster from which it differs least, until none moves."""
    return _reassign(_Clusters.of(pairs, labels)).labels


def differences(pairs: ClassPairs, labels: Labels) -> Array:
    """Of rows of clients from clusters, infinite without evidence: (rows, clusters). Clients at -1 are in none.

    Σ (squares - weights) / Σ precisions estimates the squared difference without noise, weighted by its precision.
    """
    return _Clusters.of(pairs, labels).differences()


@dataclass(frozen=True, eq=False)
class _Clusters:
    """Clients in clusters, and what compares every client with each cluster."""

    pairs: ClassPairs
    labels: Labels
    sums: Array  # (3, rows, clusters) squares, weights and precisions over the clients of each cluster

    @classmethod
    def of(cls, pairs: ClassPairs, labels: Labels) -> "_Clusters":
        """Clusters with these names; clients at -1 are in none."""
        member = (labels[:, None] == np.arange(int(labels.max()) + 1)).astype(np.float64)
        return cls(pairs, labels, np.stack([part @ member for part in pairs.parts]))

    def moved(self, to: Labels) -> "_Clusters":
        """Every client in the cluster with this number, then those that are left numbered in order of appearance.

        Only clusters that somebody left or joined are added up again: dissolving hundreds of clusters one by one would
        otherwise take most of the time.
        """
        changed = self.labels != to
        if not changed.any():
            return self
        touched = np.union1d(self.labels[changed], to[changed])
        member = (to[:, None] == touched).astype(np.float64)
        sums = self.sums.copy()
        sums[:, :, touched] = [part @ member for part in self.pairs.parts]
        left, first = np.unique(to, return_index=True)
        return _Clusters(self.pairs, in_order_of_appearance(to), sums[:, :, left[np.argsort(first)]])

    def differences(self) -> Array:
        """Squared differences of clients from clusters, without noise: (rows, clusters)."""
        squares, weights, precisions = self.sums
        difference = np.full(squares.shape, np.inf)
        np.divide(squares - weights, precisions, out=difference, where=precisions > 0)
        return difference


def _reassign(clusters: _Clusters) -> _Clusters:
    for _ in range(ROUNDS):
        difference = clusters.differences()
        own = difference[np.arange(len(difference)), clusters.labels]
        moves = np.isfinite(own) & (difference.min(axis=1) < own)  # a client alone in its cluster has no own difference
        if not moves.any():
            break
        clusters = clusters.moved(np.where(moves, difference.argmin(axis=1), clusters.labels))
    return clusters


def _dissolve(clusters: _Clusters, limits: Limits) -> _Clusters:
    """Without clusters whose members fit others, each the nearest, within what chance reaches for so many clients."""
    while clusters.labels.max() > 0:
        labels, rows = clusters.labels, np.arange(len(clusters.labels))
        difference = clusters.differences()
        difference[rows, labels] = np.inf
        to = difference.argmin(axis=1)
        ratios = _beyond_chance(clusters, to, limits)
        k = int(np.argmin(ratios))
        if ratios[k] > 1:
            break
        left = clusters.moved(np.where((labels == k) & np.isfinite(difference[rows, to]), to, labels))
        if left.sums.shape == clusters.sums.shape:  # members without evidence are left
            return left
        clusters = left
    return clusters


def _beyond_chance(clusters: _Clusters, to: Labels, limits: Limits) -> Array:
    """How far each cluster, with its members against the clusters `to`, goes beyond chance, if more than 1."""
    labels, (squared, weighed) = clusters.labels, clusters.sums[:2]
    rows, sizes = np.arange(len(labels)), np.bincount(labels)
    n = len(sizes)
    squares, weights = (np.bincount(labels, part[rows, to], n) for part in (squared, weighed))
    heights = np.full(n, np.inf)
    np.divide(squares, weights, out=heights, where=weights > 0)
    heights = np.sqrt(heights)
    inside: Array = np.stack([np.bincount(labels, part[rows, labels], n) for part in (squared, weighed)])
    own, other = np.divmod(np.unique(labels * n + to), n)  # each cluster with each of those that its members are near
    both: Array = inside + np.stack([np.bincount(own, part[other], n) for part in inside])
    smaller = sizes.copy()
    np.minimum.at(smaller, own, sizes[other])
    return limits.ratios(heights, contrasts(heights, both, smaller), np.log2(smaller).astype(np.intp))
