"""Split-half angles of data without clear leading directions, whose noise does not fall with the root of the count.

Halves of few samples then have signatures with hardly anything in common, and so may wholes. How fast noise falls is
measured: from quarters to halves of as many samples as time allows. It falls no slower beyond.
"""

from functools import cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from pacfl.subspace.guarantee import MOST_NOISE, random_angle
from pacfl.subspace.proximity import Measure
from pacfl.subspace.signature import drawn, leading, of_unit_size
from pacfl.subspace.units import Groups, Halves, Units, places

Array = NDArray[np.float64]

SPLITS: Final = 32
MOST_SAMPLES: Final = 1024
FEW_FEATURES: Final = 256  # up to which
MOST_OF_FEW: Final = 4096  # samples are used


def are_large(degrees: Array, features: int, rank: int, measure: Measure) -> bool:
    """Whether angles between halves are not small beside those between signatures that have nothing in common."""
    return len(degrees) > 0 and float(np.sqrt(np.mean(degrees**2))) > MOST_NOISE * _random(features, rank, measure)


def parts(rows: Any, rank: int, groups: Groups | int) -> tuple[list[Array], list[Array], float]:
    """UᵀV of the signatures of random halves of many samples, and of quarters; all samples over those of a half.

    rows (n, features), groups (n,): samples that no half separates, or n.
    """
    few = rows.shape[1] <= FEW_FEATURES
    units = Units(groups, MOST_OF_FEW if few else MOST_SAMPLES)
    halves, share = units.halves(units.members, SPLITS)
    quarters = [(a[: len(a) // 2], b[: len(b) // 2]) for a, b in halves]
    if not isinstance(rows, np.ndarray):
        positions = units.positions()
        rows, halves, quarters = drawn(rows, positions), places(halves, positions), places(quarters, positions)
    rows = of_unit_size(rows)
    enough = min(len(part) for pair in quarters for part in pair) >= rank
    of_halves = _overlaps(rows, rank, halves)
    return of_halves, _overlaps(rows, rank, quarters) if enough else of_halves, 1 / share


def fallen(halves: Array, quarters: Array, times: float) -> Array:
    """Angles between wholes that have so many times the samples of halves; all in degrees.

    When samples double, noise falls by the root of a half, or less: as it did from quarters to halves.
    """
    if not quarters.any():
        return halves
    fall = np.clip(np.sqrt(np.mean(halves**2) / np.mean(quarters**2)), np.sqrt(0.5), 1.0)
    wholes: Array = halves * fall ** np.log2(times)
    return wholes


def _overlaps(rows: Array, rank: int, pairs: Halves) -> list[Array]:
    """UᵀV of the signatures of every two parts of the samples; blank samples have no direction."""
    both = ((rows[a], rows[b]) for a, b in pairs)
    return [leading(a, rank).T @ leading(b, rank) for a, b in both if a.any() and b.any()]


_random = cache(random_angle)
