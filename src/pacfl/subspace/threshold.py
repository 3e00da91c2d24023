"""The threshold chosen from the clients' own sampling noise, with the evidence for it.

Angles are put in units of noise: 1 is what two samples of the same client show (`floors`, `adjust`). A federation of
clients that are all alike is then simulated, with the same number of clients, the same noise and the same linkage: its
merges stand at heights that sampling alone explains (`null_limits`), and merges above them are differences. The more
clients stand together, the less chance explains: merges of larger groups have lower limits. Where differences run on
without a gap, as with clients that mix classes at will, the finest cut is not reproducible, and the finest one that
is takes its place (`reproducibility`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.spatial.distance import pdist, squareform
from scipy.stats import chi2

from pacfl.subspace.agreement import best_jaccard
from pacfl.subspace.hierarchy import Labels, Linkage, check_proximity, cut, dendrogram

Array = NDArray[np.float64]
Finding = Literal["alike", "distinct", "gradual"]

ERROR_RATE: Final = 0.001  # how often a federation of clients that are all alike may be split
REPRODUCIBLE: Final = 0.85  # from which Hennig calls a cluster highly stable (fpc, clusterboot)
SIMULATIONS: Final = 500  # federations drawn under the null: enough to know the scale of its maxima to 5 %
RESAMPLINGS: Final = 50  # halves of the federation that are clustered anew
PANEL: Final = 300  # clients at most in one simulation or resampling, so that both take seconds for any federation
RESOLUTION: Final = 1e-5  # degrees: no floor is lower, for angles are not computed more exactly


@dataclass(frozen=True)
class Cut:
    """One way to cut the dendrogram."""

    n_clusters: int
    height: float | None  # of the lowest merge that is undone, in units of noise; None if none is
    reproducibility: float  # of its least stable cluster in random halves of the clients, 0 to 1


@dataclass(frozen=True)
class Evidence:
    """Why this threshold."""

    finding: Finding
    reasons: str
    error_rate: float
    floor: float  # degrees that two samples of a typical client show
    floors_from: Literal["clients", "neighbours"]
    null_height: float  # last merge of clients that are all alike: its median, in units of noise
    null_limits: tuple[float, ...]  # what chance passes at the error rate: merges of at least 1, 2, 4, 8, ... clients
    heights: tuple[float, ...]  # the last merges, highest first, in units of noise
    separation: float | None  # lowest merge undone over highest merge done; None if there is only one of the two
    reproducibility: float
    cuts: tuple[Cut, ...]  # every cut that was considered, coarsest first


@dataclass(frozen=True, eq=False)
class Choice:
    """A threshold in degrees on the adjusted proximity, the clusters it gives, and the evidence for it."""

    threshold: float
    labels: Labels
    evidence: Evidence


def choose_threshold(
    proximity: ArrayLike,
    self_angles: Sequence[ArrayLike] | None = None,
    linkage: Linkage = "average",
    error_rate: float = ERROR_RATE,
    seed: int = 0,
) -> Choice:
    """Threshold, clusters and evidence from the proximity and what each client measured against itself.

    proximity (n, n) degrees, self_angles n × (splits,) degrees, empty for a client that has none. A client without is
    measured by its nearest neighbour instead, which supposes that everybody has somebody alike.

    labels == agglomerate(adjust(proximity, floors(proximity, self_angles)), threshold, linkage).
    """
    square = check_proximity(proximity)
    if not 0 < error_rate < 1:
        raise ValueError(f"error_rate must lie between 0 and 1, got {error_rate}")
    own = _checked(self_angles, len(square))
    rng = np.random.default_rng(seed)
    floor = floors(square, own)
    unit = typical(floor)
    adjusted = adjust(square, floor, unit)
    tree = dendrogram(adjusted, linkage)
    known = np.array([len(angles) > 0 for angles in own])
    limits, null_height = null_limits(floor, known, _energies(square, own), linkage, error_rate, rng)
    cuts = _cuts(adjusted, tree, limits, unit, linkage, rng)
    chosen = _finest_reproducible(cuts)
    threshold = _level(tree, chosen.n_clusters, limits * unit)
    done, undone = _around(tree, chosen.n_clusters)
    finding = _finding(cuts, chosen)
    evidence = Evidence(
        finding=finding,
        reasons=_reasons(finding, cuts, chosen, limits, error_rate, known),
        error_rate=error_rate,
        floor=unit,
        floors_from="clients" if known.any() else "neighbours",
        null_height=null_height,
        null_limits=tuple(float(limit) for limit in limits),
        heights=tuple(float(h) for h in tree[::-1, 2][:10] / unit),
        separation=None if done is None or undone is None or done == 0 else undone / done,
        reproducibility=chosen.reproducibility,
        cuts=tuple(cuts),
    )
    return Choice(threshold, cut(tree, threshold), evidence)


def floors(proximity: ArrayLike, self_angles: Sequence[ArrayLike] | None = None) -> Array:
    """Degrees that sampling noise alone makes for each client: root mean square of its self-angles: (n,).

    The distance to the nearest neighbour for clients without self-angles.
    """
    square = np.asarray(proximity, dtype=np.float64)
    own = _checked(self_angles, len(square))
    measured = [float(np.sqrt(np.mean(a**2))) if len(a) else np.nan for a in own]
    return np.maximum(np.where(np.isnan(measured), _nearest(square), measured), RESOLUTION)


def typical(floor: Array) -> float:
    """The floor of a typical client, the unit of the adjusted proximity."""
    return float(np.median(floor))


def adjust(proximity: ArrayLike, floor: Array, unit: float | None = None) -> Array:
    """The proximity as it would be if every client had the typical floor: angles over noise, times the typical noise.

    Two clients of one distribution differ by noise of variance (floorᵢ² + floorⱼ²) / 2.
    """
    noise = np.sqrt((floor[:, None] ** 2 + floor[None, :] ** 2) / 2)
    adjusted: Array = np.asarray(proximity, dtype=np.float64) / noise * (typical(floor) if unit is None else unit)
    return adjusted


def null_limits(
    floor: Array,
    known: NDArray[np.bool_],
    energies: Array,
    linkage: Linkage,
    error_rate: float,
    rng: np.random.Generator,
) -> tuple[Array, float]:
    """Heights, in units of noise, that merges of clients that are all alike pass with probability error_rate in all.

    ->  (classes,) for merges whose smaller side has at least 1, 2, 4, 8, ... clients, and the median of the highest.

    A client's signature is the common one plus noise. The noise is a vector whose squared length is drawn from the
    client's own self-comparisons (mean 1) and whose direction is uniform in as many dimensions as the spread of those
    implies: a squared length with variance 2 / d is that of a normal vector in d dimensions.
    """
    n = len(floor)
    if n < 2:
        return np.ones(1), 1.0
    dimensions = int(np.clip(np.rint(2 / max(energies.var(), 1e-9)), 1, 1000))
    draws = (_null_draw(floor, known, energies, dimensions, rng) for _ in range(SIMULATIONS))
    highest = np.array([_highest(dendrogram(ratio, linkage), n) for ratio in draws])
    rate = error_rate / highest.shape[1]
    limits = [_gumbel_limit(column[column > 0], rate) for column in highest.T]
    # A class too rare to be judged has the limit of the one below it, which contains it
    return np.fmin.accumulate(limits), float(np.median(highest[:, 0]))


def _gumbel_limit(maxima: Array, rate: float) -> float:
    """What a maximum passes with probability `rate`, by the extreme-value law fitted to the moments of many."""
    if len(maxima) < 20:
        return np.nan
    scale = maxima.std() * np.sqrt(6) / np.pi
    return float(maxima.mean() - np.euler_gamma * scale - scale * np.log(-np.log1p(-rate)))


def _null_draw(
    floor: Array, known: NDArray[np.bool_], energies: Array, dimensions: int, rng: np.random.Generator
) -> Array:
    """Proximity, in units of noise, of clients that are all alike."""
    energy = rng.permuted(energies, axis=1)[:, 0]
    if len(floor) > PANEL:
        # Outliers are what merges last: keep the tenth of the panel that stands out most, and a sample of the rest
        order = np.argsort(-energy)
        rest = rng.choice(order[PANEL // 10 :], PANEL - PANEL // 10, replace=False)
        kept = np.concatenate([order[: PANEL // 10], rest])
        energy, floor, known = energy[kept], floor[kept], known[kept]
    noise = rng.standard_normal((len(floor), dimensions))
    noise *= (floor * np.sqrt(energy / 2 / (noise**2).sum(axis=1)))[:, None]
    distances = squareform(pdist(noise))
    return adjust(distances, np.where(known, floor, np.maximum(_nearest(distances), RESOLUTION)), unit=1.0)


def _highest(tree: Array, n: int) -> Array:
    """Height of the highest merge whose smaller side has at least 1, 2, 4, ... clients; 0 where there is none."""
    classes = _size_classes(tree)
    highest = np.zeros(n.bit_length() - 1)
    np.maximum.at(highest, classes, tree[:, 2])
    return np.maximum.accumulate(highest[::-1])[::-1]


def _size_classes(tree: Array) -> NDArray[np.intp]:
    """0, 1, 2, ... for merges whose smaller side has 1, 2 or 3, 4 to 7, ... clients: (n - 1,)."""
    n = len(tree) + 1
    sizes = np.concatenate([np.ones(n), tree[:, 3]])
    smaller = sizes[tree[:, :2].astype(np.intp)].min(axis=1)
    classes: NDArray[np.intp] = np.log2(smaller).astype(np.intp)
    return classes


def _energies(proximity: Array, own: list[Array]) -> Array:
    """Squared lengths of each client's noise, mean 1: its squared self-angles over their mean: (n, draws).

    A client without self-angles is given those of normal noise, in as many dimensions as the others show, or, if nobody
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


