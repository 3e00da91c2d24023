"""One call for any number of clients: exact by all pairs, or by landmarks."""

from collections.abc import Callable, Sequence
from typing import Any, Final, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pacfl.subspace import clustering
from pacfl.subspace.clustering import Clustering
from pacfl.subspace.hierarchy import Linkage
from pacfl.subspace.landmarks import cluster_by_landmarks
from pacfl.subspace.proximity import Measure, Signatures, proximity
from pacfl.subspace.threshold import ERROR_RATE

Method = Literal["auto", "exact", "landmarks"]
METHODS: Final[tuple[Method, ...]] = get_args(Method)
EXACT_AT_MOST: Final = 5000  # clients, where the method is `auto`: half a minute or so


def cluster(
    clients: ArrayLike,
    split_half_angles: Sequence[ArrayLike] | NDArray[Any] | None,
    measure: Measure = "smallest",
    linkage: Linkage = "average",
    threshold: float | None = None,
    n_clusters: int | None = None,
    *,
    method: Method = "auto",
    signatures: Signatures | None = None,
    caveats: Sequence[str] = (),
    error_rate: float = ERROR_RATE,
    on_clients: Callable[[int], object] | None = None,
) -> Clustering:
    """Cluster at a threshold in degrees, into a number of clusters, or, without either, at the automatic threshold.

    clients: their proximity (n, n) in degrees by the measure, or their orthonormal bases (n, features, rank), an array
    or a memory map, of which those with fewer directions end in columns of zeros. split_half_angles n × (splits,) by
    the measure; with bases (n, splits), NaN for clients without. signatures, caveats, error_rate: see
    `choose_threshold`.

    method, of bases: `exact` compares all pairs; `landmarks` clusters a few thousand clients exactly and places the
    others with them (`pacfl.subspace.landmarks`), by average linkage at the automatic threshold only; `auto` is exact
    up to 5,000 clients, and wherever landmarks cannot be. on_clients is called with the number of clients compared
    since the last call.

    >>> bases = np.repeat(np.eye(4)[None, :, :1], 6, axis=0)
    >>> bases[3:] = np.eye(4)[:, 1:2]
    >>> cluster(bases, np.full((6, 8), 2.0)).labels
    array([0, 0, 0, 1, 1, 1])
    """
    if method not in METHODS:
        raise ValueError(f"method must be one of {', '.join(METHODS)}, got {method!r}")
    automatic = linkage == "average" and threshold is None and n_clusters is None
    if method == "landmarks" and not automatic:
        raise ValueError(
            "landmarks place clients by average linkage at the automatic threshold; leave out linkage, threshold and "
            "n_clusters, or use method='exact'"
        )
    if not (isinstance(clients, np.ndarray) and clients.ndim == 3):
        if method == "landmarks":
            raise ValueError(f"landmarks need bases (n, features, rank), got an array of shape {np.shape(clients)}")
        return clustering.cluster(
            clients,
            None if split_half_angles is None else list(split_half_angles),
            measure,
            linkage,
            threshold,
            n_clusters,
            signatures=signatures,
            caveats=caveats,
            error_rate=error_rate,
        )
    own = [np.empty(0)] * len(clients) if split_half_angles is None else split_half_angles
    if method == "landmarks" or (method == "auto" and automatic and len(clients) > EXACT_AT_MOST):
        angles = np.asarray(own)
        return cluster_by_landmarks(
            clients, angles, measure, caveats=caveats, error_rate=error_rate, on_clients=on_clients
        )
    bases = [u[:, np.abs(u).max(axis=0) > 0] for u in np.asarray(clients, dtype=np.float64)]
    return clustering.cluster(
        proximity(bases, measure, on_clients),
        [np.asarray(a)[np.isfinite(a)] for a in own],
        measure,
        linkage,
        threshold,
        n_clusters,
        signatures=bases,
        caveats=caveats,
        error_rate=error_rate,
    )
