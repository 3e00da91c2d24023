"""Signatures in fewer dimensions: a public random projection, and what it does to their angles and noise.

A projection onto s of f dimensions, drawn at random, changes the squared length of a vector by a factor of mean 1 and
variance 2 (1 - s / f) / s. Sampling noise in d dimensions is shortened or lengthened for all clients together, by a
factor of variance 2 (1 - s / f) / (s d), and more unequally from client to client than it was. `widened` adds both to
the split-half angles, so that no cut mistakes them for differences.
"""

import hashlib
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri
from scipy.stats import chi2

from pacfl.subspace.null import noise_dimension

Array = NDArray[np.float64]

MOST_FEATURES: Final = 1 << 18  # of which a projection is drawn: the matrix is in memory
PER_DIRECTION: Final = 4  # dimensions at least
BOUND: Final = 3.0  # standard deviations by which noise may have been shortened


def projection(features: int, dimensions: int, seed: int = 0) -> NDArray[np.float32]:
    """Orthonormal columns, drawn uniformly: (features, dimensions). Everybody who knows the seed has the same.

    All that is random comes from SHAKE-256, and not from numpy, whose generators may change.
    """
    if not 1 <= dimensions <= features <= MOST_FEATURES:
        raise ValueError(
            f"a sketch has some dimensions of at most {MOST_FEATURES} features, got {dimensions} of {features}"
        )
    name = b"pacfl sketch\0%d %d %d" % (seed, features, dimensions)
    numbers = np.frombuffer(hashlib.shake_256(name).digest(8 * features * dimensions), dtype="<u8")
    normal = ndtri(((numbers >> np.uint64(11)) + 0.5) / 2.0**53).reshape(features, dimensions)
    q, r = np.linalg.qr(normal)
    return np.asarray(q * np.where(np.diag(r) < 0, -1.0, 1.0), dtype=np.float32)


def sketched(bases: NDArray[Any], onto: NDArray[np.float32]) -> NDArray[np.float32]:
    """The bases in the space of a projection: (n, features, rank) -> (n, dimensions, rank), orthonormal.

    Columns of zeros, of bases that have fewer directions than others, stay zeros.
    """
    n, features, rank = bases.shape
    dimensions = onto.shape[1]
    if features != len(onto):
        raise ValueError(f"bases have {features} features, the projection {len(onto)}")
    if dimensions < PER_DIRECTION * rank:
        raise ValueError(
            f"a sketch of {rank} directions needs {PER_DIRECTION * rank} dimensions or more, got {dimensions}"
        )
    rows = np.ascontiguousarray(bases.transpose(0, 2, 1), dtype=np.float32).reshape(n * rank, features)
    projected = (rows @ onto).reshape(n, rank, dimensions)
    values, vectors = np.linalg.eigh(np.einsum("naf,nbf->nab", projected, projected).astype(np.float64))
    present = values > 1e-6
    roots = np.where(present, 1 / np.sqrt(np.where(present, values, 1.0)), 0.0)
    nearest = np.einsum("nac,nc,nbc->nab", vectors, roots, vectors).astype(np.float32)
    return np.ascontiguousarray(np.einsum("nab,nbf->nfa", nearest, projected))


def widened(split_half_angles: ArrayLike, features: int, dimensions: int, most: float = 90.0) -> NDArray[Any]:
    """Split-half angles, measured before a sketch, as they may be after it: (n, splits), NaN where there are none.

    most: the largest there can be, in degrees.
    """
    angles = np.asarray(split_half_angles)
    wider: NDArray[Any] = np.minimum(angles * widening(angles, features, dimensions).astype(angles.dtype), most)
    return wider


def widening(split_half_angles: NDArray[Any], features: int, dimensions: int) -> Array:
    """By what factor a sketch widens each of the split-half angles of all clients (n, splits): (splits,)."""
    known = np.isfinite(split_half_angles).all(axis=1) & (split_half_angles > 0).any(axis=1)
    splits = split_half_angles.shape[1]
    if dimensions >= features or not known.any():
        return np.ones(splits)
    left = 1 - dimensions / features
    squares = split_half_angles[known] ** 2
    of_noise = noise_dimension(squares / squares.mean(axis=1, keepdims=True))
    shortened = BOUND * np.sqrt(2 * left / (dimensions * of_noise))
    freedom = dimensions / left
    unequal = chi2.ppf((np.arange(splits) + 0.5) / splits, freedom) / freedom
    unequal = np.random.default_rng(splits).permutation(unequal / unequal.mean())
    factors: Array = np.sqrt((1 + shortened) * unequal)
    return factors
