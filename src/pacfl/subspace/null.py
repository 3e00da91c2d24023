"""Heights that chance reaches: merges of homogeneous federations, simulated with their size, noise and linkage."""

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.cluster.hierarchy import linkage as scipy_linkage
from scipy.optimize import brentq
from scipy.spatial.distance import cdist, pdist, squareform
from scipy.stats import chi2

from pacfl.subspace.hierarchy import Linkage
from pacfl.subspace.noise_scale import RESOLUTION, nearest

Array = NDArray[np.float64]

SIMULATIONS: Final = 500  # federations drawn under the null: enough to know the scale of its maxima to 5 %
PANEL: Final = 300  # clients at most in one simulation, so that it takes seconds for any federation
DIRECTIONS: Final = 200  # of noise at most
SMALL: Final = 0.02  # share of the noise that is left out
FEWEST: Final = 20  # maxima from which a limit is known
ACCURACY: Final = 0.15  # of noise scales: a height that exceeds the typical one by less is no difference
MOST_SPREAD: Final = 3.0  # times that of a typical client, which one client may add to the spread of all


def null_limits(
    noise_scale: Array, known: bool, energies: Array, linkage: Linkage, error_rate: float, rng: np.random.Generator
) -> tuple[Array, float]:
    """Heights, in units of noise, that merges of a homogeneous federation pass with probability error_rate in all.

    ->  (classes,) for merges whose smaller side has at least 1, 2, 4, 8, ... clients, and the median of the highest.

    A client's signature is the common one plus noise. The noise is a vector whose squared length is drawn from the
    client's own split-half angles (mean 1), in as many dimensions as the spread of those implies: a squared length with
    variance 2 / d is that of a normal vector in d dimensions, some of them stronger than others. known: whether clients
    know their noise, or it is the distance to the nearest neighbour, in the simulations too.
    """
    n = len(noise_scale)
    if n == 1 and known:  # what a newcomer of its distribution would pass
        twice = np.repeat(noise_scale, 2), known, np.repeat(energies, 2, axis=0)
        return null_limits(*twice, linkage, error_rate, rng)
    if n < 2:
        return np.ones(1), 1.0
    spectrum = noise_spectrum(noise_dimension(energies))
    bounded = _bounded(energies)
    panel = min(n, PANEL)
    pairs = np.triu_indices(panel, 1)
    draws = (_null_draw(noise_scale, known, bounded, spectrum, pairs, rng) for _ in range(SIMULATIONS))
    maxima = np.array([highest(scipy_linkage(draw, linkage), panel) for draw in draws])
    return limits_of_all(maxima, n, panel, linkage, error_rate, ACCURACY)


def limits_of_all(
    maxima: Array, n: int, panel: int, linkage: Linkage, error_rate: float, accuracy: float = 0.0
) -> tuple[Array, float]:
    """The limits of n clients from the highest merges of random panels of them: (simulations, classes of the panel).

    The highest merge of n clients is the highest of n / panel panels: a limit that they all pass with probability r is
    one that a panel passes with r · panel / n. The furthest two of n clients, which complete linkage merges, are of
    (n / panel)² pairs of panels. Groups of clients by chance are larger among more clients, though less than in
    proportion; Ward's heights grow with the root of the size of groups. No limit is nearer to the typical height than
    the noise is known.
    """
    share, classes = panel / n, n.bit_length() - 1
    rate = error_rate / classes * (share**2 if linkage == "complete" else share)
    # A class with too few merges has the limit of the one below it, which contains it
    limits = np.fmin.accumulate([_limit(column[column > 0], rate, accuracy) for column in maxima.T])
    like = np.log2(np.maximum(2.0 ** np.arange(classes) * np.sqrt(share), 1.0)).astype(np.intp)
    grown = 1 / np.sqrt(share) if linkage == "ward" else 1.0
    typical = np.quantile(maxima[:, 0], 0.5**share) * grown
    return limits[np.minimum(like, len(limits) - 1)] * grown, float(typical)


def _limit(maxima: Array, rate: float, accuracy: float) -> float:
    limit = gumbel_limit(maxima, rate)
    return limit if np.isnan(limit) else float(max(limit, (1 + accuracy) * np.median(maxima)))


def gumbel_limit(maxima: Array, rate: float) -> float:
    """What a maximum passes with probability `rate`, by the extreme-value law fitted to the moments of many."""
    if len(maxima) < FEWEST:
        return np.nan
    scale = maxima.std() * np.sqrt(6) / np.pi
    return float(maxima.mean() - np.euler_gamma * scale - scale * np.log(-np.log1p(-rate)))


