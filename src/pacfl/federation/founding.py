"""Clusters founded by reports of those who join first; whoever joins later is placed by the means of these reports."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar
from zlib import crc32

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from pacfl.federation.algorithm import State
from pacfl.federation.checks import ArraySpec, check_arrays, check_norms
from pacfl.federation.message import ClientId, Message
from pacfl.learning.client_context import ClientContext
from pacfl.learning.model import Model, Vector
from pacfl.learning.randomness import stream
from pacfl.subspace.hierarchy import Labels, agglomerate, agglomerate_into, in_order_of_appearance

Array = NDArray[np.float64]
TRIES: Final = 10  # starts of k-means, of which the best counts
STEPS: Final = 100  # of each, at most


@dataclass(frozen=True, eq=False)
class FoundedState(State):
    """With the mean report of the founders of each cluster."""

    centres: NDArray[np.float32] | None = None  # (k, p); None: nobody has joined yet


S = TypeVar("S", bound=FoundedState)


# The server


def _mean(points: Array) -> Array:
    mean: Array = points.mean(axis=0)
    return mean


def joined(
    state: S,
    reports: Mapping[ClientId, NDArray[Any]],
    cluster: Callable[[Array], Labels],
    nearest: Callable[[Array, Array], Labels],
    centre: Callable[[Array], Array] = _mean,
) -> S:
    """The first to join found the clusters, `cluster(reports)`; later ones are placed by `nearest(reports, centres)`.

    Reports n × (p,). Clients are taken by their numbers, so that the order of replies does not matter.
    centre: the centre of a cluster, from the reports of its founders.
    """
    clients = sorted(reports)
    points = np.stack([reports[c] for c in clients]).astype(np.float64)
    if state.centres is None:
        rows = cluster(points)
        state = replace(state, centres=_centres(points, rows, centre))
    else:
        rows = nearest(points, state.centres.astype(np.float64))
    return replace(state, cluster_of={**state.cluster_of, **dict(zip(clients, rows.tolist(), strict=True))})


def with_models(state: S) -> S:
    """Every cluster that was founded has a model: until then there is only the initial one."""
    assert state.centres is not None
    missing = len(state.centres) - len(state.models)
    return replace(state, models=np.vstack([state.models, np.repeat(state.models[:1], missing, axis=0)]))


def by_distance(points: Array, centres: Array) -> Labels:
    """The centre at the smallest Euclidean distance of each point."""
    rows: Labels = cdist(points, centres).argmin(axis=1)
    return rows


def cosines(a: Array, b: Array) -> Array:
    """Of all pairs of rows, (n, m); 0 for rows of zeros."""
    products: Array = _units(a) @ _units(b).T
    return products


def cut_into(distances: Array, clusters: int, threshold: float | None) -> Labels:
    """Average linkage: cut at the threshold, or, without one, into the number of clusters."""
    if threshold is not None:
        return agglomerate(distances, threshold)
    return agglomerate_into(distances, min(clusters, len(distances)))


def kmeans(points: Array, clusters: int) -> Labels:
    """Lloyd's algorithm from k-means++ starts: (n, p) -> (n,) labels 0..k-1, k the number of distinct points at most.

    >>> kmeans(np.array([[0.0], [10.0], [1.0]]), 2)
    array([0, 1, 0])
    """
    runs = [_lloyd(points, _spread(points, clusters, stream(0, "kmeans", i))) for i in range(TRIES)]
    return in_order_of_appearance(min(runs, key=lambda run: run[0])[1])


def _spread(points: Array, clusters: int, rng: np.random.Generator) -> Array:
    """Centres drawn with probabilities proportional to the squared distance to those before."""
    chosen = [int(rng.integers(len(points)))]
    while len(chosen) < clusters:
        squares = cdist(points, points[chosen], "sqeuclidean").min(axis=1)
        if not squares.any():
            break
        chosen.append(int(rng.choice(len(points), p=squares / squares.sum())))
    return points[chosen]


def _lloyd(points: Array, centres: Array) -> tuple[float, Labels]:
    """The sum of squared distances to the centres, and the nearest centre of each point."""
    labels = by_distance(points, centres)
    for _ in range(STEPS):
        clusters = [points[labels == k] for k in range(len(centres))]
        centres = np.stack([c.mean(axis=0) if len(c) else centres[k] for k, c in enumerate(clusters)])
        before, labels = labels, by_distance(points, centres)
        if (labels == before).all():
            break
    return float(((points - centres[labels]) ** 2).sum()), labels


def _centres(points: Array, rows: Labels, centre: Callable[[Array], Array]) -> NDArray[np.float32]:
    """The centre of every row; infinitely far for rows that nobody has."""
    centres = np.full((rows.max() + 1, points.shape[1]), np.inf, dtype=np.float32)
    for row in set(rows.tolist()):
        centres[row] = centre(points[rows == row])
    return centres


def _units(points: Array) -> Array:
    lengths = np.linalg.norm(points, axis=1, keepdims=True)
    units: Array = np.divide(points, lengths, out=np.zeros_like(points), where=lengths > 0)
    return units


def check_like(profile: Message, expected: Message, model: Model) -> None:
    """Refuse a profile that has not the arrays of another one, or that is not finite, or implausibly large."""
    check_arrays(profile, {name: ArraySpec(array.shape, array.dtype.kind) for name, array in expected.items()})
    check_norms(profile, model)


# Models that all know without being sent them


def independent(model: Model, clusters: int, name: str) -> NDArray[np.float32]:
    """Initial models that are drawn independently, the first one the model's own: (clusters, d)."""
    # Addressed by the first model, so that another run has others, and none is drawn as the first was
    address = crc32(model.initial.tobytes())
    others = [model.fresh(int(stream(address, name, i).integers(2**31))) for i in range(1, clusters)]
    return np.stack([model.initial, *others])


def local_model(context: ClientContext) -> Vector:
    """A client's model after the local epochs from the initial one, but for layers that stay at the client."""
    initial = context.model.initial
    trained, _ = context.sgd(initial, purpose="profile")
    return np.where(context.model.local, initial, trained)
