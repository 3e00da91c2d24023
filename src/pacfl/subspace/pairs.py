"""Every two clients compared class by class, in units of sampling noise, with the evidence behind each comparison.

For a direction of class c of clients i and j, T = angle² / s² with s² = (noise_ic² + noise_jc²) / 2: its mean is 1 if
both have the same distribution, whatever their sizes. Its evidence is w = 1 / s², in units of what is typical of that
direction: an angle that is known well counts more. Over all directions of classes that both have, Σ w T / Σ w is the
squared distance of the pair in units of noise. A pair without common classes has no evidence, Σ w = 0.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import polygamma

from pacfl.subspace.classes import MOST_SAMPLES, RANK, SPLITS, ClassSignatures
from pacfl.subspace.noise_scale import RESOLUTION

Array = NDArray[np.float64]

FREEDOM: Final = 2.0  # degrees that a sample adds to the noise of its class: about 2.5 on sets of images
DOUBTFUL: Final = 2.0  # standard deviations by which a client's own noise may differ from that of others by chance
TYPICAL: Final = 4.0  # noise that differs from the median by more than this factor has no part in the mean

# Halves of the samples whose directions differ by less determine these: the noise of the whole is then as predicted.
DETERMINED: Final = 45.0  # degrees
# Up to here they determine them a little, if all samples were split. How much noise that makes can be measured only
# between many clients.
WEAK: Final = 70.0  # degrees
MANY: Final = 10  # clients with that direction

FEW: Final = 4.0  # clients with a class, whose spread of noise counts as much as that of all classes

# Noise for privacy is simulated, and known: directions that it determines no better are not compared.
MOST_NOISE: Final = 60.0  # degrees


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

    def without(self, rows: NDArray[np.intp]) -> "ClassPairs":
        """The same without evidence about some clients."""
        parts = [part.copy() for part in self.parts]
        for part in parts:
            part[rows], part[:, rows] = 0.0, 0.0
        return ClassPairs(*parts)

    def __add__(self, other: "ClassPairs") -> "ClassPairs":
        """Comparisons by the directions of both."""
        return ClassPairs(*(a + b for a, b in zip(self.parts, other.parts, strict=True)))

    def rescaled(self, excess: float) -> "ClassPairs":
        """The same if the noise had `excess` times the variance."""
        return replace(self, squares=self.squares / excess)


@dataclass(frozen=True, eq=False)
class ClassNoise:
    """The sampling noise of every direction of every class of every client."""

    names: tuple[str, ...]  # of all classes
    variances: Array  # (n, classes, rank) degrees²; infinite where a client has no such direction, or too noisy a one
    typical: Array  # (classes, rank) degrees² × samples
    excess: Array  # (classes, rank) noise between clients over the predicted, where samples determine it weakly
    reference: Array  # (classes, rank) degrees, which weights are relative to: the noise of a typical class, or its own
    spread: Array  # (classes, rank) of the noise: its squared lengths have mean 1, variance 2 / d in d dimensions

    @property
    def dimensions(self) -> float:
        """Of the noise of first directions, in the mean over classes."""
        return _mean_dimensions(self.spread[:, 0])

    def only(self, which: Sequence[int]) -> "ClassNoise":
        """As if classes had only some of the directions."""
        others = [k for k in range(self.variances.shape[2]) if k not in which]
        variances = self.variances.copy()
        variances[:, :, others] = np.inf
        return replace(self, variances=variances)

    def equally(self) -> "ClassNoise":
        """The same, where all classes have equal weight however noisy they are."""
        variances = np.where(np.isfinite(self.variances), self.variances, np.nan)
        reference = self.reference.copy()
        some = np.isfinite(self.variances).any(axis=0)
        reference[some] = np.sqrt(np.nanmedian(variances[:, some], axis=0))
        return replace(self, reference=reference)

    def classes(self, which: Sequence[int]) -> "ClassNoise":
        """As if clients had only some of the classes."""
        others = np.setdiff1d(np.arange(len(self.names)), which)
        variances = self.variances.copy()
        variances[:, others] = np.inf
        return replace(self, variances=variances)

    def subset(self, rows: NDArray[np.intp]) -> "ClassNoise":
        """The noise of some clients."""
        return replace(self, variances=self.variances[rows])

    def named(self, names: Collection[str]) -> "ClassNoise":
        """The noise of the classes with these names."""
        at = [k for k, name in enumerate(self.names) if name in names]
        of_classes = {key: getattr(self, key)[at] for key in ("typical", "excess", "reference", "spread")}
        return replace(self, names=tuple(self.names[k] for k in at), variances=self.variances[:, at], **of_classes)


def class_noise(
    clients: Sequence[ClassSignatures],
    known: ClassNoise | None = None,
    labels: NDArray[np.intp] | None = None,
    *,
    weakly: bool = True,
) -> ClassNoise:
    """The noise of directions, from the split-half angles of all clients.

    Noise falls with the root of the sample count, and a class has about the same in all clients: its mean over clients
    is far better known than from the few samples of one. Where clients, or classes of clients, differ from that by more
    than chance explains, they have their own. known: of former clients, with which newcomers are compared.
    labels (n,): clusters within which noise between clients is measured, all together without them. weakly: whether
    directions that samples determine weakly count.
    """
    names = tuple(sorted({name for client in clients for name in client.names} | set(known.names if known else ())))
    at = {name: k for k, name in enumerate(names)}
    angles = np.full((len(clients), len(names), RANK, SPLITS), np.nan)
    size = np.zeros((len(clients), len(names), 1))
    for i, client in enumerate(clients):
        columns = [at[name] for name in client.names]
        angles[i, columns] = np.moveaxis(client.split_half_angles, 0, 1)
        size[i, columns, 0] = client.counts
    private = np.array([client.private for client in clients], dtype=bool)
    own = np.maximum((angles**2).mean(axis=3), RESOLUTION**2) * size
    split = np.minimum(size, MOST_SAMPLES)
    freedom = np.where(np.isnan(own), 0.0, FREEDOM * np.maximum(split - 1, 1))
    typical, excess = _typical(own, freedom), np.ones((len(names), RANK))
    if known is not None:
        was = [at[name] for name in known.names]
        typical[was], excess[was] = known.typical, known.excess
    n = np.maximum(size, 1)
    unseen = typical / n  # equal samples leave room for one in n that varies as those of other clients do
    variances = np.maximum(_shrunk(own, freedom, typical), unseen) / n
    variances[private] = (own / np.maximum(size, 1))[private]
    variances[np.isnan(own)] = np.inf
    half = np.maximum(split // 2, 1)
    of_own = _of_halves(own / np.maximum(size, 1), size / half)
    halves = np.fmax(_of_halves(variances, size / half), _of_similar(of_own, half))
    halves[private] = np.where(variances[private] < MOST_NOISE**2, 0.0, 90.0)
    spread = _spread(angles**2 / variances[..., None], halves)
    weak = (halves > DETERMINED) & (halves <= WEAK) & (size <= MOST_SAMPLES) & weakly
    variances[(halves > DETERMINED) & ~weak] = np.inf
    if known is None:
        excess = _between(clients, names, variances, weak, np.zeros(len(clients)) if labels is None else labels)
    variances[weak] = (variances * excess)[weak]
    finite = [variances[..., k][np.isfinite(variances[..., k])] for k in range(RANK)]
    of_all = np.array([np.sqrt(np.median(own)) if len(own) else 1.0 for own in finite])
    reference = np.tile(of_all, (len(names), 1))
    if known is not None:
        reference[was], spread[was] = known.reference, known.spread
    return ClassNoise(names, variances, typical, excess, reference, spread)


def compare_classes(clients: Sequence[ClassSignatures], noise: ClassNoise, newcomers: int | None = None) -> ClassPairs:
    """Comparisons of all clients: (n, n), or of the last `newcomers` with all: (newcomers, n)."""
    n = len(clients)
    rows = np.arange(n) if newcomers is None else np.arange(n - newcomers, n)
    sums = np.zeros((3, len(rows), n))
    for c, k, owners, directions in _directions(clients, noise.names, noise.variances):
        variance = noise.variances[:, c, k] / noise.reference[c, k] ** 2
        asked = np.flatnonzero(np.isin(rows, owners))
        if not len(asked):
            continue
        left = directions if newcomers is None else directions[np.isin(owners, rows)]
        weight = 2 / (variance[rows[asked], None] + variance[owners])
        squared = _squared_degrees(left @ directions.T) / noise.reference[c, k] ** 2
        block = np.ix_(asked, owners)
        for total, part in zip(sums, (weight**2 * squared, weight, weight**2), strict=True):
            total[block] += part
    sums[:, np.arange(len(rows)), rows] = 0.0
    return ClassPairs(*sums)


def _directions(
    clients: Sequence[ClassSignatures], names: Sequence[str], variances: Array
) -> Iterator[tuple[int, int, NDArray[np.intp], Array]]:
    """Class, rank, owners and their directions (owners, features), where two or more clients have them."""
    index = [{name: k for k, name in enumerate(client.names)} for client in clients]
    for c, name in enumerate(names):
        for k in range(RANK):
            owners = np.flatnonzero(np.isfinite(variances[:, c, k]))
            if len(owners) > 1:
                yield c, k, owners, np.stack([clients[i].directions[k][:, index[i][name]] for i in owners.tolist()])


def _of_halves(variances: Array, shares: Array) -> Array:
    """Degrees between directions of the halves from which noise was measured: (n, classes, rank); 90 without any.

    variances of the whole, shares: samples of the whole over those of a half.
    """
    whole = np.radians(np.minimum(np.sqrt(variances), 90.0))
    degrees: Array = np.degrees(np.arctan(np.tan(whole) * np.sqrt(shares)))
    return degrees


def _of_similar(halves: Array, sizes: Array) -> Array:
    """Root mean square over clients with half to double the samples: what one shows alone is too uncertain.

    halves (n, classes, rank) degrees, NaN where there are none; sizes (n, classes, 1) samples of a half.
    """
    found = np.full(halves.shape, np.nan)
    for c, k in np.ndindex(halves.shape[1:]):
        owners = np.flatnonzero(~np.isnan(halves[:, c, k]))
        owners = owners[np.argsort(sizes[owners, c, 0], kind="stable")]
        size = sizes[owners, c, 0]
        sums = np.concatenate([[0.0], np.cumsum(halves[owners, c, k] ** 2 * size)])
        first, last = np.searchsorted(size, size / 2, "left"), np.searchsorted(size, size * 2, "right")
        found[owners, c, k] = np.sqrt((sums[last] - sums[first]) / np.maximum(last - first, 1) / size)
    return found


def _between(
    clients: Sequence[ClassSignatures],
    names: Sequence[str],
    variances: Array,
    weak: NDArray[np.bool_],
    labels: NDArray[Any],
) -> Array:
    """Squared angles between clients of a cluster over the predicted, for weakly determined directions.

    Infinite for few clients. Where those of a cluster are not of one distribution it is too large, and differences are
    harder to find.
    """
    excess = np.full(variances.shape[1:], np.inf)
    some = np.where(weak.any(axis=0), variances, np.inf)
    for c, k, owners, directions in _directions(clients, names, some):
        variance = variances[owners, c, k]
        same = np.equal.outer(labels[owners], labels[owners]) & ~np.eye(len(owners), dtype=bool)
        found = same.any(axis=1)
        if found.sum() >= MANY:
            ratios = _squared_degrees(directions @ directions.T) / ((variance[:, None] + variance) / 2)
            excess[c, k] = _robust_mean((ratios * same)[found].sum(axis=1) / same[found].sum(axis=1))
    return excess


def _spread(ratios: Array, halves: Array) -> Array:
    """Dimensions of the noise, from squared split-half angles over their predicted means: (classes, rank).

    Classes differ: handwritten ones vary in hardly more than their slant. The fewer clients have a class, the nearer is
    its spread to that of all classes.
    """
    found = np.ones(ratios.shape[1:3])
    for k in range(RANK):
        own = np.where(halves[:, :, k] <= WEAK, ((ratios[:, :, k] - 1) ** 2).mean(axis=2), np.nan)
        known = ~np.isnan(own)
        of_clients = np.where(known, own, 0.0).sum(axis=1)[known.any(axis=1)] / known.sum(axis=1)[known.any(axis=1)]
        if not len(of_clients):
            continue
        of_all = _robust_mean(of_clients)
        for c, has in enumerate(known.T):
            alone = _robust_mean(own[has, c]) if has.any() else of_all
            shrunk = (has.sum() * alone + FEW * of_all) / (has.sum() + FEW)
            found[c, k] = np.clip(2 / max(shrunk, 1e-9), 1, 1000)
    return found


def _mean_dimensions(dimensions: Array) -> float:
    """Of noise whose squared lengths have the mean variance of all."""
    return float(2 / (2 / dimensions).mean()) if len(dimensions) else 1.0


def _robust_mean(values: Array) -> float:
    """The mean of values, none of which counts more than `TYPICAL` medians."""
    return float(np.minimum(values, TYPICAL * np.median(values)).mean())


def _squared_degrees(cosines: Array) -> Array:
    degrees: Array = np.degrees(np.arccos(np.minimum(np.abs(cosines), 1.0)))
    return degrees**2


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
    """Noise of each client's directions, times samples: its own, shrunk towards the typical one, for each rank."""
    return np.stack([_shrunk_rank(own[..., k], freedom[..., k], typical[:, k]) for k in range(RANK)], axis=2)


