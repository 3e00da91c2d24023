"""Principal angles between two subspaces."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]


def principal_angles(a: ArrayLike, b: ArrayLike) -> Array:
    """Principal angles between the spans of a and b, ascending, in radians.

    a (features, p), b (features, q), any basis of full column rank  ->  (min(p, q),).

    >>> principal_angles([[1.0], [0.0]], [[1.0], [1.0]])
    array([0.78539816])
    """
    qa, qb = _orthonormal_basis(a, "a"), _orthonormal_basis(b, "b")
    if len(qa) != len(qb):
        raise ValueError(f"a has {len(qa)} features and b {len(qb)}; were they taken from data of the same shape?")
    if qa.shape[1] < qb.shape[1]:
        qa, qb = qb, qa
    overlap = qa.T @ qb
    cosines = np.linalg.svd(overlap, compute_uv=False)
    sines = np.linalg.svd(qb - qa @ overlap, compute_uv=False)[::-1]
    # arccos is blind near 1 and arcsin near 1: each is used on its own side of 45 degrees
    angles: Array = np.where(cosines**2 > 0.5, np.arcsin(np.clip(sines, 0, 1)), np.arccos(np.clip(cosines, 0, 1)))
    return angles


def _orthonormal_basis(columns: ArrayLike, name: str) -> Array:
    matrix = np.asarray(columns, dtype=np.float64)
    if matrix.ndim != 2 or 0 in matrix.shape:
        raise ValueError(f"{name} must be (features, directions), got shape {matrix.shape}")
    if not np.isfinite(matrix).all():
        raise ValueError(f"{name} must be finite, got NaN or infinity")
    q, r = np.linalg.qr(matrix)
    strength = np.abs(np.diag(r))
    if matrix.shape[1] > len(matrix) or strength.min() <= strength.max() * len(matrix) * np.finfo(np.float64).eps:
        raise ValueError(f"{name} must have independent columns, got {matrix.shape[1]} that span fewer dimensions")
    return q
