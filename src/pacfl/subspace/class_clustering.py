"""Clusters of clients whose classes are compared with the same classes of others: who must learn apart."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from pacfl.subspace.agreement import best_jaccard
from pacfl.subspace.class_null import class_limits, newcomer_limit
from pacfl.subspace.classes import ClassSignatures
from pacfl.subspace.hierarchy import Labels, cut, in_order_of_appearance, level_of
from pacfl.subspace.newcomers import MergeSuggestion
from pacfl.subspace.null import size_classes
from pacfl.subspace.pairs import ClassNoise, ClassPairs, class_noise, compare_classes
from pacfl.subspace.stability import FEWEST
from pacfl.subspace.weighted import differences, reassign, settle, weighted_merges

Array = NDArray[np.float64]

CALIBRATIONS: Final = 4  # of the noise by what clusters show; it settles in one or two
HALVES: Final = 30  # of the clients, to see whether they give the same clusters
DIRECTIONS: Final = ((0, 1), (0,), (1,))  # of classes that are compared: all, or one, each at a share of the error rate
DOUBTFUL: Final = 2.0  # standard deviations by which noise within clusters may differ from the predicted by chance


@dataclass(frozen=True, eq=False)
class ClassClusters:
    """Clusters of clients that share classes."""

    labels: Labels  # (n,) from 0; clients without evidence are in the cluster of nobody: -1
    pairs: ClassPairs
    noise: ClassNoise
    limits: Array  # heights that chance passes at the error rate, for groups of at least 1, 2, 4, ... clients
    null_height: float  # last merge of a homogeneous federation: its median
    heights: tuple[float, ...]  # the last merges, highest first, in units of noise
    separation: float | None  # lowest height between two clusters over the limit that applies to it
    reproducibility: float | None  # of the least stable cluster in random halves of the clients; None for few clients
    calibration: float  # noise variance within clusters over the predicted
    directions: tuple[int, ...]  # of classes that were compared

    def subset(self, rows: NDArray[np.intp]) -> "ClassClusters":
        """The same clusters of some of the clients."""
        return replace(self, labels=self.labels[rows], pairs=self.pairs.subset(rows), noise=self.noise.subset(rows))


def cluster_classes(
    clients: Sequence[ClassSignatures], error_rate: float, seed: int = 0, n_clusters: int | None = None
) -> ClassClusters:
    """Clusters of clients by their classes; into n_clusters, or as many as chance does not explain."""
    noise = class_noise(clients)
    if n_clusters is not None:
        return _clusters(clients, noise, DIRECTIONS[0], error_rate, seed, n_clusters)
    found = [_clusters(clients, noise, which, error_rate / len(DIRECTIONS), seed) for which in DIRECTIONS]
    best, *others = found
    for other in others:  # one direction alone, where the other hides what it shows
        no_fewer = other.labels.max(initial=0) >= best.labels.max(initial=0)
        if no_fewer and (other.separation or 0.0) > (best.separation or 0.0):
            best = other
    return _everybody(best, compare_classes(clients, noise))


def _clusters(
    clients: Sequence[ClassSignatures],
    noise: ClassNoise,
    directions: tuple[int, ...],
    error_rate: float,
    seed: int,
    n_clusters: int | None = None,
) -> ClassClusters:
    """Clusters by some of the directions of classes."""
    rng, noise = np.random.default_rng(seed), noise.only(directions)
    pairs = compare_classes(clients, noise)
    compared = np.flatnonzero(pairs.weights.any(axis=1))
    known, of_known = pairs.subset(compared), noise.subset(compared)
    limits, null_height = class_limits(of_known, error_rate, rng)
    calibration = 1.0
    found = _solve(known, limits, n_clusters)
    for _ in range(CALIBRATIONS if n_clusters is None else 0):
        before, calibration = found, _within(known, found, of_known)
        found = _solve(known.rescaled(calibration), limits, n_clusters)
        if np.array_equal(before, found):
            break
    pairs, known = pairs.rescaled(calibration), known.rescaled(calibration)
    labels = np.full(len(clients), -1, dtype=np.intp)
    labels[compared] = found
    tree = weighted_merges(known) if len(compared) > 1 else np.empty((0, 4))
    heights = tree[::-1, 2][np.isfinite(tree[::-1, 2])]
    return ClassClusters(
        labels,
        pairs,
        noise,
        limits,
        null_height,
        tuple(float(h) for h in heights[:10]),
        _separation(known, found, limits),
        _reproducibility(known, found, limits, rng),
        calibration,
        directions,
    )


def _everybody(clusters: ClassClusters, pairs: ClassPairs) -> ClassClusters:
    """With clients that only other directions can compare: each where it differs least by all of them."""
    left = np.flatnonzero((clusters.labels < 0) & pairs.weights[:, clusters.labels >= 0].any(axis=1))
    if not len(left):
        return clusters
    difference = differences(pairs, clusters.labels)
    labels = clusters.labels.copy()
    labels[left] = difference[left].argmin(axis=1)
    return replace(clusters, labels=labels)


def _solve(pairs: ClassPairs, limits: Array, n_clusters: int | None) -> Labels:
    """The dendrogram cut where chance does not reach, or into n_clusters; then every client with its nearest."""
    n = len(pairs.weights)
    if n < 2:
        return np.zeros(n, dtype=np.intp)
    tree = weighted_merges(pairs)
    heights = np.where(np.isfinite(tree[:, 2]), tree[:, 2], np.finfo(np.float64).max)
    finite = np.column_stack([tree[:, :2], heights, tree[:, 3]])
    if n_clusters is not None:
        return reassign(pairs, cut(finite, level_of(finite, min(n_clusters, n))))
    beyond = np.flatnonzero(heights > limits[np.minimum(size_classes(tree), len(limits) - 1)])
    if not len(beyond):
        return np.zeros(n, dtype=np.intp)
    lowest = heights[beyond].min()
    return settle(pairs, cut(finite, np.nextafter(lowest, 0.0)), limits)


def _within(pairs: ClassPairs, labels: Labels, noise: ClassNoise) -> float:
    """Squared distances within clusters, in units of noise, less what may be chance: 1 if the noise is as predicted."""
    same = np.equal.outer(labels, labels)
    squares, weights = pairs.squares[same].sum(), pairs.weights[same].sum()
    if weights == 0 or squares == 0:
        return 1.0
    shared = same.sum(axis=1) > 1
    terms = np.isfinite(noise.variances[shared]).sum()
    by_chance = DOUBTFUL * np.sqrt(2 / (noise.dimensions * max(int(terms), 1)))
    differs = float(np.log(squares / weights))
    return float(np.exp(np.sign(differs) * max(abs(differs) - by_chance, 0.0)))


def _separation(pairs: ClassPairs, labels: Labels, limits: Array) -> float | None:
    if len(labels) == 0 or labels.max() == 0:
        return None
    member = np.eye(int(labels.max()) + 1)[labels]
    squares, weights = member.T @ pairs.squares @ member, member.T @ pairs.weights @ member
    sizes = member.sum(axis=0).astype(int)
    found = [
        np.sqrt(squares[a, b] / weights[a, b]) / limits[min(int(min(sizes[a], sizes[b])).bit_length(), len(limits)) - 1]
        for a in range(len(sizes))
        for b in range(a)
        if weights[a, b] > 0
    ]
    return float(min(found)) if found else None


def _reproducibility(pairs: ClassPairs, labels: Labels, limits: Array, rng: np.random.Generator) -> float | None:
    """Mean overlap of the least stable cluster with clusters of random halves of the clients, 0 to 1."""
    n = len(labels)
    if n < FEWEST:
        return None
    if labels.max() == 0:
        return 1.0
    overlaps = []
    for _ in range(HALVES):
        half = np.sort(rng.choice(n, (n + 1) // 2, replace=False))
        found = _solve(pairs.subset(half), limits, None)
        overlaps.append(best_jaccard(labels[half], found, int(labels.max()) + 1))
    met = np.array(overlaps)
    return float(np.nanmin(np.nanmean(np.where(np.isnan(met).all(axis=0), 1.0, met), axis=0)))


def assign_by_classes(
    clusters: ClassClusters, clients: Sequence[ClassSignatures], n_new: int, error_rate: float
) -> tuple[ClassClusters, tuple[MergeSuggestion, ...]]:
    """The clusters with newcomers, the last n_new of the clients, in them. No other client moves.

    A newcomer joins the cluster from which it differs least, if chance explains the difference; others that differ from
    all clusters open new ones. A newcomer without evidence joins nobody.
    """
    n = len(clients) - n_new
    noise = class_noise(clients, clusters.noise).only(clusters.directions)
    rows = compare_classes(clients, noise, n_new).rescaled(clusters.calibration)
    members = [np.flatnonzero(clusters.labels == k) for k in range(int(clusters.labels.max()) + 1)]
    labels = np.concatenate([clusters.labels, np.full(n_new, -1, dtype=np.intp)])
    suggestions, outside = [], []
    for newcomer in range(n_new):
        row = ClassPairs(*(part[[newcomer], :n] for part in rows.parts))
        heights, limits = np.full(len(members), np.inf), np.ones(len(members))
        for k, own in enumerate(members):
            if row.weights[0, own].any():
                heights[k] = np.sqrt(row.squares[0, own].sum() / row.weights[0, own].sum())
                limits[k] = max(clusters.limits[0], newcomer_limit(noise, n + newcomer, own, error_rate))
        if not np.isfinite(heights).any():
            continue
        difference = differences(row, clusters.labels)
        near = [int(k) for k in np.argsort(difference[0]) if heights[k] <= limits[k]]
        if near:
            labels[n + newcomer] = near[0]
        else:
            outside.append(n + newcomer)
        if len(near) > 1:
            a, b = near[:2]
            suggestions.append(MergeSuggestion(newcomer, (a, b), (float(heights[a]), float(heights[b]))))
    if outside:
        among = ClassPairs(*(part[np.array(outside) - n][:, outside] for part in rows.parts))
        labels[outside] = int(labels.max()) + 1 + in_order_of_appearance(_solve(among, clusters.limits, None))
    both = [
        np.block([[old_part, new_part[:, :n].T], [new_part[:, :n], new_part[:, n:]]])
        for old_part, new_part in zip(clusters.pairs.parts, rows.parts, strict=True)
    ]
    return replace(clusters, labels=labels, pairs=ClassPairs(*both), noise=noise), tuple(suggestions)
