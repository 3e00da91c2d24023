"""What was compared to cluster clients, to be drawn: distances, their dendrogram, and where it is cut, in one unit."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pacfl.subspace.clustering import Clustering
from pacfl.subspace.columns import ColumnAngles, largest_scores
from pacfl.subspace.hierarchy import merges as merges_of

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Compared:
    """Distances between clients by what decided their clusters: columns of tables, the same classes, or inputs."""

    what: str  # the distances, in words
    scale: str  # the unit of the heights, in words
    in_noise: bool  # whether all is in units of noise; otherwise in degrees
    distances: Array  # (n, n), NaN where nothing was compared
    merges: Array  # (n - 1, 4), the dendrogram in scipy's form; what nothing connects is merged last
    threshold: float
    noise: float | None  # what two samples of one client, or class, show
    chance: float | None  # what chance reaches


def compared(
    clustering: Clustering, columns: Sequence[ColumnAngles | None] = (), merges: Array | None = None
) -> Compared:
    """What decided the clusters.

    columns: of each client, if it has a table. merges: the dendrogram by classes or inputs, where it is known.
    """
    tables = [own for own in columns if own is not None]
    if clustering.by_columns and len(tables) == len(clustering.labels):
        return _columns(clustering, tables)
    tree, evidence = clustering.merges() if merges is None else merges, clustering.evidence
    noise = evidence.get("floor")
    unit = clustering.reference_scale or noise
    if evidence.get("compare", "inputs") != "inputs" and unit:
        scaled = np.column_stack([tree[:, :2], tree[:, 2] / unit, tree[:, 3]])
        limits = evidence.get("null_limits") or [None]
        what = "difference between the same classes, in units of noise"
        angles, threshold = _between_classes(clustering) / unit, clustering.threshold / unit
        return Compared(what, "units of noise", True, angles, scaled, threshold, 1.0, limits[0])
    what, scale, limit = f"{clustering.measure} angle, as measured", "degrees as measured", None
    if clustering.reference_scale is None:
        noise = None  # of angles that were rescaled
    else:
        scale = "degrees, rescaled to the noise of a typical client"
        limit = None if not evidence.get("null_limits") or noise is None else noise * evidence["null_limits"][0]
    return Compared(what, scale, False, clustering.proximity, tree, clustering.threshold, noise, limit)


def _between_classes(clustering: Clustering) -> Array:
    """Distances between the same classes, in degrees of a typical class; NaN for pairs that share none."""
    if clustering.classes is None:
        return clustering.proximity  # of a stored run, whose classes are not
    angles = np.where(clustering.classes.pairs.weights > 0, clustering.distances(), np.nan)
    np.fill_diagonal(angles, 0.0)
    return angles


def _columns(clustering: Clustering, tables: Sequence[ColumnAngles]) -> Compared:
    """The column that differs most between each two clients, and the average linkage of that."""
    scores = largest_scores(tables)
    known = scores[np.isfinite(scores)]
    tree = merges_of(np.where(np.isfinite(scores), scores, known.max(initial=1.0)), "average")
    limit = float(clustering.evidence["columns"]["limit"])
    what = "difference of the column that differs most, in units of noise"
    return Compared(what, "units of noise, of the column that differs most", True, scores, tree, limit, None, limit)
