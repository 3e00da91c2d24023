"""Clients' samples -> how PACFL groups them, without any training."""

from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray

from pacfl.subspace import Clustering, cluster, proximity, signature, split_half_angles


def grouped(samples: Sequence[NDArray[Any]], rank: int, n_clusters: int | None = None) -> Clustering:
    """The groups of clients by the smallest angle and average linkage: as many as asked, or as the noise tells."""
    bases = [signature(x, rank) for x in samples]
    own = [split_half_angles(x, rank, measures=["smallest"])["smallest"] for x in samples]
    return cluster(proximity(bases, "smallest"), own, "smallest", "average", None, n_clusters, signatures=bases)
