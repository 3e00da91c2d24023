"""Divergences between samples that the paper compares principal angles with: they need the data, angles do not."""

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.spatial.distance import cdist, pdist

from pacfl.subspace.signature import as_rows

Array = NDArray[np.float64]


def bhattacharyya(x: ArrayLike, y: ArrayLike) -> float:
    """Bhattacharyya distance of the normal distributions fitted to two samples (Kailath, 1967).

    x (n, ...), y (m, ...). D = ⅛ δᵀ S⁻¹ δ + ½ ln(|S| / √(|S₁| |S₂|)) with S = (S₁ + S₂) / 2, δ the difference of means.
    """
    (mean_x, cov_x), (mean_y, cov_y) = _moments(x, y)
    pooled = (cov_x + cov_y) / 2
    shift = mean_x - mean_y
    spread = _logdet(pooled) - (_logdet(cov_x) + _logdet(cov_y)) / 2
    return float(shift @ np.linalg.solve(pooled, shift) / 8 + spread / 2)


def kl(x: ArrayLike, y: ArrayLike) -> float:
    """Kullback-Leibler divergence KL(x ‖ y) of the normal distributions fitted to two samples.

    x (n, ...), y (m, ...). ½ (tr(S₂⁻¹ S₁) + δᵀ S₂⁻¹ δ - d + ln(|S₂| / |S₁|)).
    """
    (mean_x, cov_x), (mean_y, cov_y) = _moments(x, y)
    shift = mean_y - mean_x
    return (
        float(
            np.trace(np.linalg.solve(cov_y, cov_x))
            + shift @ np.linalg.solve(cov_y, shift)
            - len(shift)
            + _logdet(cov_y)
            - _logdet(cov_x)
        )
        / 2
    )


def mmd(x: ArrayLike, y: ArrayLike, bandwidth: float | None = None) -> float:
    """Maximum mean discrepancy of two samples, kernel exp(-|a - b|² / (2 bandwidth²)) (Gretton and others, 2012).

    x (n, ...), y (m, ...). The unbiased estimate of MMD², its root taken, 0 where it is negative. Without bandwidth:
    the median distance between all samples.
    """
    a, b = _as_comparable(x, y)
    if len(a) < 2 or len(b) < 2:
        raise ValueError(f"two samples on each side at least are wanted, got {len(a)} and {len(b)}")
    if bandwidth is None:
        bandwidth = float(np.median(pdist(np.vstack([a, b]))))
    if not bandwidth > 0:
        raise ValueError(f"bandwidth must be positive, got {bandwidth}; are all samples equal?")

    def kernel(squared: Array) -> Array:
        return np.asarray(np.exp(-squared / (2 * bandwidth**2)))

    within_a, within_b = kernel(pdist(a, "sqeuclidean")).mean(), kernel(pdist(b, "sqeuclidean")).mean()
    squared = within_a + within_b - 2 * kernel(cdist(a, b, "sqeuclidean")).mean()
    return float(np.sqrt(max(squared, 0.0)))


def _moments(x: ArrayLike, y: ArrayLike) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    a, b = _as_comparable(x, y)
    moments = []
    for name, rows in (("x", a), ("y", b)):
        cov = np.atleast_2d(np.cov(rows, rowvar=False)) if len(rows) > 1 else np.zeros((rows.shape[1],) * 2)
        if np.linalg.matrix_rank(cov) < len(cov):
            raise ValueError(
                f"the covariance of {name} is singular: {len(rows)} samples do not fill {rows.shape[1]} features; "
                "reduce the features or give more samples"
            )
        moments.append((rows.mean(axis=0), cov))
    return moments[0], moments[1]


def _as_comparable(x: ArrayLike, y: ArrayLike) -> tuple[Array, Array]:
    a, b = as_rows(x), as_rows(y)
    if a.shape[1] != b.shape[1]:
        raise ValueError(f"samples must have equal features, got {a.shape[1]} and {b.shape[1]}")
    return a, b


def _logdet(matrix: Array) -> float:
    return float(np.linalg.slogdet(matrix)[1])
