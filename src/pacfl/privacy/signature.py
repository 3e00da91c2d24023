"""Differentially private signatures: eigenvectors of a second-moment matrix with calibrated noise.

Every sample is reduced without looking at others, scaled to length 1 and rounded towards zero onto a grid, so that the
matrix S = Σ x xᵀ is one of integers. Replacing a record moves S by |x xᵀ - y yᵀ| <= √2 in the Frobenius norm
(adding or removing one, by at most 1). In that norm the symmetric matrices are a plain Euclidean space, in which the
noise is the same in all directions: variance s² on the diagonal and s² / 2 off it. Nothing else is taken from the data:
basis and noise scale are computed from the noisy matrix alone, and the number of samples is used nowhere.
"""

from dataclasses import dataclass
from math import ceil, sqrt
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pacfl.privacy.discrete import Noise, NonNegativeInt, secret
from pacfl.privacy.gaussian import gaussian_sigma
from pacfl.privacy.noise_scale import simulated_split_half_angles
from pacfl.privacy.reduction import reduced
from pacfl.subspace.classes import ClassSignatures
from pacfl.subspace.orthonormal import fix_signs
from pacfl.subspace.signature import check_rank
from pacfl.subspace.split_half import SplitHalfAngles

Array = NDArray[np.float64]

GRID: Final = 1 << 18  # steps from 0 to 1 in each feature of a sample
SENSITIVITY: Final = sqrt(2)
MOST_AT_ONCE: Final = 1 << 16  # samples whose products add up exactly in float64


@dataclass(frozen=True)
class Guarantee:
    """The privacy of every single record, and how samples were reduced for it."""

    epsilon: float
    delta: float
    reduction: str


@dataclass(frozen=True, eq=False)
class PrivateSignature:
    """All that leaves a client."""

    basis: Array  # (features, rank), orthonormal
    split_half_angles: SplitHalfAngles  # degrees, simulated from the noisy matrix
    guarantee: Guarantee  # for all of it together
    classes: ClassSignatures | None = None  # of the agreed classes that stand out of the noise


def private_signature(
    x: ArrayLike, rank: int, epsilon: float, delta: float = 1e-5, noise: Noise = secret
) -> PrivateSignature:
    """The signature of samples (n, ...) with (epsilon, delta) differential privacy for each of them.

    Neighbours are data sets of which one record is replaced by any other.
    """
    check_rank(rank)
    rows, reduction = reduced(x)
    sigma = gaussian_sigma(epsilon, delta, SENSITIVITY)
    return from_moment(noisy_moment(rows, sigma, noise), sigma, rank, Guarantee(epsilon, delta, reduction))


def from_moment(moment: Array, sigma: float, rank: int, guarantee: Guarantee) -> PrivateSignature:
    """The signature that a noisy matrix gives: post-processing, which costs no privacy."""
    _, vectors = np.linalg.eigh(moment)
    basis = fix_signs(vectors[:, ::-1][:, :rank])
    return PrivateSignature(basis, simulated_split_half_angles(moment, sigma, rank), guarantee)


def noisy_moment(rows: Array, sigma: float, noise: Noise) -> Array:
    """The one thing that is taken from the data: Σ x xᵀ of rows of length 1, with noise: (n, d) -> (d, d)."""
    return (second_moment(on_grid(rows)) + symmetric_noise(rows.shape[1], sigma, noise)) / float(GRID) ** 2


def on_grid(rows: Array) -> NonNegativeInt:
    """Rows scaled to length 1, in whole steps of 1 / GRID towards zero, so that none is longer. Blank ones stay."""
    largest = np.abs(rows).max(axis=1, keepdims=True)
    safe = rows / np.where(largest > 0, largest, 1.0)  # squares of what is left neither vanish nor overflow
    lengths = np.linalg.norm(safe, axis=1, keepdims=True)
    return np.trunc(safe / np.where(lengths > 0, lengths, 1.0) * GRID).astype(np.int64)


def second_moment(rows: NonNegativeInt) -> NonNegativeInt:
    """Σ x xᵀ, exactly: (n, d) -> (d, d)."""
    blocks = (rows[i : i + MOST_AT_ONCE].astype(np.float64) for i in range(0, len(rows), MOST_AT_ONCE))
    return np.asarray(sum((block.T @ block).astype(np.int64) for block in blocks))


def symmetric_noise(d: int, sigma: float, noise: Noise) -> NonNegativeInt:
    """Symmetric noise of variance sigma² on and sigma² / 2 off the diagonal, in units of 1 / GRID²: (d, d)."""
    half = ceil((sigma * GRID**2) ** 2 / 2)
    matrix = np.zeros((d, d), dtype=np.int64)
    matrix[np.triu_indices(d, 1)] = noise(half, d * (d - 1) // 2)
    return matrix + matrix.T + np.diag(noise(2 * half, d))
