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
    for _ in range(ROUNDS):
        before = labels
        labels = _dissolve(pairs, reassign(pairs, labels), limits)
        if np.array_equal(before, labels):
            break
    return labels


def reassign(pairs: ClassPairs, labels: Labels) -> Labels:
    """Every client in the cluster from which it differs least, until none moves.

    Σ (squares - weights) / Σ precisions estimates the squared difference without noise, weighted by its precision.
    """
    for _ in range(ROUNDS):
        difference = differences(pairs, labels)
        own = difference[np.arange(len(labels)), labels]
        moves = np.isfinite(own) & (difference.min(axis=1) < own)  # a client alone in its cluster has no own difference
        nearest = np.where(moves, difference.argmin(axis=1), labels)
        if np.array_equal(nearest, labels):
            break
        labels = in_order_of_appearance(nearest)
    return labels


def differences(pairs: ClassPairs, labels: Labels) -> Array:
    """Of rows of clients from clusters, infinite without evidence: (rows, clusters). Clients at -1 are in none."""
    member = np.eye(int(labels.max()) + 1)[labels] * (labels >= 0)[:, None]
    excess, precision = (pairs.squares - pairs.weights) @ member, pairs.precisions @ member
    difference = np.full(excess.shape, np.inf)
    np.divide(excess, precision, out=difference, where=precision > 0)
    return difference


def _dissolve(pairs: ClassPairs, labels: Labels, limits: Limits) -> Labels:
    """Without clusters whose members fit others, each the nearest, within what chance reaches for so many clients."""
    while labels.max() > 0:
        difference = differences(pairs, labels)
        difference[np.arange(len(labels)), labels] = np.inf
        to = difference.argmin(axis=1)
        member = np.eye(int(labels.max()) + 1)[labels]
        sums = np.stack([part @ member for part in pairs.parts[:2]])  # (2, n, clusters)
        inside = np.stack([(part * member).sum(axis=0) for part in sums])
        sizes = np.bincount(labels)
        ratios = np.full(len(sizes), np.inf)
        for k in range(len(sizes)):
            own = np.flatnonzero(labels == k)
            squares, weight = sums[:, own, to[own]].sum(axis=1)
            if weight > 0:
                height = np.sqrt(squares / weight)
                both = inside[:, [k, *np.unique(to[own])]].sum(axis=1, keepdims=True)
                smaller = np.array([min(sizes[k], sizes[to[own]].min())])
                contrast = contrasts(height[None], both, smaller)
                ratios[k] = limits.ratios(height[None], contrast, np.log2(smaller).astype(np.intp))[0]
        k = int(np.argmin(ratios))
        if ratios[k] > 1:
            return labels
        labels = in_order_of_appearance(np.where((labels == k) & np.isfinite(difference.min(axis=1)), to, labels))
        if int(labels.max()) + 1 == len(sizes):  # members without evidence are left
            return labels
    return labels
