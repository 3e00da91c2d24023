"""Proximity -> clusters in one call, and the assignment of newcomers to them."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pacfl.subspace.class_clustering import ClassClusters
from pacfl.subspace.guarantee import TOO_FEW, noise_obstacle, random_angle, shape_of, too_noisy
from pacfl.subspace.hierarchy import Labels, Linkage, agglomerate, check_proximity, cut, dendrogram, level_of
from pacfl.subspace.newcomers import MergeSuggestion, place
from pacfl.subspace.noise_scale import noise_scale, reference_scale, rescale_by_noise
from pacfl.subspace.proximity import Measure, Signatures, extend
from pacfl.subspace.threshold import ERROR_RATE, Cut, Evidence, choose
from pacfl.subspace.weighted import weighted_merges

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Landmarks:
    """The clients by whom all others were placed, by their positions."""

    clients: NDArray[np.intp]  # (l,) those who were clustered first: the proximity is theirs
    members: NDArray[np.intp]  # (m,) of all clusters, with whom others are compared
    clusters: NDArray[np.intp]  # (m,) theirs
    limit: float  # in units of noise: whoever is further from the members of all clusters in the mean is in none


@dataclass(frozen=True, eq=False)
class Clustering:
    """The angles between clients, the threshold that cuts their dendrogram, and the cluster of each client."""

    measure: Measure
    linkage: Linkage
    proximity: Array  # (n, n) degrees, as measured; with landmarks, (l, l) of those who were clustered first
    noise_scale: Array  # (n,) degrees of sampling noise
    reference_scale: float | None  # degrees, if the rescaled proximity is what is cut; None if the proximity itself
    threshold: float  # degrees
    labels: Labels  # (n,) from 0; -1 for clients that cannot be judged and join nobody. All may have left a number
    evidence: dict[str, Any]  # of pacfl.subspace.Evidence, ready for JSON
    classes: ClassClusters | None = None  # where classes were compared
    inputs: "InputsCut | None" = None  # beside classes: how the same clients are cut by their inputs
    landmarks: Landmarks | None = None  # where only some clients were clustered exactly (pacfl.subspace.landmarks)

    @property
    def by_columns(self) -> bool:
        """Whether columns of tables were compared too, and separated clients."""
        return bool((self.evidence.get("columns") or {}).get("separating"))

    @property
    def numbers(self) -> list[int]:
        """The clusters that have clients."""
        return [int(k) for k in np.unique(self.labels) if k >= 0]

    def distances(self) -> Array:
        """The matrix that the threshold cuts, in degrees. Classes: pairs without evidence are shown at their noise."""
        if self.classes is not None and self.reference_scale is not None:
            ratios = np.where(self.classes.pairs.weights > 0, self.classes.pairs.ratios(), 1.0)
            np.fill_diagonal(ratios, 0.0)
            return ratios * self.reference_scale
        if self.reference_scale is None:
            return self.proximity
        farthest = self.evidence.get("random_angle")
        noise = self.noise_scale if self.landmarks is None else self.noise_scale[self.landmarks.clients]
        return rescale_by_noise(self.proximity, noise, self.reference_scale, farthest)

    def input_distances(self) -> Array:
        """Angles between all data of clients, each as if it had the noise of a typical client, in degrees."""
        if self.classes is None:
            return self.distances()
        return rescale_by_noise(self.proximity, self.noise_scale)

    def merges(self) -> Array:
        """The dendrogram in scipy's form, heights in degrees; what nothing connects is merged last."""
        if self.classes is None or self.reference_scale is None:
            return dendrogram(self.distances(), self.linkage)
        tree = weighted_merges(self.classes.pairs)
        highest = tree[np.isfinite(tree[:, 2]), 2].max(initial=1.0)
        heights = np.where(np.isfinite(tree[:, 2]), tree[:, 2], highest) * self.reference_scale
        return np.column_stack([tree[:, :2], heights, tree[:, 3]])

    def subset(self, clients: Sequence[int]) -> "Clustering":
        """The same clustering of some of the clients, by their positions."""
        if self.landmarks is not None:
            raise ValueError("clients that were placed by landmarks cannot be separated from these")
        rows = np.asarray(clients, dtype=np.intp)
        known = self.evidence.get("not_judged") or {}
        left = {str(i): known[str(row)] for i, row in enumerate(rows.tolist()) if str(row) in known}
        return replace(
            self,
            proximity=self.proximity[np.ix_(rows, rows)],
            noise_scale=self.noise_scale[rows],
            labels=self.labels[rows],
            evidence={**self.evidence, "not_judged": left} if known else self.evidence,
            classes=None if self.classes is None else self.classes.subset(rows),
            inputs=None if self.inputs is None else self.inputs.subset(rows),
        )


@dataclass(frozen=True, eq=False)
class InputsCut:
    """A cut of the proximity by inputs."""

    threshold: float  # degrees
    reference_scale: float | None
    labels: Labels  # (n,)

    def subset(self, rows: NDArray[np.intp]) -> "InputsCut":
        """The same cut of some of the clients, numbered without gaps: nobody is shown these numbers."""
        _, dense = np.unique(np.append(-1, self.labels[rows]), return_inverse=True)
        return replace(self, labels=dense[1:] - 1)


