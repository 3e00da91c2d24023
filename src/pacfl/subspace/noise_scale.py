"""Angles in units of sampling noise: 1 is what two samples of the same client show."""

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]

RESOLUTION: Final = 1e-5  # degrees: no noise scale is lower, for angles are not computed more exactly


def noise_scale(proximity: ArrayLike, split_half_angles: Sequence[ArrayLike] | None = None) -> Array:
    """Degrees that sampling noise alone makes for each client: root mean square of its split-half angles: (n,).

    The distance to the nearest neighbour for clients without them. proximity (n, n), or the rows of the last n.
    """
    square = np.asarray(proximity, dtype=np.float64)
    angles = check_split_half_angles(split_half_angles, len(square))
    measured = [float(np.sqrt(np.mean(a**2))) if len(a) else np.nan for a in angles]
    return np.maximum(np.where(np.isnan(measured), nearest(square), measured), RESOLUTION)


def reference_scale(noise: Array) -> float:
    """The noise scale of a typical client: rescaled proximities are degrees at this noise."""
    return float(np.median(noise))


def rescale_by_noise(proximity: ArrayLike, noise: Array, reference: float | None = None) -> Array:
    """The proximity as it would be if every client had the reference noise scale.

    Two clients of one distribution differ by noise of variance (noiseᵢ² + noiseⱼ²) / 2. proximity (n, n), or rows of
    the last clients; noise (n,) of all.
    """
    angles = np.asarray(proximity, dtype=np.float64)
    of_pairs = np.sqrt((noise[len(noise) - len(angles) :, None] ** 2 + noise**2) / 2)
    rescaled: Array = angles / of_pairs * (reference_scale(noise) if reference is None else reference)
    return rescaled


def nearest(rows: Array) -> Array:
    """Distance of each client to its nearest neighbour, from the rows of the last clients; 0 for a single client."""
    m, n = rows.shape
    if n < 2:
        return np.zeros(m)
    others = rows.copy()
    others[np.arange(m), np.arange(n - m, n)] = np.inf
    least: Array = others.min(axis=1)
    return least


def check_split_half_angles(split_half_angles: Sequence[ArrayLike] | None, n: int) -> list[Array]:
    """The split-half angles of n clients, empty for those that sent none."""
    if split_half_angles is None:
        return [np.empty(0)] * n
    angles = [np.asarray(a, dtype=np.float64).ravel() for a in split_half_angles]
    if len(angles) != n:
        raise ValueError(f"split_half_angles must be one array for each of {n} clients, got {len(angles)}")
    if any(not np.isfinite(a).all() or (a < 0).any() for a in angles):
        raise ValueError("split_half_angles must be finite and not negative")
    return angles
