"""Clusters of clients whose classes are compared with the same classes of others: who must learn apart."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import connected_components

from pacfl.subspace.agreement import adjusted_rand_index, best_jaccard
from pacfl.subspace.class_null import class_limits, newcomer_limit
from pacfl.subspace.classes import ClassSignatures
from pacfl.subspace.hierarchy import Labels, cut, in_order_of_appearance, level_of
from pacfl.subspace.newcomers import MergeSuggestion
from pacfl.subspace.null import size_classes
from pacfl.subspace.pairs import ClassNoise, ClassPairs, class_noise, compare_classes
from pacfl.subspace.stability import FEWEST
from pacfl.subspace.weighted import (
    GROUP,
    Limits,
    by_height,
    contrasts,
    differences,
    merge_contrasts,
    reassign,
    settle,
    weighted_merges,
)

Array = NDArray[np.float64]

CALIBRATIONS: Final = 4  # of the noise by what clusters show; it settles in one or two
DISSOLVED: Final = 0.5  # agreement below which clusters were not found again
HALVES: Final = 30  # of the clients, to see whether they give the same clusters
# Of classes that are compared: all, or one where the other hides what it shows
DIRECTIONS: Final = ((0, 1), (0,), (1,))
# Each at a share of the error rate; True: all classes count equally, and a few noisy ones are not hidden by others
VIEWS: Final = (*((which, False) for which in DIRECTIONS), (DIRECTIONS[0], True))
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
    weakly: bool = False  # whether weakly determined ones were
    by_contrast: bool = False  # whether heights alone do not separate all clusters

    @property
    def reference(self) -> float:
        """Degrees: the noise of the first compared direction of a typical class."""
        of_classes = self.noise.reference[:, self.directions[0]]
        return float(np.median(of_classes)) if len(of_classes) else 1.0

    def subset(self, rows: NDArray[np.intp]) -> "ClassClusters":
        """The same clusters of some of the clients."""
        return replace(self, labels=self.labels[rows], pairs=self.pairs.subset(rows), noise=self.noise.subset(rows))


def cluster_classes(
    clients: Sequence[ClassSignatures], error_rate: float, seed: int = 0, n_clusters: int | None = None
) -> ClassClusters:
    """Clusters of clients by their classes; into n_clusters, or as many as chance does not explain."""
    if n_clusters is not None:
        noise = class_noise(clients, weakly=False)
        return _clusters(compare_classes(clients, noise), noise, DIRECTIONS[0], error_rate, seed, n_clusters)
    found = _calibrated(clients, error_rate / len(VIEWS), seed)
    doubtful = found.labels.max(initial=0) > 0 and (found.weakly or found.by_contrast)
    if doubtful and not _in_several_classes(clients, found, error_rate, seed):
        return _calibrated(clients, error_rate / len(VIEWS), seed, cautious=True)
    return found


def _calibrated(
    clients: Sequence[ClassSignatures], error_rate: float, seed: int, *, cautious: bool = False
) -> ClassClusters:
    """Clusters of clients, in units of the noise that they show inside.

    cautious: by the heights of well determined directions alone, without weakly determined ones and contrasts.
    """
    found = _cluster(clients, None, error_rate, seed, cautious=cautious)
    for _ in range(CALIBRATIONS if found.weakly and found.labels.max(initial=0) > 0 else 0):
        before = found.labels
        found = _cluster(clients, before, error_rate, seed, cautious=cautious)
        if np.array_equal(before, found.labels):
            break
    return found


def _cluster(
    clients: Sequence[ClassSignatures], labels: Labels | None, error_rate: float, seed: int, *, cautious: bool
) -> ClassClusters:
    """Clusters of clients, by the directions that show most; noise is measured within `labels`, or in all together."""
    certain = class_noise(clients, weakly=False)
    every = compare_classes(clients, certain)
    connected, compared = _connected(every), np.count_nonzero(every.weights.any(axis=1))
    found = []
    for which, equally in VIEWS:
        alone = not cautious and 0 not in which  # weakly determined ones would hide others
        noise = (class_noise(clients, labels=labels) if alone else certain).only(which)
        noise = noise.equally() if equally else noise
        pairs = every if (which, equally) == VIEWS[0] else compare_classes(clients, noise)
        pairs = pairs.without(_outside(connected, _connected(pairs)))
        if which == DIRECTIONS[0] or np.count_nonzero(pairs.weights.any(axis=1)) > compared / 2:
            more = bool((np.isfinite(noise.variances) > np.isfinite(certain.variances)).any())
            found.append(_clusters(pairs, noise, which, error_rate, seed, weakly=more, by_contrast=not cautious))
    best = max(found, key=lambda clusters: (clusters.labels.max(initial=0), clusters.separation or 0.0))
    return _reassigned(best, [clusters.pairs for clusters in found if len(clusters.directions) == 1])


def _reassigned(clusters: ClassClusters, of_each: Sequence[ClassPairs]) -> ClassClusters:
    """The same clusters, every client in its nearest by both directions where one showed the clusters."""
    rows = np.flatnonzero(clusters.labels >= 0)
    if len(of_each) < 2 or len(clusters.directions) > 1 or clusters.labels.max(initial=0) <= 0:
        return clusters
    labels = clusters.labels.copy()
    labels[rows] = reassign((of_each[0] + of_each[1]).subset(rows), labels[rows])
    return replace(clusters, labels=labels)


def _in_several_classes(
    clients: Sequence[ClassSignatures], clusters: ClassClusters, error_rate: float, seed: int
) -> bool:
    """Whether the clusters differ beyond chance without the class that shows them best.

    Two directions of one class that are nearly equally strong may be swapped at some clients. That makes clusters, of
    one class.
    """
    noise, labels = clusters.noise, clusters.labels
    apart = np.not_equal.outer(labels, labels)
    shown = []
    for c in range(len(noise.names)):
        pairs = compare_classes(clients, noise.classes([c]))
        between, within = (pairs.squares[rows].sum() / max(pairs.weights[rows].sum(), 1e-9) for rows in (apart, ~apart))
        shown.append((between - within) * pairs.weights[apart].sum())
    others = noise.classes([c for c in range(len(noise.names)) if c != int(np.argmax(shown))])
    pairs = compare_classes(clients, others)
    rows = np.flatnonzero((labels >= 0) & pairs.weights.any(axis=1))
    known, of_known = pairs.subset(rows), others.subset(rows)
    limits, _ = class_limits(of_known, error_rate / len(VIEWS), np.random.default_rng(seed))
    again = np.full(len(labels), -1, dtype=np.intp)
    if len(rows):
        start = in_order_of_appearance(labels[rows])
        again[rows] = settle(known.rescaled(_within(known, start, of_known)), start, limits)
    connected = np.where(labels >= 0, _connected(clusters.pairs), -1)
    groups = [connected == g for g in np.unique(connected[labels >= 0])]
    return all(adjusted_rand_index(labels[own], again[own]) >= DISSOLVED for own in groups)


def _connected(pairs: ClassPairs) -> Labels:
    """Groups of clients that chains of compared pairs connect: (n,)."""
    return np.asarray(connected_components(csr_matrix(pairs.weights > 0), directed=False)[1], dtype=np.intp)


def _outside(groups: Labels, finer: Labels) -> NDArray[np.intp]:
    """Clients outside the largest of the finer groups of each group: only other directions compare them with it."""
    largest = {int(g): int(np.bincount(finer[groups == g]).argmax()) for g in np.unique(groups)}
    return np.flatnonzero([largest[int(g)] != f for g, f in zip(groups, finer, strict=True)])


def _clusters(
    pairs: ClassPairs,
    noise: ClassNoise,
    directions: tuple[int, ...],
    error_rate: float,
    seed: int,
    n_clusters: int | None = None,
    *,
    weakly: bool = False,
    by_contrast: bool = True,
) -> ClassClusters:
    """Clusters by some of the directions of classes; of several clients each where these are weakly determined."""
    rng = np.random.default_rng(seed)
    compared = np.flatnonzero(pairs.weights.any(axis=1))
    known, of_known = pairs.subset(compared), noise.subset(compared)
    limits, typical = class_limits(of_known, error_rate, rng)
    if not by_contrast:
        limits = by_height(limits.heights)
    if weakly:
        most = 90 / np.sqrt(noise.variances.min())  # no angle is larger
        limits = replace(limits, heights=np.where(_of_groups(limits), limits.heights, most))
    calibration = 1.0
    found = solve(known, limits, n_clusters)
    for _ in range(CALIBRATIONS if n_clusters is None else 0):
        before, calibration = found, _within(known, found, of_known)
        found = solve(known.rescaled(calibration), limits, n_clusters)
        if np.array_equal(before, found):
            break
    pairs, known = pairs.rescaled(calibration), known.rescaled(calibration)
    labels = np.full(len(pairs.weights), -1, dtype=np.intp)
    labels[compared] = found
    tree = weighted_merges(known) if len(compared) > 1 else np.empty((0, 4))
    heights = tree[::-1, 2][np.isfinite(tree[::-1, 2])]
    return ClassClusters(
        labels,
        pairs,
        noise,
        limits.heights,
        typical,
        tuple(float(h) for h in heights[:10]),
        worst_separation(known, found, limits),
        _reproducibility(known, found, limits, rng),
        calibration,
        directions,
        weakly,
        (worst_separation(known, found, by_height(limits.heights)) or np.inf) <= 1,
    )


def solve(pairs: ClassPairs, limits: Limits, n_clusters: int | None = None) -> Labels:
    """The dendrogram cut where chance does not reach, or into n_clusters; then every client with its nearest."""
    n = len(pairs.weights)
    if n < 2:
        return np.zeros(n, dtype=np.intp)
    tree = weighted_merges(pairs)
    heights = np.where(np.isfinite(tree[:, 2]), tree[:, 2], np.finfo(np.float64).max)
    finite = np.column_stack([tree[:, :2], heights, tree[:, 3]])
    if n_clusters is not None:
        return reassign(pairs, cut(finite, level_of(finite, min(n_clusters, n))))
    beyond = np.flatnonzero(limits.ratios(heights, merge_contrasts(pairs, tree), size_classes(tree)) > 1)
    if not len(beyond):
        return np.zeros(n, dtype=np.intp)
    lowest = heights[beyond].min()
    return settle(pairs, cut(finite, np.nextafter(lowest, 0.0)), limits)


def _of_groups(limits: Limits) -> NDArray[np.bool_]:
    """Which of the limits are those of groups: (classes of size,)."""
    return 2 ** np.arange(len(limits.heights)) >= GROUP


def _within(pairs: ClassPairs, labels: Labels, noise: ClassNoise) -> float:
    """Squared distances within clusters, in units of noise, less what may be chance: 1 if the noise is as predicted."""
    same = np.equal.outer(labels, labels)
    squares, weights = pairs.squares[same].sum(), pairs.weights[same].sum()
    if weights == 0 or squares == 0:
        return 1.0
    shared = same.sum(axis=1) > 1
    terms = np.isfinite(noise.variances[shared]).sum(axis=0)  # of each class and rank
    by_chance = DOUBTFUL * np.sqrt((2 / noise.spread * terms).sum()) / max(int(terms.sum()), 1)
    differs = float(np.log(squares / weights))
    if labels.any() and differs < 0:  # cut in two at its mean, normal noise of d dimensions has 1 - 2 / (π d) inside
        evidence = (noise.reference**2 / noise.variances[shared]).sum(axis=0)
        left = np.log1p(-2 / np.pi * (evidence / noise.spread).sum() / evidence.sum())
        differs = min(differs - float(left), 0.0)
    return float(np.exp(max(differs, min(differs + by_chance, 0.0))))


def worst_separation(pairs: ClassPairs, labels: Labels, limits: Limits) -> float | None:
    """How far the two most similar clusters go beyond chance, if more than 1; None if there is one cluster."""
    if len(labels) == 0 or labels.max() == 0:
        return None
    member = np.eye(int(labels.max()) + 1)[labels]
    sums = np.stack([member.T @ part @ member for part in pairs.parts[:2]])
    a, b = np.nonzero(np.tril(sums[1], -1))
    smaller = np.minimum(*(member.sum(axis=0).astype(np.intp)[k] for k in (a, b)))
    heights = np.sqrt(sums[0, a, b] / sums[1, a, b])
    found = limits.ratios(
        heights, contrasts(heights, sums[:, a, a] + sums[:, b, b], smaller), np.log2(smaller).astype(np.intp)
    )
    return float(found.min()) if len(found) else None


def _reproducibility(pairs: ClassPairs, labels: Labels, limits: Limits, rng: np.random.Generator) -> float | None:
    """Mean overlap of the least stable cluster with clusters of random halves of the clients, 0 to 1."""
    n = len(labels)
    if n < FEWEST:
        return None
    if labels.max() == 0:
        return 1.0
    overlaps = []
    for _ in range(HALVES):
        half = np.sort(rng.choice(n, (n + 1) // 2, replace=False))
        found = solve(pairs.subset(half), limits)
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
    noise = class_noise(clients, clusters.noise, weakly=clusters.weakly).only(clusters.directions)
    noise.variances[:n, [noise.names.index(name) for name in clusters.noise.names]] = clusters.noise.variances
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
        labels[outside] = int(labels.max()) + 1 + in_order_of_appearance(solve(among, by_height(clusters.limits)))
    both = [
        np.block([[old_part, new_part[:, :n].T], [new_part[:, :n], new_part[:, n:]]])
        for old_part, new_part in zip(clusters.pairs.parts, rows.parts, strict=True)
    ]
    return replace(clusters, labels=labels, pairs=ClassPairs(*both), noise=noise), tuple(suggestions)
