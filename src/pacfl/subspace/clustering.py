"""From signatures to clusters in one step, and on to newcomers: what every user of this layer does."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pacfl.subspace.hierarchy import Labels, Linkage, agglomerate, agglomerate_into, dendrogram
from pacfl.subspace.newcomers import Bridge, place
from pacfl.subspace.noise_scale import adjust, floors, typical
from pacfl.subspace.proximity import Measure, Signatures, extend
from pacfl.subspace.threshold import choose_threshold

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Grouping:
    """How far apart clients are, where that is cut, and which cluster is whose."""

    measure: Measure
    linkage: Linkage
    proximity: Array  # (n, n) degrees, as measured
    floors: Array  # (n,) degrees of sampling noise
    unit: float | None  # the typical floor, if the adjusted proximity is what is cut; None if the proximity itself
    threshold: float  # degrees
    labels: Labels  # (n,)
    evidence: dict[str, Any]  # plain values, ready for JSON

    def distances(self) -> Array:
        """The matrix that the threshold cuts."""
        return self.proximity if self.unit is None else adjust(self.proximity, self.floors, self.unit)

    def of(self, clients: Sequence[int]) -> "Grouping":
        """The same of some clients, by their places."""
        rows = np.asarray(clients, dtype=np.intp)
        square = self.proximity[np.ix_(rows, rows)]
        return replace(self, proximity=square, floors=self.floors[rows], labels=self.labels[rows])


def group(
    proximity: Array,
    self_angles: Sequence[ArrayLike] | None,
    measure: Measure = "smallest",
    linkage: Linkage = "average",
    threshold: float | None = None,
    n_clusters: int | None = None,
) -> Grouping:
    """Cluster at a threshold in degrees, into a number of clusters, or, if neither is given, as the noise tells.

    proximity (n, n) in degrees by the measure, self_angles n × (splits,) by the same measure.
    """
    if threshold is not None and n_clusters is not None:
        raise ValueError("either a threshold or a number of clusters may be given, not both")
    floor = floors(proximity, self_angles)
    unit: float | None = typical(floor)
    if threshold is not None:
        labels, unit = agglomerate(proximity, threshold, linkage), None
        evidence: dict[str, Any] = {"finding": "given", "reasons": "The threshold was given."}
    elif n_clusters is not None:
        distances = adjust(proximity, floor, unit)
        labels = agglomerate_into(distances, n_clusters, linkage)
        threshold = _level_of(dendrogram(distances, linkage), n_clusters)
        evidence = {"finding": "given", "reasons": "The number of clusters was given."}
    else:
        choice = choose_threshold(proximity, self_angles, linkage)
        labels, threshold = choice.labels, choice.threshold
        evidence = json.loads(json.dumps(asdict(choice.evidence)))
    return Grouping(measure, linkage, proximity, floor, unit, float(threshold), labels, evidence)


def regroup(
    grouping: Grouping, old: Signatures, new: Signatures, self_angles: Sequence[ArrayLike]
) -> tuple[Grouping, tuple[Bridge, ...]]:
    """The grouping with newcomers placed, and the bridges they make between old clusters. Nobody else moves.

    old n × (features, p), new m × (features, q), self_angles of the new m × (splits,).
    """
    n = len(grouping.labels)
    proximity = extend(grouping.proximity, old, new, grouping.measure)
    floor = np.concatenate([grouping.floors, floors(proximity[n:], self_angles)])
    rows = proximity[n:] if grouping.unit is None else adjust(proximity[n:], floor, grouping.unit)
    placement = place(rows, grouping.labels, grouping.threshold, grouping.linkage)
    return replace(grouping, proximity=proximity, floors=floor, labels=placement.labels), placement.bridges


def _level_of(tree: Array, n_clusters: int) -> float:
    """A threshold between the last merge that is done and the first that is undone."""
    heights = tree[::-1, 2]
    undone = float(heights[n_clusters - 2]) if n_clusters >= 2 else float(heights[0] * 2) if len(heights) else 90.0
    done = float(heights[n_clusters - 1]) if n_clusters - 1 < len(heights) else 0.0
    return (done + undone) / 2
