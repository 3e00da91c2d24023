"""Who is in which cluster, by signature: newcomers are assigned, clients that leave for good are forgotten."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from pacfl.errors import InvalidReplyError
from pacfl.federation.algorithm import State
from pacfl.federation.levels import Levels
from pacfl.federation.message import ClientId, Message
from pacfl.learning.model import Vector
from pacfl.subspace import Clustering, assign_newcomers

Floats = NDArray[np.float32]

ORTHONORMAL_WITHIN: Final = 1e-3  # of signatures in float32
MOST_COLUMNS: Final = 10_000  # of a signature per class


@dataclass(frozen=True, eq=False, kw_only=True)
class PACFLState(State):
    """With every client's signature, in the order of joining, and their clustering; its labels are rows of models."""

    initial: Vector  # what a cluster starts from, whenever it is opened
    bases: Mapping[ClientId, Floats] = field(default_factory=dict)
    clustering: Clustering | None = None
    levels: Levels | None = None  # where divisions are tried: the labels of the clustering are groups then


def admitted(
    state: PACFLState,
    profiles: Mapping[ClientId, Message],
    cluster: Callable[[Sequence[Floats], Sequence[Floats]], Clustering],
) -> PACFLState:
    """With clients that join, or return with other data; nobody else moves.

    The first to join are clustered together, by their signatures and their split-half angles.
    """
    profiles = {c: p for c, p in profiles.items() if not np.array_equal(p["basis"], state.bases.get(c, ()))}
    if not profiles:
        return state  # every client is as before
    old = {c: basis for c, basis in state.bases.items() if c not in profiles}
    bases = {**old, **{c: profile["basis"] for c, profile in profiles.items()}}
    angles = [profile["split_half_angles"] for profile in profiles.values()]
    if state.clustering is None or not old:
        clustering = cluster(list(bases.values()), angles)
    else:
        known = state.clustering.subset([i for i, c in enumerate(state.bases) if c in old])
        clustering, _ = assign_newcomers(known, list(old.values()), list(bases.values())[len(old) :], angles)
    rows = _rows(list(bases), clustering.labels.tolist(), len(old), state)
    models = np.vstack([state.models, *[state.initial] * (max(rows) + 1 - len(state.models))])
    cluster_of = {**state.cluster_of, **dict(zip(bases, rows, strict=True))}
    clustering = replace(clustering, labels=np.array(rows, dtype=np.intp))
    return replace(state, models=models, cluster_of=cluster_of, bases=bases, clustering=clustering)


def check_signature(basis: NDArray[Any], split_half_angles: NDArray[Any]) -> None:
    """Refuse a basis that is not orthonormal, and degrees that no two subspaces have.

    Within that a claim of degrees is accepted: docs/hostile.md says what it can do.
    """
    features, columns = basis.shape
    if not 1 <= columns <= min(features, MOST_COLUMNS):
        raise InvalidReplyError(f"'basis' has {columns} columns of {features} features")
    exact = basis.astype(np.float64)
    error = float(np.abs(exact.T @ exact - np.eye(columns)).max())
    if error > ORTHONORMAL_WITHIN:
        raise InvalidReplyError(f"'basis' is not orthonormal (off by {error:.2g})")
    if not ((split_half_angles >= 0) & (split_half_angles <= 90 * columns)).all():
        raise InvalidReplyError(f"'split_half_angles' must be degrees from 0 to {90 * columns}")


def incomparable(state: PACFLState, profiles: Mapping[ClientId, Message]) -> dict[ClientId, str]:
    """Clients whose signatures have another number of features than those of others, or of most if all are new."""
    rows = {c: len(profile["basis"]) for c, profile in profiles.items()}
    features = [len(basis) for basis in state.bases.values()] or list(rows.values())
    expected = Counter(features).most_common(1)
    return {c: f"'basis' has {n} features, expected {expected[0][0]}" for c, n in rows.items() if n != expected[0][0]}


def without(state: PACFLState, clients: Set[ClientId]) -> PACFLState:
    """Without clients that left for good. The last one of a cluster stays: newcomers find it by its signature."""
    in_order = sorted(state.cluster_of.items(), key=lambda entry: entry[0] not in clients)
    last = {k: c for c, k in in_order}
    going = clients - set(last.values())
    cluster_of = {c: k for c, k in state.cluster_of.items() if c not in going}
    positions = [i for i, c in enumerate(state.bases) if c not in going]
    bases = {c: basis for c, basis in state.bases.items() if c not in going}
    clustering = state.clustering and state.clustering.subset(positions)
    return replace(state, cluster_of=cluster_of, bases=bases, clustering=clustering)


def _rows(clients: Sequence[ClientId], labels: Sequence[int], n_old: int, state: PACFLState) -> list[int]:
    """The model of each: a new cluster takes over a model that its own members have left, or starts a new one."""
    row_of = {k: k for k in labels[:n_old]}
    fresh = count(len(state.models))
    for k in labels[n_old:]:
        if k not in row_of:
            members = [c for c, own in zip(clients, labels, strict=True) if own == k and c in state.cluster_of]
            left = [state.cluster_of[c] for c in members if state.cluster_of[c] not in row_of.values()]
            row_of[k] = left[0] if left else next(fresh)
    return [row_of[k] for k in labels]
