"""Heights that chance reaches: merges of homogeneous federations, simulated with their size, noise and linkage."""

from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import pdist, squareform
from scipy.stats import chi2

from pacfl.subspace.hierarchy import Linkage, merges
from pacfl.subspace.noise_scale import RESOLUTION, nearest, rescale_by_noise

Array = NDArray[np.float64]

SIMULATIONS: Final = 500  # federations drawn under the null: enough to know the scale of its maxima to 5 %
PANEL: Final = 300  # clients at most in one simulation, so that it takes seconds for any federation


def null_limits(
    noise_scale: Array,
    known: NDArray[np.bool_],
    energies: Array,
    linkage: Linkage,
    error_rate: float,
    rng: np.random.Generator,
) -> tuple[Array, float]:
    """Heights, in units of noise, that merges of a homogeneous federation pass with probability error_rate in all.

    ->  (classes,) for merges whose smaller side has at least 1, 2, 4, 8, ... clients, and the median of the highest.

    A client's signature is the common one plus noise. The noise is a vector whose squared length is drawn from the
    client's own split-half angles (mean 1) and whose direction is uniform in as many dimensions as the spread of those
    implies: a squared length with variance 2 / d is that of a normal vector in d dimensions.
    """
    n = len(noise_scale)
    if n < 2:
        return np.ones(1), 1.0
    dimensions = int(np.clip(np.rint(2 / max(energies.var(), 1e-9)), 1, 1000))
    draws = (_null_draw(noise_scale, known, energies, dimensions, rng) for _ in range(SIMULATIONS))
    maxima = np.array([highest(merges(ratio, linkage), n) for ratio in draws])
    rate = error_rate / maxima.shape[1]
    limits = [gumbel_limit(column[column > 0], rate) for column in maxima.T]
    # A class with too few merges has the limit of the one below it, which contains it
    return np.fmin.accumulate(limits), float(np.median(maxima[:, 0]))


def gumbel_limit(maxima: Array, rate: float) -> float:
    """What a maximum passes with probability `rate`, by the extreme-value law fitted to the moments of many."""
    if len(maxima) < 20:
        return np.nan
    scale = maxima.std() * np.sqrt(6) / np.pi
    return float(maxima.mean() - np.euler_gamma * scale - scale * np.log(-np.log1p(-rate)))


def _null_draw(
    noise_scale: Array, known: NDArray[np.bool_], energies: Array, dimensions: int, rng: np.random.Generator
) -> Array:
    """Proximity, in units of noise, of clients of one distribution."""
    energy = rng.permuted(energies, axis=1)[:, 0]
    if len(noise_scale) > PANEL:
        # Outliers merge last: a tenth of the panel are the largest outliers, the others are a sample of the rest
        order = np.argsort(-energy)
        rest = rng.choice(order[PANEL // 10 :], PANEL - PANEL // 10, replace=False)
        panel = np.concatenate([order[: PANEL // 10], rest])
        energy, noise_scale, known = energy[panel], noise_scale[panel], known[panel]
    noise = rng.standard_normal((len(noise_scale), dimensions))
    noise *= (noise_scale * np.sqrt(energy / 2 / (noise**2).sum(axis=1)))[:, None]
    distances = squareform(pdist(noise))
    return rescale_by_noise(
        distances, np.where(known, noise_scale, np.maximum(nearest(distances), RESOLUTION)), reference=1.0
    )


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


def noise_energies(proximity: Array, own: list[Array]) -> Array:
    """Squared lengths of each client's noise, mean 1: its squared split-half angles over their mean: (n, draws).

    A client without any is given those of normal noise, in as many dimensions as the others show, or, if no client
    has any, as nearest neighbours show by the ratio of the second to the first (Facco and others, 2017).
    """
    measured = [a**2 / np.mean(a**2) if a.any() else np.empty(0) for a in own]
    draws = max((len(m) for m in measured), default=0) or SIMULATIONS
    pooled = np.concatenate(measured)
    dimension = 2 / max(pooled.var(), 1e-3) if len(pooled) else _neighbourhood_dimension(proximity)
    normal = chi2.ppf((np.arange(draws) + 0.5) / draws, dimension) / dimension
    return np.stack([np.resize(m, draws) if len(m) else normal for m in measured])


def _neighbourhood_dimension(proximity: Array) -> float:
    if len(proximity) < 3:
        return 1.0
    near = np.maximum(np.sort(proximity + np.diag(np.full(len(proximity), np.inf)), axis=1), RESOLUTION)
    return float(np.clip(len(near) / max(np.log(near[:, 1] / near[:, 0]).sum(), 1e-3), 1, 1000))
