"""Angles in units of noise: 1 is what two samples of the same client show."""

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]

RESOLUTION: Final = 1e-5  # degrees: no floor is lower, for angles are not computed more exactly


def floors(proximity: ArrayLike, self_angles: Sequence[ArrayLike] | None = None) -> Array:
    """Degrees that sampling noise alone makes for each client: root mean square of its self-angles: (n,).

    The distance to the nearest neighbour for clients without self-angles. proximity (n, n), or the rows of the last n.
    """
    square = np.asarray(proximity, dtype=np.float64)
    own = checked_self_angles(self_angles, len(square))
    measured = [float(np.sqrt(np.mean(a**2))) if len(a) else np.nan for a in own]
    return np.maximum(np.where(np.isnan(measured), nearest(square), measured), RESOLUTION)


def typical(floor: Array) -> float:
    """The floor of a typical client, the unit of the adjusted proximity."""
    return float(np.median(floor))


def adjust(proximity: ArrayLike, floor: Array, unit: float | None = None) -> Array:
    """The proximity as it would be if every client had the typical floor: angles over noise, times the typical noise.

    Two clients of one distribution differ by noise of variance (floorᵢ² + floorⱼ²) / 2. proximity (n, n), or rows of
    the last clients; floor (n,) of all.
    """
    angles = np.asarray(proximity, dtype=np.float64)
    noise = np.sqrt((floor[len(floor) - len(angles) :, None] ** 2 + floor**2) / 2)
    adjusted: Array = angles / noise * (typical(floor) if unit is None else unit)
    return adjusted


def nearest(rows: Array) -> Array:
    """Distance of each client to its nearest neighbour, from the rows of the last clients; 0 for a client alone."""
    m, n = rows.shape
    if n < 2:
        return np.zeros(m)
    others: Array = rows + np.eye(m, n, n - m) * np.finfo(np.float64).max
    nearest: Array = others.min(axis=1)
    return nearest


def checked_self_angles(self_angles: Sequence[ArrayLike] | None, n: int) -> list[Array]:
    """The self-angles of n clients, empty for those that sent none."""
    if self_angles is None:
        return [np.empty(0)] * n
    own = [np.asarray(a, dtype=np.float64).ravel() for a in self_angles]
    if len(own) != n:
        raise ValueError(f"self_angles must be one array for each of {n} clients, got {len(own)}")
    if any(not np.isfinite(a).all() or (a < 0).any() for a in own):
        raise ValueError("self_angles must be finite and not negative")
    return own
