"""The angle between two samples of the same client, which each client measures on its own data."""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import eigh

from pacfl.subspace.proximity import MEASURES, Measure, component_angles
from pacfl.subspace.saturated import are_large, fallen, parts
from pacfl.subspace.signature import as_labels, check_rank, drawn, leading_of_classes, of_unit_size, rows_of
from pacfl.subspace.sparse import inner_products
from pacfl.subspace.units import Halves, Units, as_groups, is_enough, is_grouped, places

Array = NDArray[np.float64]
SplitHalfAngles = dict[Measure, Array]

# Random splits of a client's samples into halves: the noise scale, a mean over them, then has an error of about 2 %.
SPLITS: Final = 32

# Halves are drawn from at most this many samples: noise falls with the root of the sample count whatever the count is.
# The leading direction needs few samples; the sum of all angles, and directions of classes, need more.
MOST_SAMPLES: Final = 256
MOST_SAMPLES_OF_FIRST: Final = 128
CONDENSED: Final = 8  # rows per direction to which a large group is condensed at least
OF_FIRST: Final = frozenset[Measure](["smallest", "entrywise"])


def split_half_angles(
    x: ArrayLike,
    rank: int,
    labels: ArrayLike | None = None,
    measures: Sequence[Measure] = MEASURES,
    groups: ArrayLike | None = None,
) -> SplitHalfAngles:
    """Angles between signatures of two samples of the same distribution, each as large as x, for the measures asked.

    x (n, ...)  ->  measure: (32,) degrees, one for each random split of the samples into halves. Empty arrays
    if there are too few samples to make two signatures of the asked rank.

    Two halves differ by more than two whole samples would: in the tangent space, where subspace U + E has
    principal angles arctan of the singular values of E, and E falls with the root of the sample count, tangents shrink
    by √(half / n). Where halves are so different that this is not known to be true, it is measured
    (`pacfl.subspace.saturated`).

    groups (n,) of any kind: samples of one group depend on each other, and no split separates them. Noise falls with
    the number of groups. It is not known from few of them, or if one has most of the samples: then all angles are the
    largest there are, and the client is too noisy to be compared.
    """
    check_rank(rank)
    rows = rows_of(x)
    n = rows.shape[0]
    named = None if labels is None else as_labels(labels, n)
    units = n if groups is None else as_groups(groups, n)
    grouped = is_grouped(units)
    if not isinstance(units, int) and grouped and (not is_enough(units) or (int(units.max()) + 1) // 2 < rank):
        return {m: np.full(SPLITS, 90.0 if m in OF_FIRST else 90.0 * rank) for m in measures}
    of_first = [measure for measure in measures if measure in OF_FIRST and named is None and not grouped]
    of_all = [measure for measure in measures if measure not in of_first]
    angles: SplitHalfAngles = {}
    for asked, most in ((of_first, MOST_SAMPLES_OF_FIRST), (of_all, MOST_SAMPLES)):
        if asked:
            overlaps, share = _of_halves(rows, rank, named, Units(units, most))
            angles |= {measure: _as_whole(overlaps, measure, share) for measure in asked}
            large = [m for m in asked if are_large(_as_whole(overlaps, m, 1.0), rows.shape[1], rank, m)]
            if large and named is None:
                halves, quarters, times = parts(rows, rank, units)
                at = {m: (_as_whole(halves, m, 1.0), _as_whole(quarters, m, 1.0)) for m in large}
                angles |= {m: fallen(*degrees, times) for m, degrees in at.items()}
    return {measure: angles[measure] for measure in measures}


def _of_halves(rows: Any, rank: int, labels: NDArray[Any] | None, units: Units) -> tuple[list[Array], float]:
    """UᵀV of the signatures of random halves of the units' samples, and the share of all that makes a half."""
    if len(units) // 2 < rank:
        return [], 1.0
    if labels is None:
        rows, members = units.gathered(of_unit_size(rows), CONDENSED * rank)
        halves, share = units.halves(members, SPLITS)
        return _overlaps(rows, rank, halves), share
    halves, share = units.halves(units.members, SPLITS)
    if not isinstance(rows, np.ndarray):
        positions = units.positions()
        rows, labels, halves = drawn(rows, positions), labels[positions], places(halves, positions)
    return _class_overlaps(of_unit_size(rows), rank, labels, halves), share


def _overlaps(rows: Array, rank: int, halves: Halves) -> list[Array]:
    """UᵀV of the signatures of every two halves, all from one table of inner products."""
    products = inner_products(rows)
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
