"""Heights that chance reaches when classes are compared: federations of one distribution, simulated."""

from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.stats import gamma

from pacfl.subspace.null import PANEL, gumbel_limit
from pacfl.subspace.pairs import ClassNoise

Array = NDArray[np.float64]
Floats = NDArray[np.float32]

SIMULATIONS: Final = 200
AT_ONCE: Final = 1 << 20  # numbers in a matrix of simulations
DIRECTIONS: Final = 200  # of noise at most
SMALL: Final = 0.02  # share of the noise that is left out


def class_limits(noise: ClassNoise, error_rate: float, rng: np.random.Generator) -> tuple[Array, float]:
    """Heights that merges of a homogeneous federation pass with probability error_rate in all; the median highest.

    ->  (classes of size,) for merges whose smaller side has at least 1, 2, 4, 8, ... clients, in units of noise.
    """
    n = len(noise.variances)
    if n < 2:
        return np.ones(1), 1.0
    scales = np.sqrt(noise_spectrum(noise.dimensions)).astype(np.float32)
    variances = (noise.variances / noise.reference**2).reshape(n, -1).astype(np.float32)
    at_once = max(1, AT_ONCE // min(n, PANEL) ** 2)
    batches = [min(at_once, SIMULATIONS - start) for start in range(0, SIMULATIONS, at_once)]
    maxima = np.vstack([_highest_merges(*_null_sums(variances, scales, batch, rng), n) for batch in batches])
    limits = [gumbel_limit(column[column > 0], error_rate / maxima.shape[1]) for column in maxima.T]
    if np.isnan(limits[0]):
        limits[0] = np.inf  # no two clients have a common class
    return np.fmin.accumulate(limits), float(np.median(maxima[:, 0]))


def _null_sums(variances: Floats, scales: Floats, batch: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Σ w T and Σ w of clients that have the same distribution, for many federations: (batch, n, n) each.

    variances (n, directions) in units of noise, infinite where a client has no such direction.
    """
    if len(variances) > PANEL:
        variances = variances[rng.choice(len(variances), PANEL, replace=False)]
    n = len(variances)
    squares, weights = np.zeros((batch, n, n), np.float32), np.zeros((n, n), np.float32)
    for variance in variances.T:
        owners = np.flatnonzero(np.isfinite(variance))
        if len(owners) < 2:
            continue
        own = variance[owners]
        errors = rng.standard_normal((batch, len(owners), len(scales)), np.float32) * (
            scales * np.sqrt(own / 2)[:, None]
        )
        lengths = (errors**2).sum(axis=2)
        squared = lengths[:, :, None] + lengths[:, None] - 2 * errors @ errors.swapaxes(1, 2)
        weight = 2 / (own[:, None] + own)
        at = np.ix_(owners, owners)
        squares[:, at[0], at[1]] += weight**2 * np.maximum(squared, 0.0)
        weights[at] += weight
    return squares, np.broadcast_to(weights, squares.shape).copy()


def _highest_merges(squares: Floats, weights: Floats, n_clients: int) -> Array:
    """As `highest` of `weighted_merges`, for many federations at once: (batch, n, n) -> (batch, classes of size)."""
    batch, n, _ = squares.shape
    heights = np.zeros((batch, n_clients.bit_length() - 1))
    every, sizes = np.arange(batch), np.ones((batch, n), dtype=np.intp)
    distances = np.full(squares.shape, np.inf, np.float32)
    np.divide(squares, weights, out=distances, where=weights > 0)
    distances[:, np.arange(n), np.arange(n)] = np.inf
    for _ in range(n - 1):
        i, j = np.divmod(distances.reshape(batch, -1).argmin(axis=1), n)
        height = distances[every, i, j]
        done = np.isfinite(height)  # where nothing is left to merge, i is j is 0
        smaller = np.log2(np.minimum(sizes[every, i], sizes[every, j])).astype(np.intp)
        np.maximum.at(heights, (every[done], smaller[done]), height[done])
        some, a, b = every[done], i[done], j[done]
        for sums in (squares, weights):
            sums[some, a] += sums[some, b]
            sums[some, :, a] = sums[some, a]
        sizes[some, a] += sizes[some, b]
        row = np.full((len(some), n), np.inf, np.float32)
        np.divide(squares[some, a], weights[some, a], out=row, where=weights[some, a] > 0)
        row[np.isinf(distances[some, a]) & np.isinf(distances[some, b])] = np.inf  # merged before, or without evidence
        row[np.arange(len(some)), a] = np.inf
        row[np.arange(len(some)), b] = np.inf
        distances[some, a] = distances[some, :, a] = row
        distances[some, b] = distances[some, :, b] = np.inf
    return np.sqrt(np.maximum.accumulate(heights[:, ::-1], axis=1)[:, ::-1])


def newcomer_limit(noise: ClassNoise, newcomer: int, members: NDArray[np.intp], error_rate: float) -> float:
    """The distance from a cluster, in units of noise, that a newcomer of its distribution passes at the error rate.

    Its squared distance is a weighted mean over directions of squared lengths of noise, with variance 2 / d each: its
    own noise, in full, and the members', which their number averages out. Such a sum is nearly gamma distributed.
    """
    variances = (noise.variances / noise.reference**2).reshape(len(noise.variances), -1)
    own, others = variances[newcomer], variances[members]
    both = np.isfinite(own) & np.isfinite(others)
    sums = np.where(both, own + others, np.inf)
    weights = (2 / sums).sum(axis=0)
    shares = weights / weights.sum()
    used = shares > 0
    own_part = (np.where(both, own, 0.0) / sums * (2 / sums)).sum(axis=0)[used] / weights[used]
    count = both.sum(axis=0)[used]
    spread = own_part**2 + ((1 - own_part) ** 2 + 2 * own_part * (1 - own_part)) / count
    variance = 2 / noise.dimensions * (shares[used] ** 2 * spread).sum()
    return float(np.sqrt(gamma.isf(error_rate, 1 / variance, scale=variance)))


def noise_spectrum(dimensions: float) -> Array:
    """Shares of the noise in its directions, strongest first: k^-a, with a such that (Σ)² / Σ² is `dimensions`.

    Noise of real data is not the same in all directions: on CIFAR-10 the strongest has an eighth to a quarter of
    it, as this law says. Noise that is equal in all directions would pull apart groups of clients less.
    """
    k = np.arange(1.0, DIRECTIONS + 1)

    def excess(a: float) -> float:
        return float((k**-a).sum() ** 2 / (k ** (-2 * a)).sum() - dimensions)

    if dimensions <= 1.001:
        return np.ones(1)
    shares = k ** -brentq(excess, 0.0, 12.0) if excess(0.0) > 0 else np.ones(DIRECTIONS)
    shares /= shares.sum()
    strongest: Array = shares[: int(np.searchsorted(np.cumsum(shares), 1 - SMALL)) + 1]
    return strongest
