"""Heights that chance reaches when classes are compared: federations of one distribution, simulated."""

from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.stats import gamma

from pacfl.subspace.null import FEWEST, PANEL, limits_of_all, noise_spectrum
from pacfl.subspace.pairs import ClassNoise
from pacfl.subspace.weighted import Limits, by_height, contrasts

Array = NDArray[np.float64]
Floats = NDArray[np.float32]

SIMULATIONS: Final = 200
AT_ONCE: Final = 1 << 20  # numbers in a matrix of simulations
CLASSES: Final = 24  # that are simulated one by one


def class_limits(noise: ClassNoise, error_rate: float, rng: np.random.Generator) -> tuple[Limits, float]:
    """What merges of a homogeneous federation pass at the error rate in all, and the median of its highest merge.

    Of more than `PANEL` clients a sample is simulated, as for inputs.
    """
    n = len(noise.variances)
    if n < 2:
        return by_height(np.ones(1)), 1.0
    variances = (noise.variances / noise.reference**2).astype(np.float32)
    panel = min(n, PANEL)
    at_once = max(1, AT_ONCE // panel**2)
    batches = [min(at_once, SIMULATIONS - start) for start in range(0, SIMULATIONS, at_once)]
    parts = [_heights(*_null_sums(_sample(variances, rng), noise.spread, batch, rng)) for batch in batches]
    maxima, contrast = (np.concatenate(part) for part in zip(*parts, strict=True))
    if np.count_nonzero(maxima[:, 0]) < FEWEST:
        return by_height(np.full(1, np.inf)), 0.0  # no two clients have a common class
    limits, highest = limits_of_all(maxima, n, panel, "average", error_rate / 2)
    of_contrasts, _ = limits_of_all(contrast, n, panel, "average", error_rate / 2)
    return Limits(limits, np.where(np.isnan(of_contrasts), np.inf, of_contrasts)), highest


def _sample(variances: Floats, rng: np.random.Generator) -> Floats:
    if len(variances) <= PANEL:
        return variances
    return variances[rng.choice(len(variances), PANEL, replace=False)]


def _null_sums(variances: Floats, spread: Array, batch: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Σ w T and Σ w of clients that have the same distribution, for many federations: (batch, n, n), (n, n).

    variances (n, classes, rank) in units of noise, infinite where a client has no such direction. Of very many classes
    those with most evidence are simulated, and the sum of all others is normal.
    """
    n = len(variances)
    squares, weights = np.zeros((batch, n, n), np.float32), np.zeros((n, n), np.float32)
    order = np.argsort(-(1 / variances).sum(axis=(0, 2)), kind="stable")
    for c in order[:CLASSES].tolist():
        of_class = variances[:, c]
        anybody = np.flatnonzero(np.isfinite(of_class).any(axis=1))
        if len(anybody) < 2:
            continue
        spectra = [np.sqrt(noise_spectrum(dimensions)).astype(np.float32) for dimensions in spread[c]]
        # Directions of one class turn together
        drawn = rng.standard_normal((batch, len(anybody), max(map(len, spectra))), np.float32)
        for variance, scales in zip(of_class[anybody].T, spectra, strict=True):
            has = np.isfinite(variance)
            if has.sum() < 2:
                continue
            own = variance[has]
            errors = drawn[:, has, : len(scales)] * (scales * np.sqrt(own / 2)[:, None])
            lengths = (errors**2).sum(axis=2)
            weight = 2 / (own[:, None] + own)
            squared = errors @ errors.swapaxes(1, 2)
            squared *= -2
            squared += lengths[:, :, None]
            squared += lengths[:, None]
            np.maximum(squared, 0.0, out=squared)
            squared *= weight**2
            if len(own) == n:
                squares += squared
                weights += weight
            else:
                at = np.ix_(anybody[has], anybody[has])
                squares[:, *at] += squared
                weights[at] += weight
    if len(order) > CLASSES:
        _add_normal(squares, weights, variances[:, order[CLASSES:]], spread[order[CLASSES:]], rng)
    return squares, weights


def _add_normal(squares: Floats, weights: Floats, variances: Floats, spread: Array, rng: np.random.Generator) -> None:
    """Add the sums over many classes: normal, with the part of each client's own noise and that of each pair."""
    batch, n, _ = squares.shape
    total, of_clients, of_pairs = (np.zeros((n, n), np.float32) for _ in range(3))
    for variance, of_class in zip(variances.swapaxes(0, 1), spread, strict=True):
        for own, dimensions in zip(variance.T, of_class, strict=True):
            owners = np.flatnonzero(np.isfinite(own))
            at, own = np.ix_(owners, owners), own[owners]
            weight = 2 / (own[:, None] + own)
            total[at] += weight
            of_clients[at] += weight**4 * (own**2)[:, None] / (2 * dimensions)
            of_pairs[at] += weight**4 * own[:, None] * own / dimensions
    each = rng.standard_normal((batch, n, 1), np.float32) * np.sqrt(of_clients)
    upper = np.triu(rng.standard_normal((batch, n, n), np.float32), 1)
    noise = each + each.swapaxes(1, 2) + (upper + upper.swapaxes(1, 2)) * np.sqrt(of_pairs)
    squares += np.maximum(total + noise, 0.0)
    weights += total


def _heights(squares: Floats, weights: Floats) -> tuple[Array, Array]:
    """Highest merges of `weighted_merges`, and highest contrasts, for many federations at once.

    squares (batch, n, n), weights (n, n)  ->  (batch, classes of size) twice. Every cluster remembers its nearest.
    """
    batch, n, _ = squares.shape
    weights = np.broadcast_to(weights, squares.shape).copy()
    highest, contrast = np.zeros((2, batch, n.bit_length() - 1))
    inside = np.zeros((2, batch, n))  # Σ squares and Σ weights of the pairs of a cluster
    every, sizes = np.arange(batch), np.ones((batch, n), dtype=np.intp)
    distances = np.full(squares.shape, np.inf, np.float32)
    np.divide(squares, weights, out=distances, where=weights > 0)
    distances[:, np.arange(n), np.arange(n)] = np.inf
    near = distances.argmin(axis=2)
    least = np.take_along_axis(distances, near[:, :, None], axis=2)[:, :, 0]
    for _ in range(n - 1):
        a = least.argmin(axis=1)
        b, height = near[every, a], least[every, a]
        done = np.isfinite(height)  # nothing is left to merge elsewhere
        some, i, j = every[done], a[done], b[done]
        least_size = np.minimum(sizes[some, i], sizes[some, j])
        smaller = np.log2(least_size).astype(np.intp)
        np.maximum.at(highest, (some, smaller), height[done])
        both = inside[:, some, i] + inside[:, some, j]
        np.maximum.at(contrast, (some, smaller), contrasts(np.sqrt(height[done]), both, least_size))
        inside[:, some, i] = both + np.stack([squares[some, i, j], weights[some, i, j]])
        apart = np.isinf(distances[some, i]) & np.isinf(distances[some, j])  # merged before, or without evidence
        for sums in (squares, weights):
            sums[some, i] += sums[some, j]
            sums[some, :, i] = sums[some, i]
        sizes[some, i] += sizes[some, j]
        row = np.full((len(some), n), np.inf, np.float32)
        np.divide(squares[some, i], weights[some, i], out=row, where=(weights[some, i] > 0) & ~apart)
        row[np.arange(len(some)), i] = np.inf
        row[np.arange(len(some)), j] = np.inf
        distances[some, i] = distances[some, :, i] = row
        distances[some, j] = distances[some, :, j] = np.inf
        stale = (near[some] == i[:, None]) | (near[some] == j[:, None])
        stale[np.arange(len(some)), i] = stale[np.arange(len(some)), j] = True
        at, clusters = np.nonzero(stale)
        rows = distances[some[at], clusters]
        near[some[at], clusters] = rows.argmin(axis=1)
        least[some[at], clusters] = rows.min(axis=1)
        closer = row < least[some]  # a merged cluster is not nearer than its parts were, but for rounding
        at, clusters = np.nonzero(closer)
        near[some[at], clusters] = i[at]
        least[some[at], clusters] = row[at, clusters]
    return _at_least(np.sqrt(highest)), _at_least(contrast)


def _at_least(maxima: Array) -> Array:
    """Of groups of at least a size, from those of each class of size: (batch, classes of size)."""
    return np.maximum.accumulate(maxima[:, ::-1], axis=1)[:, ::-1]


def newcomer_limit(noise: ClassNoise, newcomer: int, members: NDArray[np.intp], error_rate: float) -> float:
    """The distance from a cluster, in units of noise, that a newcomer of its distribution passes at the error rate."""
    variance = newcomer_variance(noise, newcomer, members)
    return float(np.sqrt(gamma.isf(error_rate, 1 / variance, scale=variance)))


def newcomer_variance(noise: ClassNoise, newcomer: int, members: NDArray[np.intp]) -> float:
    """Of the squared distance, mean 1, of a newcomer from a cluster of its distribution, in units of noise.

    The squared distance is a weighted mean over directions of squared lengths of noise, with variance 2 / d each: its
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
    return float(((2 / noise.spread).ravel()[used] * shares[used] ** 2 * spread).sum())