def cluster(
    proximity: ArrayLike,
    split_half_angles: Sequence[ArrayLike] | None,
    measure: Measure = "smallest",
    linkage: Linkage = "average",
    threshold: float | None = None,
    n_clusters: int | None = None,
    *,
    signatures: Signatures | None = None,
    caveats: Sequence[str] = (),
    error_rate: float = ERROR_RATE,
) -> Clustering:
    """Cluster at a threshold in degrees, into a number of clusters, or, without either, at the automatic threshold.

    proximity (n, n) in degrees by the measure, split_half_angles n × (splits,) by the same measure.
    signatures, caveats and error_rate: see `choose_threshold`.

    labels == agglomerate(result.distances(), result.threshold, linkage), of the clients that can be compared; others
    have -1. Where merges tie, no threshold may give n_clusters: then there are as many clusters as a threshold can
    give, but no more than n_clusters.
    """
    if threshold is not None and n_clusters is not None:
        raise ValueError("either a threshold or a number of clusters may be given, not both")
    square = check_proximity(proximity)
    noise = noise_scale(square, split_half_angles)
    reference: float | None = reference_scale(noise)
    if threshold is not None:
        labels, reference = agglomerate(square, threshold, linkage), None
        evidence = _given("the threshold was given")
    elif n_clusters is not None:
        tree = dendrogram(rescale_by_noise(square, noise, reference), linkage)
        threshold = level_of(tree, n_clusters)
        labels = cut(tree, threshold)
        found = int(labels.max()) + 1
        tied = f": merges tie, and no threshold gives {n_clusters} clusters; {found} is the next lower number"
        evidence = _given("the number of clusters was given", "" if found == n_clusters else tied)
    else:
        choice = choose(
            square,
            split_half_angles,
            noise,
            linkage,
            error_rate,
            measure=measure,
            signatures=signatures,
            caveats=caveats,
        )
        labels, threshold, reference = choice.labels, choice.threshold, choice.evidence.floor
        evidence = json.loads(json.dumps(asdict(choice.evidence)))
    return Clustering(measure, linkage, square, noise, reference, float(threshold), labels, evidence)


@dataclass(frozen=True)
class GivenCut:
    """The evidence of a clustering that makes no claim: the caller chose where to cut."""

    finding: Literal["given"]
    reasons: str
    guaranteed: bool
    not_guaranteed_because: str
    compare: Literal["inputs", "classes", "both"] = "inputs"
    pairs: Mapping[str, int] | None = None  # as in Evidence
    not_judged: Mapping[str, str] | None = None


def _given(why: str, more: str = "") -> dict[str, Any]:
    return asdict(GivenCut("given", f"{why[0].upper()}{why[1:]}{more}.", False, why))


def evidence_of(clustering: Clustering) -> Evidence | GivenCut:
    """The evidence of a clustering, as it was before it was made ready for JSON."""
    stored = {key: value for key, value in clustering.evidence.items() if key != "levels"}
    if stored["finding"] == "given":
        return GivenCut(**stored)
    lists = {key: tuple(value) for key, value in stored.items() if isinstance(value, list)}
    return Evidence(**{**stored, **lists, "cuts": tuple(Cut(**cut) for cut in stored["cuts"])})


def assign_newcomers(
    clustering: Clustering, old: Signatures, new: Signatures, split_half_angles: Sequence[ArrayLike]
) -> tuple[Clustering, tuple[MergeSuggestion, ...]]:
    """The clustering with newcomers in it, and the merges of old clusters that they suggest. No other client moves.

    old n × (features, p), new m × (features, q), split_half_angles of the new m × (splits,). By inputs alone:
    `pacfl.subspace.together.assign` compares classes too.
    """
    n = len(clustering.labels)
    proximity = extend(clustering.proximity, old, new, clustering.measure)
    noise = np.concatenate([clustering.noise_scale, noise_scale(proximity[n:], split_half_angles)])
    not_judged = _not_comparable(clustering, [*old, *new], noise, split_half_angles)
    rows = np.flatnonzero(np.concatenate([clustering.labels >= 0, [not why for why in not_judged]]))
    n_old = int((clustering.labels >= 0).sum())
    labels = np.concatenate([clustering.labels, np.full(len(not_judged), -1, dtype=np.intp)])
    suggestions: tuple[MergeSuggestion, ...] = ()
    if len(rows) > n_old:
        # Ward's distances depend on the angles inside the old clusters too, those of other linkages do not
        distances = proximity[np.ix_(rows if clustering.linkage == "ward" else rows[n_old:], rows)]
        if clustering.reference_scale is not None:
            farthest = clustering.evidence.get("random_angle")
            distances = rescale_by_noise(distances, noise[rows], clustering.reference_scale, farthest)
        assigned = place(distances, clustering.labels[rows[:n_old]], clustering.threshold, clustering.linkage)
        labels[rows] = assigned.labels
        suggestions = tuple(replace(s, newcomer=int(rows[n_old + s.newcomer]) - n) for s in assigned.merge_suggestions)
    evidence, left = clustering.evidence, {str(n + i): why for i, why in enumerate(not_judged) if why}
    if left:
        evidence = {**evidence, "not_judged": {**(evidence.get("not_judged") or {}), **left}}
    joined = replace(clustering, proximity=proximity, noise_scale=noise, labels=labels, evidence=evidence)
    return joined, suggestions


def _not_comparable(
    clustering: Clustering, signatures: Signatures, noise: Array, split_half_angles: Sequence[ArrayLike]
) -> list[str]:
    """Why each newcomer cannot be compared; empty where it can. A cut that was given places everybody."""
    reference, evidence = clustering.reference_scale, clustering.evidence
    if reference is None or evidence["finding"] == "given" or evidence.get("floors_from") == "neighbours":
        return [""] * len(split_half_angles)
    shape = shape_of(signatures)
    farthest = None if shape is None else random_angle(*shape, clustering.measure)
    own = noise[len(noise) - len(split_half_angles) :]
    noisy = too_noisy(own, reference, clustering.threshold / reference, farthest)
    return [
        TOO_FEW if not np.size(angles) else noise_obstacle(float(scale), farthest) if bad else ""
        for angles, scale, bad in zip(split_half_angles, own, noisy, strict=True)
    ]