def _cuts(
    adjusted: Array, tree: Array, limits: Array, unit: float, linkage: Linkage, rng: np.random.Generator
) -> list[Cut]:
    """The cuts that undo no merge below the lowest one beyond its limit, coarsest first."""
    heights = tree[::-1, 2]
    beyond = np.flatnonzero(heights / unit > limits[_size_classes(tree)[::-1]])
    last = int(beyond[-1]) + 2 if len(beyond) else 1
    # Merges at equal heights are done or undone together
    numbers = [k for k in range(2, last + 1) if k - 1 == len(heights) or heights[k - 2] > heights[k - 1] * (1 + 1e-12)]
    scores = reproducibility(adjusted, tree, [_level(tree, k, limits * unit) for k in numbers], linkage, rng)
    cuts = [Cut(k, float(heights[k - 2] / unit), score) for k, score in zip(numbers, scores, strict=True)]
    return cuts or [Cut(1, None, 1.0)]


def reproducibility(
    proximity: Array, tree: Array, levels: list[float], linkage: Linkage, rng: np.random.Generator
) -> list[float]:
    """How well the least stable cluster at each level is found again in random halves of the clients, 0 to 1.

    For every cluster the mean, over halves that have members of it, of its Jaccard index with the most similar cluster
    of the half (Hennig, 2007); the least over clusters.
    """
    n = len(proximity)
    if n < 4 or not levels:
        return [1.0] * len(levels)
    wholes = [cut(tree, level) for level in levels]
    found: list[list[Array]] = [[] for _ in levels]
    for _ in range(RESAMPLINGS):
        half = rng.choice(n, min((n + 1) // 2, PANEL), replace=False)
        part = dendrogram(proximity[np.ix_(half, half)], linkage)
        for jaccard, whole, level in zip(found, wholes, levels, strict=True):
            jaccard.append(best_jaccard(whole[half], cut(part, level), int(whole.max()) + 1))
    return [_least(np.array(jaccard)) for jaccard in found]


def _least(jaccard: Array) -> float:
    """The least mean over halves: (halves, clusters), NaN where a half has no member of the cluster."""
    met = ~np.isnan(jaccard)
    means = np.nansum(jaccard, axis=0)[met.any(axis=0)] / met.sum(axis=0)[met.any(axis=0)]
    return float(means.min())


def _finest_reproducible(cuts: list[Cut]) -> Cut:
    stable = [c for c in cuts if c.reproducibility >= REPRODUCIBLE]
    return stable[-1] if stable else max(cuts, key=lambda c: c.reproducibility)


def _level(tree: Array, n_clusters: int, limits: Array) -> float:
    """A level that leaves n_clusters: the limit for single clients, or the middle of the gap where that is lower."""
    done, undone = _around(tree, n_clusters)
    low, high = (0.0 if done is None else done), (np.inf if undone is None else undone)
    middle = np.sqrt(low * high) if low > 0 and high < np.inf else (low + high) / 2
    return float(min(limits[0], middle) if limits[0] >= low else middle)


def _around(tree: Array, n_clusters: int) -> tuple[float | None, float | None]:
    """Heights of the highest merge that is done and the lowest that is undone when n_clusters are left."""
    heights = tree[::-1, 2]
    done = float(heights[n_clusters - 1]) if n_clusters - 1 < len(heights) else None
    return done, float(heights[n_clusters - 2]) if n_clusters >= 2 else None


def _finding(cuts: list[Cut], chosen: Cut) -> Finding:
    if chosen.n_clusters == 1:
        return "alike"
    return "distinct" if chosen is cuts[-1] and chosen.reproducibility >= REPRODUCIBLE else "gradual"


def _reasons(
    finding: Finding, cuts: list[Cut], chosen: Cut, limits: Array, error_rate: float, known: NDArray[np.bool_]
) -> str:
    """The evidence in a few sentences."""
    alike = (
        f"clients that are all alike would merge below {limits[0]:.2f} times the noise, large groups of them below "
        f"{limits[-1]:.2f}, in all but {error_rate:.1%} of cases"
    )
    source = (
        ""
        if known.all()
        else (
            " Clients that sent no self-angles were measured by their nearest neighbours: "
            "this supposes that everybody has somebody alike."
        )
    )
    if finding == "alike":
        return f"One cluster: {alike}, and all do.{source}"
    parts = f"{chosen.n_clusters} clusters: {alike}; these stay apart up to {chosen.height:.2f}"
    again = (
        f"random halves of the clients give each of them again, with an overlap of {chosen.reproducibility:.0%} or more"
    )
    if finding == "distinct":
        return f"{parts}, and {again}.{source}"
    return (
        f"{parts}, and {again}. Differences go on gradually down to {cuts[-1].n_clusters} clusters, "
        f"but finer cuts are not reproducible.{source}"
    )


def _nearest(square: Array) -> Array:
    """Distance of each client to its nearest neighbour; 0 for a client alone."""
    if len(square) < 2:
        return np.zeros(len(square))
    others: Array = square + np.diag(np.full(len(square), np.inf))
    nearest: Array = others.min(axis=1)
    return nearest


def _checked(self_angles: Sequence[ArrayLike] | None, n: int) -> list[Array]:
    if self_angles is None:
        return [np.empty(0)] * n
    own = [np.asarray(a, dtype=np.float64).ravel() for a in self_angles]
    if len(own) != n:
        raise ValueError(f"self_angles must be one array for each of {n} clients, got {len(own)}")
    if any(not np.isfinite(a).all() or (a < 0).any() for a in own):
        raise ValueError("self_angles must be finite and not negative")
    return own