def _null_draw(
    noise_scale: Array,
    known: bool,
    energies: Array,
    spectrum: Array,
    pairs: tuple[NDArray[np.intp], ...],
    rng: np.random.Generator,
) -> Array:
    """Condensed proximity, in units of noise, of clients of one distribution: at most a panel of them."""
    n = len(noise_scale)
    panel = np.arange(n) if n <= PANEL else rng.choice(n, PANEL, replace=False)
    scale = noise_scale[panel]
    distances: Array = pdist(_noise(scale, energies[panel], spectrum, rng))
    if not known:
        scale = np.maximum(nearest(squareform(distances)), RESOLUTION)
    i, j = pairs
    squares = scale**2 / 2
    ratios: Array = distances / np.sqrt(squares[i] + squares[j])
    return ratios


def _noise(scale: Array, energies: Array, spectrum: Array, rng: np.random.Generator) -> Array:
    """What sampling adds to the common signature, for each client: (n, directions of noise)."""
    energy = energies[np.arange(len(scale)), rng.integers(energies.shape[1], size=len(scale))]
    noise: Array = rng.standard_normal((len(scale), len(spectrum))) * np.sqrt(spectrum)
    noise *= (scale * np.sqrt(energy / 2 / (noise**2).sum(axis=1)))[:, None]
    return noise


def placing_limit(
    noise_scale: Array, energies: Array, members: int, n: int, error_rate: float, rng: np.random.Generator
) -> float:
    """The mean distance from `members` clients that some of n clients of their distribution passes by chance.

    In units of noise; with probability error_rate in all. noise_scale (m,), energies (m, draws): of clients drawn at
    random from the n, two or more. The noise is that of `null_limits`.
    """
    spectrum, bounded = noise_spectrum(noise_dimension(energies)), _bounded(energies)
    maxima = np.empty(SIMULATIONS)
    for i in range(SIMULATIONS):
        drawn = rng.integers(len(noise_scale), size=members + PANEL)
        scale = noise_scale[drawn]
        noise = _noise(scale, bounded[drawn], spectrum, rng)
        squares = scale**2 / 2
        pairs = np.sqrt(np.add.outer(squares[members:], squares[:members]))
        maxima[i] = (cdist(noise[members:], noise[:members]) / pairs).mean(axis=1).max()
    return _limit(maxima, error_rate * PANEL / n, ACCURACY)


def highest(tree: Array, n: int) -> Array:
    """Height of the highest merge whose smaller side has at least 1, 2, 4, ... clients; 0 where there is none."""
    classes = size_classes(tree)
    heights = np.zeros(n.bit_length() - 1)
    np.maximum.at(heights, classes, np.where(np.isfinite(tree[:, 2]), tree[:, 2], 0.0))
    return np.maximum.accumulate(heights[::-1])[::-1]


def size_classes(tree: Array) -> NDArray[np.intp]:
    """0, 1, 2, ... for merges whose smaller side has 1, 2 or 3, 4 to 7, ... clients: (n - 1,)."""
    n = len(tree) + 1
    sizes = np.concatenate([np.ones(n), tree[:, 3]])
    smaller = sizes[tree[:, :2].astype(np.intp)].min(axis=1)
    classes: NDArray[np.intp] = np.log2(smaller).astype(np.intp)
    return classes


def noise_energies(proximity: Array, own: Sequence[Array]) -> Array:
    """Squared lengths of each client's noise, mean 1: its squared split-half angles over their mean: (n, draws).

    A client without any is given those of normal noise, in as many dimensions as the others show, or, if no client
    has any, as nearest neighbours show by the ratio of the second to the first (Facco and others, 2017).
    """
    measured = [a**2 / np.mean(a**2) if a.any() else np.empty(0) for a in own]
    draws = max((len(m) for m in measured), default=0) or SIMULATIONS
    some = [np.resize(m, draws) for m in measured if len(m)]
    dimension = noise_dimension(np.stack(some)) if some else _neighbourhood_dimension(proximity)
    normal = chi2.ppf((np.arange(draws) + 0.5) / draws, dimension) / dimension
    return np.stack([np.resize(m, draws) if len(m) else normal for m in measured])


def noise_dimension(energies: Array) -> float:
    """Of normal noise with this spread; one client, whatever it sends, hardly changes it."""
    spreads = energies.var(axis=1)
    return float(2 / max(np.minimum(spreads, MOST_SPREAD * np.median(spreads)).mean(), 1e-3))


def _bounded(energies: Array) -> Array:
    """No energy above the largest of any other client."""
    bounded: Array = np.minimum(energies, np.sort(energies.max(axis=1))[-2])
    return bounded


def _neighbourhood_dimension(proximity: Array) -> float:
    if len(proximity) < 3:
        return 1.0
    near = proximity.copy()
    np.fill_diagonal(near, np.inf)
    near.partition(1, axis=1)
    first, second = np.maximum(near[:, :2], RESOLUTION).T
    return float(np.clip(len(near) / max(np.log(second / first).sum(), 1e-3), 1, 1000))


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
    shares = shares[: int(np.searchsorted(np.cumsum(shares), 1 - SMALL)) + 1]
    return np.asarray(shares / shares.sum())
