"""Other clusterings that need no number of clusters, from other libraries; studies/methods.py compares them."""

from typing import Final

import numpy as np
from numpy.typing import ArrayLike

from pacfl.subspace.hierarchy import Labels, check_proximity, in_order_of_appearance

# Groups of clients are merged up to this many noise scales. Squares add up: there they differ as much as noise.
TOGETHER_WITHIN: Final = 2**0.5


def density(proximity: ArrayLike, min_cluster_size: int = 2) -> Labels:
    """Clusters that are denser than what lies between them: HDBSCAN (Campello and others, 2013).

    proximity (n, n), best rescaled by noise  ->  (n,) labels 0..k-1. By default, two clients can be a cluster.

    Clients that HDBSCAN labels as noise join the cluster of the nearest client that it does not. They have few
    neighbours, but need not differ: of clients of one distribution it labels a fifth or more so, and these would train
    without others. The price: a single client of a distribution of its own is not found.

    >>> density([[0, 1, 9, 9], [1, 0, 9, 9], [9, 9, 0, 1], [9, 9, 1, 0]])
    array([0, 0, 1, 1])
    """
    from pacfl.errors import library

    square = check_proximity(proximity)
    if min_cluster_size < 2:
        raise ValueError(f"min_cluster_size must be at least 2, got {min_cluster_size}")
    cluster = library("sklearn.cluster", "density-based clustering", "methods")
    if len(square) < min_cluster_size:
        return np.zeros(len(square), dtype=np.intp)
    method = cluster.HDBSCAN(
        min_cluster_size=min_cluster_size, metric="precomputed", allow_single_cluster=True, copy=True
    )
    labels = method.fit_predict(square)
    dense = np.flatnonzero(labels >= 0)
    nearest = dense[square[:, dense].argmin(axis=1)]
    return in_order_of_appearance(np.where(labels >= 0, labels, labels[nearest]))


def communities(proximity: ArrayLike, scale: float, seed: int = 0) -> Labels:
    """Communities of the graph of clients with edges of weight exp(-(angle / scale)² / 2): Louvain's method (2008).

    proximity (n, n), best rescaled by noise; scale, the noise scale in the same unit  ->  (n,) labels 0..k-1.
    Slow beyond a thousand clients: the graph is complete.

    Plain modularity splits wherever weights are below their average, also among clients of one distribution.
    Loops that give all clients the same degree make it the constant Potts model (Traag and others, 2011): groups are
    merged if their mean weight is above that of √2 × scale, where a difference is as large as its noise.

    >>> communities([[0, 1, 9, 9], [1, 0, 9, 9], [9, 9, 0, 1], [9, 9, 1, 0]], scale=1.0)
    array([0, 0, 1, 1])
    """
    from pacfl.errors import library

    square = check_proximity(proximity)
    if not 0 < scale < np.inf:
        raise ValueError(f"scale must be a positive number, got {scale!r}")
    networkx = library("networkx", "clustering by communities", "methods")
    weights = np.exp(-((square / scale) ** 2) / 2)
    np.fill_diagonal(weights, 0.0)
    # A loop counts twice; with degrees of n, the resolution is the mean weight above which groups are merged
    np.fill_diagonal(weights, (len(weights) - weights.sum(axis=1)) / 2)
    found = networkx.community.louvain_communities(
        networkx.from_numpy_array(weights), resolution=np.exp(-(TOGETHER_WITHIN**2) / 2), threshold=0.0, seed=seed
    )
    labels = np.empty(len(square), dtype=np.intp)
    for name, members in enumerate(found):
        labels[list(members)] = name
    return in_order_of_appearance(labels)
