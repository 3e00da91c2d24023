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
from pacfl.federation.checks import ArraySpec, ArraySpecs
from pacfl.federation.levels import Levels
from pacfl.federation.message import ClientId, Message
from pacfl.federation.private import used_key
from pacfl.learning.model import Vector
from pacfl.signatures import column_arrays
from pacfl.subspace import ClassSignatures, ClientSignature, Clustering, assign
from pacfl.subspace.classes import FEWEST, NO_LABELS, PLAIN, PRIVATE, from_messages
from pacfl.subspace.classes import RANK as CLASS_RANK
from pacfl.subspace.classes import SPLITS as CLASS_SPLITS
from pacfl.subspace.columns import UNLABELLED, ColumnAngles

Floats = NDArray[np.float32]

ORTHONORMAL_WITHIN: Final = 1e-3  # of signatures in float32
UNIT_WITHIN: Final = 1e-2  # of directions in float16
MOST_COLUMNS: Final = 10_000  # of a signature per class
MOST_CLASSES: Final = 100_000
COLUMN_ANGLES: Final = "column_angles"  # in profiles of tables
NO_CLASS: Final = -1  # in them: the one class of clients without labels


@dataclass(frozen=True, eq=False, kw_only=True)
class PACFLState(State):
    """With every client's signature, in the order of joining, and their clustering; its labels are rows of models."""

    initial: Vector  # what a cluster starts from, whenever it is opened
    bases: Mapping[ClientId, Floats] = field(default_factory=dict)
    classes: Mapping[ClientId, ClassSignatures] = field(default_factory=dict)  # of clients that sent some
    clustering: Clustering | None = None
    tables: Mapping[ClientId, ColumnAngles] | None = None  # columns of clients that sent some
    key: str | None = None  # of the directions of all signatures; None: they are plain
    levels: Levels | None = None  # where divisions are tried: the labels of the clustering are groups then


def admitted(
    state: PACFLState,
    profiles: Mapping[ClientId, Message],
    cluster: Callable[[Sequence[ClientSignature]], Clustering],
) -> PACFLState:
    """With clients that join, or return with other data; nobody else moves.

    The first to join are clustered together, by their signatures.
    """
    sent = {c: _signature(profile) for c, profile in profiles.items()}
    nothing, tables = np.empty(0), state.tables or {}
    old = {c: ClientSignature(u, nothing, state.classes.get(c), tables.get(c)) for c, u in state.bases.items()}
    new = {c: signed for c, signed in sent.items() if c not in old or not _same(signed, old[c])}
    if not new:
        return state  # every client is as before
    old = {c: signed for c, signed in old.items() if c not in new}
    if state.clustering is None or not old:
        clustering = cluster(list(new.values()))
    else:
        known = state.clustering.subset([i for i, c in enumerate(state.bases) if c in old])
        clustering, _ = assign(known, list(old.values()), list(new.values()))
    everybody = {**old, **new}
    rows = _rows(list(everybody), _with_a_model(clustering.labels), len(old), state)
    models = np.vstack([state.models, *[state.initial] * (max(rows) + 1 - len(state.models))])
    return replace(
        state,
        models=models,
        cluster_of={**state.cluster_of, **dict(zip(everybody, rows, strict=True))},
        bases={c: signed.basis for c, signed in everybody.items()},
        classes={c: signed.classes for c, signed in everybody.items() if signed.classes is not None},
        tables={c: signed.columns for c, signed in everybody.items() if signed.columns is not None} or None,
        clustering=replace(clustering, labels=np.array(rows, dtype=np.intp)),
        key=used_key(next(iter(profiles.values()))),
    )


def _signature(profile: Message) -> ClientSignature:
    classes = from_messages(profile) if "labelled" in profile else None
    columns = None if COLUMN_ANGLES not in profile else _columns(profile)
    return ClientSignature(profile["basis"], profile["split_half_angles"], classes, columns)


def _same(signed: ClientSignature, before: ClientSignature) -> bool:
    """Whether a client sent what it had sent before."""
    parts = (
        (signed.classes, before.classes, ("counts", "directions")),
        (signed.columns, before.columns, ("counts", "means", "variances")),
    )
    return np.array_equal(signed.basis, before.basis) and all(
        own is other
        or (
            own is not None
            and other is not None
            and own.names == other.names
            and all(np.array_equal(getattr(own, name), getattr(other, name)) for name in arrays)
        )
        for own, other, arrays in parts
    )


def _with_a_model(labels: NDArray[np.intp]) -> list[int]:
    """Clusters in which everybody trains: who joined nobody trains alone, or with all others if these are one."""
    found = labels[labels >= 0]
    if len(np.unique(found)) <= 1:
        return [int(found[0]) if len(found) else 0] * len(labels)
    alone = count(int(found.max()) + 1)
    return [int(k) if k >= 0 else next(alone) for k in labels]


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


