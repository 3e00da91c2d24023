"""Every two clients compared class by class, in units of sampling noise, with the evidence behind each comparison.

For a direction of class c of clients i and j, T = angle² / s² with s² = (noise_ic² + noise_jc²) / 2: its mean is 1 if
both have the same distribution, whatever their sizes. Its evidence is w = 1 / s², in units of what is typical of that
direction: an angle that is known well counts more. Over all directions of classes that both have, Σ w T / Σ w is the
squared distance of the pair in units of noise. A pair without common classes has no evidence, Σ w = 0.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import polygamma

from pacfl.subspace.classes import RANK, ClassSignatures
from pacfl.subspace.noise_scale import RESOLUTION

Array = NDArray[np.float64]

FREEDOM: Final = 2.0  # degrees that a sample adds to the noise of its class: about 2.5 on sets of images
DOUBTFUL: Final = 2.0  # standard deviations by which a client's own noise may differ from that of others by chance
MOST_NOISE: Final = 60.0  # degrees: a direction that samples determine no better is not compared
KNOWN: Final = 1e6  # degrees² × samples: of simulated noise, which no other client knows better
TYPICAL: Final = 4.0  # classes whose noise differs from the median by more than this factor have no part in the mean


@dataclass(frozen=True, eq=False)
class ClassPairs:
    """Sums over common classes for every two clients, the diagonal 0; rows of them for newcomers."""

    squares: Array  # (n, n) Σ w T
    weights: Array  # (n, n) Σ w, in units of 1 / reference²; 0 without common classes
    precisions: Array  # (n, n) Σ w²

    def ratios(self) -> Array:
        """Distances in units of noise; NaN without common classes."""
        with np.errstate(invalid="ignore"):
            return np.sqrt(self.squares / self.weights)

    @property
    def parts(self) -> tuple[Array, Array, Array]:
        """Squares, weights and precisions."""
        return self.squares, self.weights, self.precisions

    def subset(self, rows: NDArray[np.intp]) -> "ClassPairs":
        """The comparisons of some clients."""
        return ClassPairs(*(part[np.ix_(rows, rows)] for part in self.parts))

    def rescaled(self, excess: float) -> "ClassPairs":
        """The same if the noise had `excess` times the variance."""
        return replace(self, squares=self.squares / excess)


@dataclass(frozen=True, eq=False)
class ClassNoise:
    """The sampling noise of every direction of every class of every client."""

    names: tuple[str, ...]  # of all classes
    variances: Array  # (n, classes, rank) degrees²; infinite where a client has no such direction, or too noisy a one
    typical: Array  # (classes, rank) degrees² × samples
    reference: Array  # (rank,) degrees: the noise of each direction of a typical class of a typical client
    dimensions: float  # of the noise: a squared length of variance 2 / d, mean 1, has d

    def only(self, which: Sequence[int]) -> "ClassNoise":
        """As if classes had only some of the directions."""
        others = [k for k in range(self.variances.shape[2]) if k not in which]
        variances = self.variances.copy()
        variances[:, :, others] = np.inf
        return replace(self, variances=variances)

    def subset(self, rows: NDArray[np.intp]) -> "ClassNoise":
        """The noise of some clients."""
        return replace(self, variances=self.variances[rows])


def class_noise(clients: Sequence[ClassSignatures], known: ClassNoise | None = None) -> ClassNoise:
    """The noise of directions, from the split-half angles of all clients.

    Noise falls with the root of the sample count, and a class has about the same in all clients: its mean over clients
    is far better known than from the few samples of one. Where clients, or classes of clients, differ from that by more
    than chance explains, they have their own. known: of former clients, with which newcomers are compared.
    """
    names = tuple(sorted({name for client in clients for name in client.names} | set(known.names if known else ())))
    at = {name: k for k, name in enumerate(names)}
    own = np.full((len(clients), len(names), RANK), np.nan)
    size = np.zeros((len(clients), len(names), 1))
    for i, client in enumerate(clients):
        columns = [at[name] for name in client.names]
        means = np.maximum((client.split_half_angles**2).mean(axis=2), RESOLUTION**2)  # (rank, classes)
        # Noise for privacy is known, and does not fall as that of samples: as many samples as would be as sure of it
        counts = KNOWN / means[0] if client.private else client.counts
        own[i, columns] = np.where(means < MOST_NOISE**2, means * counts, np.nan).T
        size[i, columns, 0] = counts
    freedom = np.where(np.isnan(own), 0.0, FREEDOM * (size - 1))
    typical = _typical(own, freedom)
    if known is not None:
        former = dict(zip(known.names, known.typical, strict=True))
        typical = np.array([former.get(name, new) for name, new in zip(names, typical, strict=True)])
    pooled = _shrunk(own, freedom, typical)
    variances = np.where(np.isnan(own), np.inf, pooled / np.maximum(size, 1))
    if known is not None:
        return ClassNoise(names, variances, typical, known.reference, known.dimensions)
    finite = [variances[..., k][np.isfinite(variances[..., k])] for k in range(RANK)]
    reference = np.array([np.sqrt(np.median(of_all)) if len(of_all) else 1.0 for of_all in finite])
    return ClassNoise(names, variances, typical, reference, _dimensions(clients))


def compare_classes(clients: Sequence[ClassSignatures], noise: ClassNoise, newcomers: int | None = None) -> ClassPairs:
    """Comparisons of all clients: (n, n), or of the last `newcomers` with all: (newcomers, n)."""
    n = len(clients)
    rows = np.arange(n) if newcomers is None else np.arange(n - newcomers, n)
    sums = np.zeros((3, len(rows), n))
    index = [{name: k for k, name in enumerate(client.names)} for client in clients]
    for c, name in enumerate(noise.names):
        for k in range(RANK):
            variance = noise.variances[:, c, k] / noise.reference[k] ** 2
            owners = np.flatnonzero(np.isfinite(variance))
            asked = np.flatnonzero(np.isin(rows, owners))
            if len(owners) < 2 or not len(asked):
                continue
            directions = np.stack([clients[i].directions[k][:, index[i][name]] for i in owners.tolist()])
            left = directions if newcomers is None else directions[np.isin(owners, rows)]
            weight = 2 / (variance[rows[asked], None] + variance[owners])
            squared = _squared_degrees(left @ directions.T) / noise.reference[k] ** 2
            block = np.ix_(asked, owners)
            for total, part in zip(sums, (weight**2 * squared, weight, weight**2), strict=True):
                total[block] += part
    sums[:, np.arange(len(rows)), rows] = 0.0
    return ClassPairs(*sums)


def _squared_degrees(cosines: Array) -> Array:
    return np.degrees(np.arccos(np.minimum(np.abs(cosines), 1.0))) ** 2


def _typical(own: Array, freedom: Array) -> Array:
    """Mean noise of every direction, times samples, without clients far from the median: (n, classes, rank)."""
    typical = np.ones(own.shape[1:])
    for at in np.ndindex(typical.shape):
        has = freedom[:, *at] > 0
        if not has.any():
            continue
        values, weights = own[has, *at], freedom[has, *at]
        order = np.argsort(values)
        total = np.cumsum(weights[order])
        median = values[order][np.searchsorted(total, total[-1] / 2)]
        near = (values <= TYPICAL * median) & (values >= median / TYPICAL)
        typical[at] = np.average(values[near], weights=weights[near])
    return typical


def _shrunk(own: Array, freedom: Array, typical: Array) -> Array:
    """Noise of each client's directions, times samples: its own, shrunk towards the typical one.

    First as a whole client: by what its mean exceeds chance. Then each class alone, as far as classes vary between
    clients by more than their samples explain: σ² = (d₀ σ₀² + d σ_own²) / (d₀ + d) (Smyth, 2004).
    """
    has = freedom > 0
    totals = freedom.sum(axis=(1, 2))
    with np.errstate(divide="ignore", invalid="ignore"):
        differs = np.log(np.nansum(freedom * own / typical, axis=(1, 2)) / totals)
        by_chance = DOUBTFUL * np.sqrt(2 / totals)
        factor = np.exp(np.sign(differs) * np.maximum(np.abs(differs) - by_chance, 0.0))
        expected = typical * np.where(np.isnan(factor), 1.0, factor)[:, None, None]
        residuals = np.log(own / expected)[has]
    if len(residuals) < 2:
        return expected
    spread = float(np.median(np.abs(residuals - np.median(residuals))) * 1.4826) ** 2
    variation = spread - float(polygamma(1, freedom[has] / 2).mean())
    if variation <= 0:
        return expected
    prior = 2 / variation + 1  # degrees of freedom: trigamma(d / 2) is about 2 / (d - 1)
    return np.where(has, (prior * expected + freedom * own) / (prior + freedom), expected)


def _dimensions(clients: Sequence[ClassSignatures]) -> float:
    """From the spread of squared split-half angles of first directions, relative to their mean, by samples."""
    spread, weight = 0.0, 0.0
    for client in clients:
        squares = client.split_half_angles[0] ** 2
        means = squares.mean(axis=1)
        used = (means > 0) & (means < MOST_NOISE**2)
        spread += float((client.counts[used] * (squares[used] / means[used, None]).var(axis=1)).sum())
        weight += float(client.counts[used].sum())
    return float(np.clip(2 * weight / spread, 1, 1000)) if spread > 0 else 1.0