def _shrunk_rank(own: Array, freedom: Array, typical: Array) -> Array:
    """(n, classes), (n, classes), (classes,) -> (n, classes).

    First as a whole client: by what its mean exceeds chance. Then each class alone, as far as classes vary between
    clients by more than their samples explain: σ² = (d₀ σ₀² + d σ_own²) / (d₀ + d) (Smyth, 2004). Noise that is larger
    than others' beyond chance is believed: an outlier among the samples moves one class of one client.
    """
    has, totals = freedom > 0, freedom.sum(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        differs = np.log(np.nansum(freedom * own / typical, axis=1) / totals)
        by_chance = DOUBTFUL * np.sqrt(2 / totals)
        factor = np.exp(np.sign(differs) * np.maximum(np.abs(differs) - by_chance, 0.0))
        expected = np.where(np.isnan(factor), 1.0, factor)[:, None] * typical
        residuals = np.log(own / expected)[has]
    found, variation = expected, 0.0
    if len(residuals) > 1:
        spread = float(np.median(np.abs(residuals - np.median(residuals))) * 1.4826) ** 2
        variation = spread - float(polygamma(1, freedom[has] / 2).mean())
    if variation > 0:
        prior = 2 / variation + 1  # degrees of freedom: trigamma(d / 2) is about 2 / (d - 1)
        found = np.where(has, (prior * expected + freedom * own) / (prior + freedom), expected)
    certain = own * np.exp(-DOUBTFUL * np.sqrt(2 / np.maximum(freedom, 1)))
    return np.where(has, np.fmax(found, certain), found)
