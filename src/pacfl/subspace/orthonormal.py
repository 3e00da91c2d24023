"""Orthonormal bases of leading directions, and the directions of data that come in pieces or are sparse."""

from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Strongest = Callable[[Array, int], tuple[Array, Array]]  # basis, k -> k singular values and directions outside of it

# Squaring a matrix squares its condition number: the eigenvectors of x xᵀ are not accurate for singular values below
# this share of the largest. Weaker directions are found after the strong ones were removed.
SAFE_TO_SQUARE: Final = 1e-4


def fix_signs(basis: Array) -> Array:
    """The same basis with the largest entry of every column positive, so that equal data give equal bytes."""
    largest = np.abs(basis).argmax(axis=0)
    flip: Array = np.where(basis[largest, np.arange(basis.shape[1])] < 0, -1.0, 1.0)
    signed: Array = np.ascontiguousarray(basis * flip) + 0.0  # + 0.0 turns -0.0 into 0.0
    return signed


def negligible(largest: float, shape: tuple[int, ...]) -> float:
    """Singular values below this are rounding errors (the rule of numpy.linalg.matrix_rank)."""
    return float(largest * max(shape) * np.finfo(np.float64).eps)


def deflated(strongest: Strongest, shape: tuple[int, int], rank: int) -> Array:
    """The leading directions of data (n, features) by squares of them, however weak some are: (features, <= rank).

    Where a direction is too weak for the square of the data, it is found in what the stronger ones leave.
    """
    basis, largest = np.empty((shape[1], 0)), 0.0
    while basis.shape[1] < min(rank, *shape):
        s, directions = strongest(basis, min(rank, *shape) - basis.shape[1])
        largest = max(largest, float(s[0]))
        present = s > max(SAFE_TO_SQUARE * s[0], negligible(largest, shape))
        if not present.any():
            break
        basis = np.linalg.qr(np.hstack([basis, directions[:, present]]))[0]
    return fix_signs(basis)


def outside(vectors: Array, basis: Array) -> Array:
    """Vectors (features, k) without their parts in the span of a basis."""
    return vectors - basis @ (basis.T @ vectors) if basis.shape[1] else vectors
