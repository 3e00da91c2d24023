"""From the proximity to clusters in one step, and on to newcomers."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pacfl.subspace.hierarchy import Labels, Linkage, agglomerate, agglomerate_into, dendrogram
from pacfl.subspace.newcomers import MergeSuggestion, place
from pacfl.subspace.noise_scale import noise_scale, reference_scale, rescale_by_noise
from pacfl.subspace.proximity import Measure, Signatures, extend
from pacfl.subspace.threshold import choose_threshold

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Clustering:
    """How far apart clients are, where the dendrogram is cut, and who is in which cluster."""

    measure: Measure
    linkage: Linkage
    proximity: Array  # (n, n) degrees, as measured
    noise_scale: Array  # (n,) degrees of sampling noise
    reference_scale: float | None  # degrees, if the rescaled proximity is what is cut; None if the proximity itself
    threshold: float  # degrees
    labels: Labels  # (n,)
    evidence: dict[str, Any]  # plain values, ready for JSON

    def distances(self) -> Array:
        """The matrix that the threshold cuts."""
        if self.reference_scale is None:
            return self.proximity
        return rescale_by_noise(self.proximity, self.noise_scale, self.reference_scale)

    def subset(self, clients: Sequence[int]) -> "Clustering":
        """The same clustering of some of the clients, by their positions."""
        rows = np.asarray(clients, dtype=np.intp)
        square = self.proximity[np.ix_(rows, rows)]
        return replace(self, proximity=square, noise_scale=self.noise_scale[rows], labels=self.labels[rows])


def cluster(
    proximity: Array,
    split_half_angles: Sequence[ArrayLike] | None,
    measure: Measure = "smallest",
    linkage: Linkage = "average",
    threshold: float | None = None,
    n_clusters: int | None = None,
    *,
    signatures: Signatures | None = None,  # noqa: ARG001 - for the guarantee, which looks at their shapes
    caveats: Sequence[str] = (),
) -> Clustering:
    """Cluster at a threshold in degrees, into a number of clusters, or, without either, at the automatic threshold.

    proximity (n, n) in degrees by the measure, split_half_angles n × (splits,) by the same measure.
    caveats: reasons known to the caller why the error rate is not guaranteed.
    """
    if threshold is not None and n_clusters is not None:
        raise ValueError("either a threshold or a number of clusters may be given, not both")
    noise = noise_scale(proximity, split_half_angles)
    reference: float | None = reference_scale(noise)
    if threshold is not None:
        labels, reference = agglomerate(proximity, threshold, linkage), None
        evidence: dict[str, Any] = {"finding": "given", "reasons": "The threshold was given."}
    elif n_clusters is not None:
        distances = rescale_by_noise(proximity, noise, reference)
        labels = agglomerate_into(distances, n_clusters, linkage)
        threshold = _level_of(dendrogram(distances, linkage), n_clusters)
        evidence = {"finding": "given", "reasons": "The number of clusters was given."}
    else:
        choice = choose_threshold(proximity, split_half_angles, linkage)
        labels, threshold = choice.labels, choice.threshold
        evidence = json.loads(json.dumps(asdict(choice.evidence)))
        evidence |= {"guaranteed": not caveats, "not_guaranteed_because": "; ".join(caveats) or None}
    return Clustering(measure, linkage, proximity, noise, reference, float(threshold), labels, evidence)


def assign_newcomers(
    clustering: Clustering, old: Signatures, new: Signatures, split_half_angles: Sequence[ArrayLike]
) -> tuple[Clustering, tuple[MergeSuggestion, ...]]:
    """The clustering with newcomers in it, and the merges of old clusters that they suggest. Nobody else moves.

    old n × (features, p), new m × (features, q), split_half_angles of the new m × (splits,).
    """
    n = len(clustering.labels)
    proximity = extend(clustering.proximity, old, new, clustering.measure)
    noise = np.concatenate([clustering.noise_scale, noise_scale(proximity[n:], split_half_angles)])
    rows = proximity[n:]
    if clustering.reference_scale is not None:
        rows = rescale_by_noise(rows, noise, clustering.reference_scale)
    assigned = place(rows, clustering.labels, clustering.threshold, clustering.linkage)
    joined = replace(clustering, proximity=proximity, noise_scale=noise, labels=assigned.labels)
    return joined, assigned.merge_suggestions


def _level_of(tree: Array, n_clusters: int) -> float:
    """A threshold between the last merge that is done and the first that is undone."""
    heights = tree[::-1, 2]
    undone = float(heights[n_clusters - 2]) if n_clusters >= 2 else float(heights[0] * 2) if len(heights) else 90.0
    done = float(heights[n_clusters - 1]) if n_clusters - 1 < len(heights) else 0.0
    return (done + undone) / 2
