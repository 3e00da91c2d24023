"""Angles in units of sampling noise: 1 is what two samples of the same client show."""

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]

RESOLUTION: Final = 1e-5  # degrees: no noise scale is lower, for angles are not computed more exactly
UNDETERMINED: Final = 0.01  # of a signature at least is taken to be determined


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


def rescale_by_noise(
    proximity: ArrayLike, noise: Array, reference: float | None = None, random_angle: float | None = None
) -> Array:
    """The proximity as it would be if every client had the reference noise scale.

    Two clients of one distribution differ by noise of variance (noiseᵢ² + noiseⱼ²) / 2, as long as it is far below the
    random_angle, in degrees, between signatures that have nothing in common. Near it, angles grow no further: squared
    sizes s² / (1 - s²), in units of the random angle, are what adds. proximity (n, n), or rows of the last clients;
    noise (n,) of all.
    """
    angles = np.asarray(proximity, dtype=np.float64)
    own = own_variance(noise, random_angle)
    rescaled: Array = np.add.outer(own[len(noise) - len(angles) :], own)
    np.divide(angles, noise_of_pairs(rescaled, random_angle), out=rescaled)
    rescaled *= reference_scale(noise) if reference is None else reference
    return rescaled


def condensed_by_noise(square: Array, noise: Array, reference: float, random_angle: float | None = None) -> Array:
    """The upper triangle of `rescale_by_noise`, row by row: half the memory."""
    n = len(square)
    own = own_variance(noise, random_angle)
    condensed = np.empty(n * (n - 1) // 2)
    start = 0
    for i in range(n - 1):
        row = condensed[start : start + n - 1 - i]
        np.add(own[i], own[i + 1 :], out=row)
        np.divide(square[i, i + 1 :], noise_of_pairs(row, random_angle), out=row)
        row *= reference
        start += len(row)
    return condensed


def own_variance(noise: Array, random_angle: float | None = None) -> Array:
    """What each client adds to the noise variance of a pair: (n,) -> (n,)."""
    halves: Array = noise**2 / 2
    if random_angle is None:
        return halves
    return halves / np.maximum(1 - (noise / random_angle) ** 2, UNDETERMINED)


def noise_of_pairs(variances: Array, random_angle: float | None = None) -> Array:
    """Noise scale of pairs from the sum of what both add; in place."""
    if random_angle is not None:
        variances /= 1 + variances / random_angle**2
    return np.sqrt(variances, out=variances)


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
