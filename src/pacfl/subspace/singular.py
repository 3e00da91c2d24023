"""Singular values of very many very small matrices."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

# Off-diagonal entries square with every sweep: 4 sweeps reach rounding for 3 × 3 and 6 or 7 for anything that a
# signature can be, so this limit is a guard and not a tolerance.
MOST_SWEEPS = 30


def singular_values(overlap: NDArray[Any]) -> NDArray[Any]:
    """Singular values of every small matrix overlap[:, i, :, j], largest first.

    overlap (p, rows, q, columns)  ->  (min(p, q), rows, columns).

    Jacobi's method on A Aᵀ, each rotation done for all pairs in a few vector operations: a call of LAPACK
    for every pair would cost ten times the product that made the overlaps.
    """
    a = overlap if overlap.shape[0] <= overlap.shape[2] else overlap.transpose(2, 1, 0, 3)
    p = len(a)
    m = [[_inner(a[i], a[j]) if j >= i else None for j in range(p)] for i in range(p)]
    squares = _eigenvalues(m)
    np.sqrt(np.maximum(squares, 0.0, out=squares), out=squares)
    squares[::-1].sort(axis=0)
    return squares


def _eigenvalues(m: list[list[Any]]) -> NDArray[Any]:
    """Eigenvalues of symmetric matrices given by upper triangles m[i][j] of arrays over pairs; m is used up."""
    p = len(m)
    eps = np.finfo(m[0][0].dtype).eps
    for _ in range(MOST_SWEEPS):
        if max((np.abs(m[i][j]).max() for i in range(p) for j in range(i + 1, p)), default=0.0) <= eps:
            break
        for i in range(p):
            for j in range(i + 1, p):
                _rotate(m, i, j)
    return np.stack([m[i][i] for i in range(p)])


def _rotate(m: list[list[Any]], i: int, j: int) -> None:
    """One Jacobi rotation in the plane (i, j) of every matrix: m[i][j] becomes 0 (Golub and Van Loan, 8.5)."""
    half_gap = (m[j][j] - m[i][i]) * 0.5
    off = m[i][j]
    # t = tan of the rotation, the smaller root of t² + 2 τ t - 1 = 0 with τ = half_gap / off, without dividing by off
    denominator = np.hypot(half_gap, off)
    denominator += np.abs(half_gap)
    denominator[denominator == 0] = 1.0
    t = np.copysign(off, off * half_gap) / denominator
    c = 1.0 / np.sqrt(1.0 + t * t)
    s = t * c
    shift = t * off
    m[i][i] = m[i][i] - shift
    m[j][j] = m[j][j] + shift
    m[i][j] = np.zeros_like(off)
    for k in range(len(m)):
        if k not in (i, j):
            (a, b), (d, e) = sorted((i, k)), sorted((j, k))
            m[a][b], m[d][e] = c * m[a][b] - s * m[d][e], s * m[a][b] + c * m[d][e]


def _inner(rows: NDArray[Any], others: NDArray[Any]) -> NDArray[Any]:
    """Inner products over the middle axis: (rows, q, columns) twice -> (rows, columns)."""
    total: NDArray[Any] = rows[:, 0] * others[:, 0]
    for b in range(1, rows.shape[1]):
        total += rows[:, b] * others[:, b]
    return total