def check_classes(profile: Message, private: bool = False) -> None:
    """Refuse classes that do not belong together, directions that are none, and degrees that no two have."""
    names, counts, directions, angles = (
        profile[name] for name in ("classes", "class_counts", "class_directions", "class_angles")
    )
    n, features = len(names), len(profile["basis"])
    expected = PRIVATE if private else PLAIN
    if profile["labelled"].tolist() not in ([expected], [NO_LABELS]) or (n and profile["labelled"][0] == NO_LABELS):
        raise InvalidReplyError(f"'labelled' must be {expected} for a client with classes, or {NO_LABELS}")
    shapes = {
        "class_counts": (n,),
        "class_directions": (CLASS_RANK, features, n),
        "class_angles": (CLASS_RANK, n, CLASS_SPLITS),
    }
    for name, shape in shapes.items():
        if profile[name].shape != shape:
            raise InvalidReplyError(f"{name!r} has shape {profile[name].shape}, expected {shape} for {n} classes")
    if len({str(name) for name in names}) < n or list(map(str, names)) != sorted(map(str, names)):
        raise InvalidReplyError("'classes' must be different and sorted")
    if n and counts.min() < FEWEST:
        raise InvalidReplyError(f"'class_counts' must be at least {FEWEST}, got {counts.min()}")
    lengths = np.linalg.norm(directions.astype(np.float64), axis=1)
    if not ((np.abs(lengths - 1) < UNIT_WITHIN) | (lengths == 0)).all() or not (lengths[:1] > 0).all():
        raise InvalidReplyError("'class_directions' must have length 1")
    if not ((angles >= 0) & (angles <= 90)).all():
        raise InvalidReplyError("'class_angles' must be degrees from 0 to 90")


def column_messages(made: ColumnAngles) -> dict[str, NDArray[Any]]:
    """The arrays that a client of an experiment sends of its table; its classes are integers."""
    names = [NO_CLASS if name == UNLABELLED else int(name) for name in made.names]
    codes = np.array(names, dtype=np.int64)
    return {"column_classes": codes, "column_counts": made.counts, COLUMN_ANGLES: column_arrays.stored(made)}


def column_specs() -> ArraySpecs:
    """The arrays of `column_messages`."""
    integers = {name: ArraySpec((-1,), "i", MOST_CLASSES) for name in ("column_classes", "column_counts")}
    return {**integers, COLUMN_ANGLES: ArraySpec((-1, 2, 2, -1), "f")}


def _columns(profile: Message) -> ColumnAngles:
    names = [UNLABELLED if code == NO_CLASS else str(code) for code in profile["column_classes"].tolist()]
    return column_arrays.restored(names, profile["column_counts"].tolist(), profile[COLUMN_ANGLES])


def check_columns(profile: Message) -> None:
    """Refuse columns that do not belong to the signature, and angles that none have."""
    shape = (len(profile["column_classes"]), 2, 2, len(profile["basis"]) - 1)
    if profile[COLUMN_ANGLES].shape != shape:
        raise InvalidReplyError(f"{COLUMN_ANGLES!r} has shape {profile[COLUMN_ANGLES].shape}, expected {shape}")
    try:
        _columns(profile)
    except ValueError as error:
        raise InvalidReplyError(f"has {error}") from None


def incomparable(state: PACFLState, profiles: Mapping[ClientId, Message]) -> dict[ClientId, str]:
    """Clients whose signatures have other features than those of others, or of most if all are new.

    Those of tables have columns, and all others have none: a client without them would keep others from being compared.
    All directions are keyed with one key, or none is.
    """
    tables = state.tables or {}
    known = [(len(basis), c in tables) for c, basis in state.bases.items()]
    sent = {c: (len(profile["basis"]), COLUMN_ANGLES in profile) for c, profile in profiles.items()}
    (n, with_columns), _ = Counter(known or sent.values()).most_common(1)[0] if known or sent else ((0, False), 0)
    why = {c: f"'basis' has {own} features, expected {n}" for c, (own, _) in sent.items() if own != n}
    expected = "expected those of a table" if with_columns else "expected none: others are no tables"
    for c, (_, has_columns) in sent.items():
        if c not in why and has_columns != with_columns:
            why[c] = f"has {'' if has_columns else 'no '}columns, {expected}"
    return {**_of_other_keys(state, {c: used_key(profile) for c, profile in profiles.items()}), **why}


def _of_other_keys(state: PACFLState, keys: Mapping[ClientId, str | None]) -> dict[ClientId, str]:
    """Clients whose directions are keyed otherwise than those of others, or of most if all are new."""
    if not keys:
        return {}
    expected = state.key if state.bases else Counter(keys.values()).most_common(1)[0][0]
    words = {key: "no key" if key is None else f"key {key}" for key in (expected, *keys.values())}
    return {
        c: f"directions of its signature have {words[key]}, those of others {words[expected]}; angles between them "
        "mean nothing: all sites need the same signature-key"
        for c, key in keys.items()
        if key != expected
    }


def without(state: PACFLState, clients: Set[ClientId]) -> PACFLState:
    """Without clients that left for good. The last one of a cluster stays: newcomers find it by its signature."""
    in_order = sorted(state.cluster_of.items(), key=lambda entry: entry[0] not in clients)
    last = {k: c for c, k in in_order}
    going = clients - set(last.values())
    cluster_of = {c: k for c, k in state.cluster_of.items() if c not in going}
    positions = [i for i, c in enumerate(state.bases) if c not in going]
    bases = {c: basis for c, basis in state.bases.items() if c not in going}
    classes = {c: own for c, own in state.classes.items() if c not in going}
    tables = state.tables and {c: own for c, own in state.tables.items() if c not in going}
    clustering = state.clustering and state.clustering.subset(positions)
    return replace(state, cluster_of=cluster_of, bases=bases, classes=classes, clustering=clustering, tables=tables)


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
