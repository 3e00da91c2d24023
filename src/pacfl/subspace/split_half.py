"""The angle between two samples of the same client, which each client measures on its own data."""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import eigh

from pacfl.subspace.proximity import MEASURES, Measure, component_angles
from pacfl.subspace.signature import as_labels, as_rows, check_rank, leading_of_classes, of_unit_size

Array = NDArray[np.float64]
SplitHalfAngles = dict[Measure, Array]
Halves = list[tuple[NDArray[np.intp], NDArray[np.intp]]]

# Random splits of a client's samples into halves: the noise scale, a mean over them, then has an error of about 2 %.
SPLITS: Final = 32

# Halves are drawn from at most this many samples: noise falls with the root of the sample count whatever the count is.
# The leading direction needs few samples; the sum of all angles, and directions of classes, need more.
MOST_SAMPLES: Final = 256
MOST_SAMPLES_OF_FIRST: Final = 128
OF_FIRST: Final = frozenset[Measure](["smallest", "entrywise"])


def split_half_angles(
    x: ArrayLike, rank: int, labels: ArrayLike | None = None, measures: Sequence[Measure] = MEASURES
) -> SplitHalfAngles:
    """Angles between signatures of two samples of the same distribution, each as large as x, for the measures asked.

    x (n, ...)  ->  measure: (32,) degrees, one for each random split of the samples into halves. Empty arrays
    if there are too few samples to make two signatures of the asked rank.

    Two halves differ by more than two whole samples would: in the tangent space, where subspace U + E has
    principal angles arctan of the singular values of E, and E falls with the root of the sample count, tangents shrink
    by √(half / n).
    """
    check_rank(rank)
    rows = as_rows(x)
    named = None if labels is None else as_labels(labels, len(rows))
    of_first = [measure for measure in measures if measure in OF_FIRST and named is None]
    of_all = [measure for measure in measures if measure not in of_first]
    angles: SplitHalfAngles = {}
    for asked, most in ((of_first, MOST_SAMPLES_OF_FIRST), (of_all, MOST_SAMPLES)):
        if asked:
            overlaps, share = _of_halves(rows, rank, named, most)
            angles |= {measure: _as_whole(overlaps, measure, share) for measure in asked}
    return {measure: angles[measure] for measure in measures}


def _of_halves(rows: Array, rank: int, labels: NDArray[Any] | None, most: int) -> tuple[list[Array], float]:
    """UᵀV of the signatures of random halves of at most so many samples, and the share of all that makes a half."""
    n = len(rows)
    # Addressed by the data's size alone: the same data give the same bytes
    rng = np.random.default_rng(n)
    chosen = rng.permutation(n)[:most]
    half = len(chosen) // 2
    if half < rank:
        return [], half / n
    rows = of_unit_size(rows[chosen])
    orders = [rng.permutation(len(rows)) for _ in range(SPLITS)]
    halves = [(order[:half], order[half : 2 * half]) for order in orders]
    if labels is None:
        return _overlaps(rows, rank, halves), half / n
    return _class_overlaps(rows, rank, labels[chosen], halves), half / n


def _overlaps(rows: Array, rank: int, halves: Halves) -> list[Array]:
    """UᵀV of the signatures of every two halves, all from one table of inner products."""
    products = rows @ rows.T
    overlaps = []
    for a, b in halves:
        own, other = products.take(a, axis=0), products.take(b, axis=0).take(b, axis=1)
        within, across = own.take(a, axis=1), own.take(b, axis=1)
        if within.any() and other.any():  # a half of blank samples has no direction
            overlaps.append(_weights(within, rank).T @ across @ _weights(other, rank))
    return overlaps


def _class_overlaps(rows: Array, rank: int, labels: NDArray[Any], halves: Halves) -> list[Array]:
    """UᵀV of the per-class signatures of every two halves."""
    try:
        pairs = [[leading_of_classes(rows[half], rank, labels[half]) for half in pair] for pair in halves]
    except ValueError:  # a class of blank samples in some half has no direction, and the noise scale cannot be measured
        return []
    return [u.T @ v for u, v in pairs]


def _weights(products: Array, rank: int) -> Array:
    """Weights of samples that add up to their leading singular vectors: (m, m) inner products -> (m, rank)."""
    values, vectors = eigh(products, subset_by_index=[len(products) - rank, len(products) - 1])
    present = values > values[-1] * len(products) * np.finfo(np.float64).eps
    return np.asarray(vectors[:, present] / np.sqrt(values[present]))[:, ::-1]


def _as_whole(overlaps: list[Array], measure: Measure, share: float) -> Array:
    """Degrees that the measure would show between two samples of which `share` makes a half."""
    by_shape: dict[tuple[int, ...], list[Array]] = {}
    for overlap in overlaps:
        by_shape.setdefault(overlap.shape, []).append(overlap)
    degrees = [np.empty(0)]
    for same_shape in by_shape.values():
        angles = component_angles(np.stack(same_shape, axis=-1)[:, None], measure)  # (angles, 1, splits)
        degrees.append(np.degrees(np.arctan(np.tan(angles) * np.sqrt(share))).sum(axis=(0, 1)))
    return np.concatenate(degrees)
