"""Differentially private signatures of classes: noisy sums of their samples, noisy counts, and one moment of all.

Every sample is reduced without looking at others, x of length at most 1. For each class of a label set that all clients
have agreed on, Σ x and the count are released, and Σ x xᵀ of all samples together. In units of its noise, replacing one
record (x, c) by (y, d) moves all of it by

    c = d:   |x - y|² + |x xᵀ - y yᵀ|² / 2      = 4 - (1 + x·y)² <= 4     for x and y of length 1
    c ≠ d:   |x|² + |y|² + (1 + 1) / 2 + |x xᵀ - y yᵀ|² / 2       <= 4

so that the sensitivity is 2, with the sums alone or with all three: counts and moment come for nothing, with noise of
√2 times the standard deviation. Which classes there are, and how many samples of each, is as private as the samples.

The direction of a class is that of Σ x / count + h, with a public vector h: angles are differences of means, also where
a mean is nearly 0. All else is computed from the noisy numbers alone.
"""

from dataclasses import dataclass, replace
from math import ceil, sqrt
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pacfl.privacy.discrete import Noise, NonNegativeInt, secret
from pacfl.privacy.gaussian import gaussian_sigma
from pacfl.privacy.noise_scale import without_noise
from pacfl.privacy.reduction import contrasted
from pacfl.privacy.signature import (
    GRID,
    Guarantee,
    PrivateSignature,
    from_moment,
    on_grid,
    second_moment,
    symmetric_noise,
)
from pacfl.subspace.classes import FEWEST, RANK, SPLITS, ClassSignatures
from pacfl.subspace.pairs import MOST_NOISE
from pacfl.subspace.signature import as_labels, check_rank

Array = NDArray[np.float64]

SENSITIVITY: Final = 2.0
ORIGIN: Final = 1.0  # length of h: means are at most 1 long
SEEN: Final = 3.0  # standard deviations of noise that the count of a class has to reach
SHRUNK: Final = 10.0  # samples that the variance of all classes counts as, beside that of one
SIMULATED: Final = 256  # pairs of directions of a class, of which SPLITS are sent
SEED: Final = 0  # any: what is drawn is not secret


@dataclass(frozen=True, eq=False)
class ClassSums:
    """All that is taken from the data: sums over samples of length 1, in integers or with noise."""

    sums: NDArray[np.float64]  # (classes, d)
    counts: Array  # (classes,)
    moment: Array  # (d, d) of all samples


def private_class_signatures(
    x: ArrayLike,
    labels: ArrayLike,
    names: ArrayLike,
    rank: int,
    epsilon: float,
    delta: float = 1e-5,
    noise: Noise = secret,
) -> PrivateSignature:
    """The signature of samples (n, ...) and of their classes, with (epsilon, delta) differential privacy for each.

    Neighbours are data sets of which one record, sample and label, is replaced by any other. names: of all classes that
    may occur, which the federation has agreed on; labels (n,) are among them.
    """
    check_rank(rank)
    rows, reduction = contrasted(x)
    agreed = np.unique(np.asarray(names).astype(str))
    which = positions(as_labels(labels, len(rows)).astype(str), agreed)
    sigma = gaussian_sigma(epsilon, delta, SENSITIVITY)
    sums = noisy_sums(rows, which, len(agreed), sigma, noise)
    made = from_moment(sums.moment, sqrt(2) * sigma, rank, Guarantee(epsilon, delta, reduction))
    return replace(made, classes=class_directions(sums, agreed, sigma))


def positions(labels: NDArray[np.str_], agreed: NDArray[np.str_]) -> NDArray[np.intp]:
    """Where each label (n,) is among the agreed names, sorted."""
    found = np.searchsorted(agreed, labels).clip(max=len(agreed) - 1)
    unknown = labels[agreed[found] != labels] if len(agreed) else labels
    if len(unknown):
        raise ValueError(
            f"label {str(unknown[0])!r} is not among the {len(agreed)} agreed classes; "
            "name all classes that any client may have, the same for all clients"
        )
    return found


def exact_sums(units: NonNegativeInt, which: NDArray[np.intp], n_classes: int) -> tuple[NonNegativeInt, ...]:
    """Σ x of every class, its count and Σ x xᵀ of all samples, each in units of 1 / GRID²."""
    sums = np.zeros((n_classes, units.shape[1]), dtype=np.int64)
    np.add.at(sums, which, units)
    return sums * GRID, np.bincount(which, minlength=n_classes).astype(np.int64) * GRID**2, second_moment(units)


