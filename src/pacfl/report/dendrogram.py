"""A dendrogram as a page draws and cuts it: leaves in a row, and the height of the wall between neighbours."""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.cluster.hierarchy import leaves_list

Array = NDArray[np.float64]
Order = NDArray[np.intp]

MOST_CELLS: Final = 512  # of a side of the heat map: more than a screen shows


@dataclass(frozen=True, eq=False)
class Drawing:
    """n leaves from left to right, n - 1 merges as brackets."""

    order: Order  # (n,) the row of the matrix at each place
    walls: Array  # (n - 1,) height of the merge that first joins a place with the next: a lower cut separates them
    feet: Array  # (n - 1, 2) places of the two feet of a bracket
    tops: Array  # (n - 1,) height of a bracket
    starts: Array  # (n - 1, 2) height at which each foot begins


def drawing(merges: Array) -> Drawing:
    """The drawing of a dendrogram in scipy's form.

    Every cluster of a cut is a range of neighbours, between two walls higher than the threshold.
    """
    n = len(merges) + 1
    order = leaves_list(merges).astype(np.intp)
    place = np.empty(n)
    place[order] = np.arange(n)
    at, low, last = place.copy().tolist(), [0.0] * n, place.copy().tolist()  # by node: middle, height, last leaf
    walls, feet, tops, starts = np.zeros(n - 1), np.zeros((n - 1, 2)), np.zeros(n - 1), np.zeros((n - 1, 2))
    for i, (a, b, height, _) in enumerate(merges):
        left, right = sorted((int(a), int(b)), key=lambda node: at[node])
        feet[i], starts[i], tops[i] = (at[left], at[right]), (low[left], low[right]), height
        walls[int(last[left])] = height
        at.append((at[left] + at[right]) / 2)
        low.append(height)
        last.append(last[right])
    return Drawing(order, walls, feet, tops, starts)


def heat(proximity: Array, order: Order) -> Array:
    """The matrix in the order of the leaves; means of blocks where it has more cells than a screen shows.

    NaN where no angle is known.
    """
    square = proximity[np.ix_(order, order)]
    n = len(square)
    if n <= MOST_CELLS:
        return square
    edges = np.arange(MOST_CELLS) * n // MOST_CELLS
    known = np.isfinite(square)
    sums, counts = (
        np.add.reduceat(np.add.reduceat(part, edges, axis=0), edges, axis=1)
        for part in (np.where(known, square, 0.0), known.astype(np.float64))
    )
    return np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)


def neighbours(proximity: Array, most: int = 8) -> tuple[Order, Array]:
    """For every client the nearest others, and their angles, infinite where none is known: (n, m), (n, m)."""
    n = len(proximity)
    m = min(most, n - 1)
    others = np.where(np.isnan(proximity), np.inf, proximity) + np.diag(np.full(n, np.inf))
    near = np.argpartition(others, m - 1, axis=1)[:, :m]
    angles = np.take_along_axis(others, near, axis=1)
    rank = np.lexsort((near, angles), axis=1)
    return np.take_along_axis(near, rank, axis=1), np.take_along_axis(angles, rank, axis=1)