def noisy_sums(rows: Array, which: NDArray[np.intp], n_classes: int, sigma: float, noise: Noise) -> ClassSums:
    """What is taken from rows (n, d) of classes (n,): noise of variance sigma² on sums, twice that on all else."""
    sums, counts, moment = exact_sums(on_grid(rows), which, n_classes)
    variance = ceil((sigma * GRID**2) ** 2)
    sums += noise(variance, sums.size).reshape(sums.shape)
    counts += noise(2 * variance, n_classes)
    moment += symmetric_noise(len(moment), sqrt(2) * sigma, noise)
    return ClassSums(*(part / float(GRID) ** 2 for part in (sums, counts, moment)))


def class_directions(found: ClassSums, agreed: NDArray[np.str_], sigma: float) -> ClassSignatures:
    """Directions of the classes that stand out of the noise, with simulated split-half angles."""
    candidates = np.flatnonzero(found.counts >= max(float(FEWEST), SEEN * sqrt(2) * sigma)).tolist()
    spread, rng = sampling_directions(found, candidates, sigma), np.random.default_rng(SEED)
    variances = sampling_variances(found, candidates, sigma)
    simulated = {
        c: _simulated_angles(found.sums[c], float(found.counts[c]), sqrt(variance) * spread, sigma, rng)
        for c, variance in zip(candidates, variances.tolist(), strict=True)
    }
    seen = [c for c, angles in simulated.items() if np.mean(angles**2) < MOST_NOISE**2]
    directions = np.zeros((RANK, len(found.moment), len(seen)))
    angles = np.full((RANK, len(seen), SPLITS), 90.0)  # of later directions, which there are none of
    directions[0] = _direction(found.sums[seen], found.counts[seen]).T
    angles[0] = np.reshape([simulated[c] for c in seen], (len(seen), SPLITS))
    counts = np.rint(found.counts[seen]).astype(np.int64)
    return ClassSignatures(tuple(str(agreed[c]) for c in seen), counts, directions, angles, private=True)


def sampling_directions(found: ClassSums, classes: list[int], sigma: float) -> Array:
    """A square root of the covariance within classes, of trace 1, as far as it can be seen: (d, d)."""
    moment, sums = found.moment, found.sums[classes]
    values, vectors = np.linalg.eigh(moment - (sums.T / found.counts[classes]) @ sums)
    strengths = without_noise(np.asarray(values[::-1], dtype=np.float64), sqrt(2) * sigma)
    total = float(strengths.sum())
    if total <= 0:
        return np.eye(len(moment)) / sqrt(len(moment))
    return np.asarray(vectors[:, ::-1] * np.sqrt(strengths / total))


def sampling_variances(found: ClassSums, classes: list[int], sigma: float) -> Array:
    """Of samples around the means of their classes: (classes,). They are 1 long, so that it is 1 - |mean|².

    That of few samples is shrunk towards that of all.
    """
    counts, sums = found.counts[classes], found.sums[classes]
    squares = ((sums**2).sum(axis=1) - sums.shape[1] * sigma**2) / counts**2
    own: Array = ((1 - squares) * counts / (counts - 1)).clip(0.0, 1.0)
    if not len(own):
        return own
    return np.asarray((counts * own + SHRUNK * np.average(own, weights=counts)) / (counts + SHRUNK))


def _simulated_angles(sums: Array, count: float, spread: Array, sigma: float, rng: np.random.Generator) -> Array:
    """Degrees between two directions of a class, each with its own samples and noise: (splits,)."""
    d = len(sums)
    square = float(sums @ sums)
    signal = max(square - d * sigma**2, 0.0)  # noise makes sums longer
    mean = sums / count * sqrt(signal / square) if square > 0 else sums
    draws = rng.standard_normal((SIMULATED, 2, 2, d))
    noisy = count * mean + sqrt(count) * draws[:, :, 0] @ spread.T + sigma * draws[:, :, 1]
    counts = count + sqrt(2) * sigma * rng.standard_normal((SIMULATED, 2))
    first, second = np.moveaxis(_direction(noisy, counts), 1, 0)
    squares = np.degrees(np.arccos(np.abs((first * second).sum(axis=1)).clip(max=1.0))) ** 2
    return np.sqrt(_representatives(squares))


def _direction(sums: Array, counts: ArrayLike) -> Array:
    """Of the mean, seen from the origin of all directions: (..., d) of length 1."""
    d = sums.shape[-1]
    seen = sums / np.asarray(counts)[..., None] + ORIGIN / sqrt(d)
    return np.asarray(seen / np.linalg.norm(seen, axis=-1, keepdims=True))


def _representatives(squares: Array) -> Array:
    """Few values with the mean and the variance of many."""
    few = np.quantile(squares, (np.arange(SPLITS) + 0.5) / SPLITS)
    spread = few.std()
    stretched = squares.mean() + (few - few.mean()) * (squares.std() / spread if spread > 0 else 0.0)
    return np.asarray(stretched.clip(min=0.0, max=90.0**2))
