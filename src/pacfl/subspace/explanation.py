"""Why two clients, or two clusters, differ: which classes and which features carry the difference, in words."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from pacfl.subspace.clustering import Clustering
from pacfl.subspace.columns import ColumnDifference, unit_factor
from pacfl.subspace.diagnosis import (
    ClassEvidence,
    Kind,
    between_groups,
    distance_between,
    evidence_on,
    matching_of,
    relabelled_words,
)
from pacfl.subspace.feature_differences import (
    MOST,
    UNIT_EXPLAINS,
    FeatureDifference,
    class_directions,
    class_scatter,
    input_directions,
    input_scatter,
    largest_differences,
)
from pacfl.subspace.pooled import Matching, Relabelling
from pacfl.subspace.shares import count_table
from pacfl.subspace.together import ClientSignature

Array = NDArray[np.float64]
Rows = NDArray[np.intp]
Between = Literal["clients", "clusters"]

CLEAR: Final = 2.0  # times the noise: features that words name
NOTABLE: Final = 0.1  # share of the difference, or of a client's samples: features, and classes, that words name
CHANNELS: Final = 4  # of an image, at most
REGION: Final = 0.5  # share of the difference, in the fewest pixels that carry it, whose region words name
WHOLE: Final = 0.8  # of both sides of an image: a region as large is no region


@dataclass(frozen=True)
class ClassDifference:
    """How far one class of A is from the class of the same name of B."""

    name: str
    size: float  # in units of the noise of the pooled directions


@dataclass(frozen=True)
class ShareDifference:
    """How large a share of the compared samples a class has on both sides."""

    name: str
    a: float
    b: float


@dataclass(frozen=True)
class Alternative:
    """The cluster that is nearest to A beside its own."""

    cluster: int
    distance: float  # in units of noise
    own: float | None  # distance from the other clients of its own cluster; None if there are none


@dataclass(frozen=True, eq=False)
class Explanation:
    """Why A and B differ."""

    between: Between
    a: int  # position, or number of the cluster
    b: int
    names: tuple[str, str]  # by which words call them
    compared: Literal["classes", "inputs"]
    kind: Kind
    size: float  # in units of noise
    classes: tuple[ClassDifference, ...]  # largest first
    relabelled: tuple[Relabelling, ...]
    shares: tuple[ShareDifference, ...]  # of classes, largest difference first
    features: tuple[FeatureDifference, ...]  # largest first
    contributions: (
        Array  # of the shape of samples: shares of the squared difference; their sum is 1, or 0 if there is none
    )
    above_noise: Array  # of the same shape: contributions in units of noise
    nearest: Alternative | None
    words: str
    by_columns: bool = False  # whether features are columns of tables, each compared alone

    def as_json(self) -> dict[str, Any]:
        """All fields, arrays as lists."""
        content = {field.name: getattr(self, field.name) for field in fields(self)}
        for name in ("classes", "relabelled", "shares", "features"):
            content[name] = [asdict(one) for one in content[name]]
        content["nearest"] = None if self.nearest is None else asdict(self.nearest)
        return content | {name: content[name].tolist() for name in ("contributions", "above_noise")}


@dataclass(frozen=True, eq=False)
class _Known:
    """What all explanations of one clustering share."""

    clients: Sequence[ClientSignature]
    evidence: ClassEvidence
    client_names: Sequence[str] | None
    feature_names: Sequence[str]
    class_names: Mapping[str, str]
    shape: tuple[int, ...]
    hidden: bool = False

    @cached_property
    def class_noise(self) -> Array:
        """Shares of features in the noise of the directions of classes."""
        return class_scatter(self.evidence)

    @cached_property
    def input_noise(self) -> tuple[Array, Array]:
        """Shares of features in the noise of bases, and the noise of each of their directions."""
        return input_scatter(self.clients, self.evidence.clustering)

    def name(self, between: Between, at: int) -> str:
        """By which words call a client or a cluster."""
        named = between == "clients" and self.client_names is not None
        return self.client_names[at] if named and self.client_names else f"{between[:-1]} {at}"


def explain(
    clients: Sequence[ClientSignature],
    clustering: Clustering,
    a: int,
    b: int,
    between: Between = "clients",
    *,
    client_names: Sequence[str] | None = None,
    feature_names: Sequence[str] | None = None,
    class_names: Mapping[str, str] | None = None,
    shape: tuple[int, ...] | None = None,
    sizes: Sequence[int] | None = None,
) -> Explanation:
    """What carries the difference between two clients, or two clusters, a and b: positions, or cluster numbers.

    client_names (n,), feature_names (features,); class_names: words for names of classes; shape: of one sample, for
    images; sizes (n,): samples of each client, also of classes without a signature.
    """
    (found,) = explain_pairs(
        clients,
        clustering,
        [(a, b)],
        between,
        client_names=client_names,
        feature_names=feature_names,
        class_names=class_names,
        shape=shape,
        sizes=sizes,
    )
    return found


def explain_pairs(
    clients: Sequence[ClientSignature],
    clustering: Clustering,
    pairs: Iterable[tuple[int, int]],
    between: Between = "clusters",
    *,
    client_names: Sequence[str] | None = None,
    feature_names: Sequence[str] | None = None,
    class_names: Mapping[str, str] | None = None,
    shape: tuple[int, ...] | None = None,
    sizes: Sequence[int] | None = None,
    hidden: bool = False,
) -> list[Explanation]:
    """`explain` for many pairs, which takes far less time than one after the other.

    hidden: directions are those of an unknown orthogonal transform, so that features mean nothing; none is named.
    """
    evidence = evidence_on(clients, clustering, sizes)
    if client_names is not None and len(client_names) != len(clients):
        raise ValueError(f"client_names must name each of {len(clients)} clients, got {len(client_names)} names")
    features = len(clients[0].basis)
    names = _feature_names(features, feature_names, shape)
    known = _Known(clients, evidence, client_names, names, dict(class_names or {}), shape or (features,), hidden)
    return [_explained(known, a, b, between) for a, b in pairs]


def _explained(known: _Known, a: int, b: int, between: Between) -> Explanation:
    evidence, shown = known.evidence, known.class_names
    rows_a, rows_b = _rows(evidence.clustering, a, b, between)
    matching = matching_of(evidence, rows_a, rows_b)
    kind, size, relabelled = between_groups(evidence, rows_a, rows_b)
    labels = evidence.clustering.labels
    if matching is None and labels[rows_a[0]] == labels[rows_b[0]]:
        kind = "none"  # inputs of one cluster
    relabelled = tuple(Relabelling(shown.get(r.a, r.a), shown.get(r.b, r.b), r.size, r.left) for r in relabelled)
    parts = (
        class_directions(evidence, known.class_noise, rows_a, rows_b)
        if matching
        else input_directions(known.clients, known.input_noise, rows_a, rows_b)
    )
    squares = parts.weights @ (parts.a - parts.b) ** 2
    above = np.sqrt(squares / (len(parts.weights) * parts.noise))
    columns = evidence.column_differences(rows_a, rows_b)
    if columns:
        above = np.zeros(len(squares))
        above[[one.column for one in columns]] = [one.size for one in columns]
        squares = above**2
    if known.hidden:
        squares, above = np.zeros_like(squares), np.zeros_like(above)
    contributions = squares / squares.sum() if squares.sum() > 0 else squares
    is_image = len(known.shape) > 1
    features = largest_differences(
        parts, contributions, above, known.feature_names, units=not (is_image or columns or known.hidden)
    )
    found = Explanation(
        between=between,
        a=a,
        b=b,
        names=(known.name(between, a), known.name(between, b)),
        compared="inputs" if matching is None else "classes",
        kind=kind,
        size=size,
        classes=_class_differences(matching, shown),
        relabelled=relabelled,
        shares=_share_differences(evidence, rows_a, rows_b, shown),
        features=_with_units(features, columns, evidence, rows_a, rows_b),
        contributions=contributions.reshape(known.shape),
        above_noise=above.reshape(known.shape),
        nearest=_nearest(evidence, rows_a, a, between),
        words="",
        by_columns=bool(columns),
    )
    return replace(found, words=_words(found, labelled=_are_labelled(evidence, rows_a, rows_b)))


def _with_units(
    features: tuple[FeatureDifference, ...],
    columns: Sequence[ColumnDifference],
    evidence: ClassEvidence,
    a: Rows,
    b: Rows,
) -> tuple[FeatureDifference, ...]:
    """Columns of tables that differ by a factor, as those in another unit do, with it.

    Columns with factors must carry most of the difference beyond chance: in other populations many columns differ.
    """
    of_a, of_b = evidence.pooled_columns(a), evidence.pooled_columns(b)
    if of_a is None or of_b is None:
        return features
    limit = evidence.clustering.evidence["columns"]["limit"]
    beyond = {one.column: one for one in columns if one.size > limit}
    named = [one.index for one in features if one.index in beyond]
    factors = {j: factor for j in named if (factor := unit_factor(of_a, of_b, beyond[j])) is not None}
    explained = sum(beyond[j].size ** 2 for j in factors)
    if explained < UNIT_EXPLAINS * sum(one.size**2 for one in beyond.values()):
        return features
    return tuple(replace(one, factor=factors.get(one.index)) for one in features)


def _rows(clustering: Clustering, a: int, b: int, between: Between) -> tuple[Rows, Rows]:
    """The clients on both sides."""
    if between not in ("clients", "clusters"):
        raise ValueError(f"between must be 'clients' or 'clusters', got {between!r}")
    known = list(range(len(clustering.labels))) if between == "clients" else clustering.numbers
    if a == b or not (a in known and b in known):
        raise ValueError(f"a and b must be two different {between} from 0 to {max(known, default=-1)}, got {a} and {b}")
    if between == "clusters":
        return np.flatnonzero(clustering.labels == a), np.flatnonzero(clustering.labels == b)
    for client in (a, b):
        if clustering.labels[client] < 0:
            raise ValueError(f"client {client} cannot be judged and is in no cluster: there is nothing to explain")
    return np.array([a]), np.array([b])


def _are_labelled(evidence: ClassEvidence, a: Rows, b: Rows) -> bool:
    return all(any(len(evidence.classes[i]) for i in rows.tolist()) for rows in (a, b))


def _feature_names(n: int, names: Sequence[str] | None, shape: tuple[int, ...] | None) -> list[str]:
    if names is not None and len(names) != n:
        raise ValueError(f"feature_names must name each of {n} features, got {len(names)} names")
    if shape is not None and np.prod(shape) != n:
        raise ValueError(f"samples have {n} features, which do not fit the shape {shape}")
    if names is not None:
        return list(names)
    if shape is None or len(shape) < 2:
        return [f"feature {j}" for j in range(n)]
    return [f"pixel ({', '.join(map(str, at))})" for at in np.ndindex(*shape)]


def _class_differences(matching: Matching | None, shown: Mapping[str, str]) -> tuple[ClassDifference, ...]:
    if matching is None:
        return ()
    found = [
        ClassDifference(shown.get(name, name), float(np.sqrt(square)))
        for name, square in zip(matching.names, matching.same, strict=True)
    ]
    return tuple(sorted(found, key=lambda one: -one.size))


def _share_differences(
    evidence: ClassEvidence, a: Rows, b: Rows, shown: Mapping[str, str]
) -> tuple[ShareDifference, ...]:
    """Of all classes that either side has, among the samples of classes that were signed."""
    if not evidence.counted:
        return ()
    table = count_table([evidence.classes[i] for i in (*a.tolist(), *b.tolist())])
    counts = table[: len(a)].sum(axis=0), table[len(a) :].sum(axis=0)
    if not all(side.any() for side in counts):
        return ()
    names = sorted({name for i in (*a.tolist(), *b.tolist()) for name in evidence.classes[i].names})
    shares = [(side / side.sum()).tolist() for side in counts]
    found = [ShareDifference(shown.get(name, name), *both) for name, *both in zip(names, *shares, strict=True)]
    return tuple(sorted(found, key=lambda one: -abs(one.a - one.b)))


def _nearest(evidence: ClassEvidence, rows: Rows, a: int, between: Between) -> Alternative | None:
    """The cluster nearest to A beside its own."""
    labels = evidence.clustering.labels
    home = int(labels[a]) if between == "clients" else a
    others = [k for k in evidence.clustering.numbers if k != home]
    if not others:
        return None
    distances = {k: distance_between(evidence, rows, np.flatnonzero(labels == k)) for k in others}
    nearest = min(distances, key=lambda k: distances[k])
    mates = np.setdiff1d(np.flatnonzero(labels == home), rows) if home >= 0 else np.empty(0, np.intp)
    own = distance_between(evidence, rows, mates) if len(mates) else None
    return Alternative(nearest, distances[nearest], own)


def _words(found: Explanation, labelled: bool) -> str:
    """Sentences that people can act on. labelled: whether both sides have classes."""
    a, b = found.names
    capital = a.capitalize() if a == f"{found.between[:-1]} {found.a}" else a
    noise = f"{found.size:.1f} times the noise"
    said = []
    if found.kind == "none":
        said.append(f"{capital} and {b} differ by no more than noise.")
    elif found.kind == "concept":
        said.append(f"{capital} and {b} label the same inputs differently, {noise}.")
        if found.relabelled:
            said.append(relabelled_words(found.relabelled, a, b))
    elif found.kind == "labels":
        said.append(f"{capital} and {b} differ in their class shares only{_shares_in_words(found)}.")
    else:
        said.append(f"{capital} and {b} differ in {_named(found)}, {noise}.")
        if found.classes:
            largest = ", ".join(f"{one.name} ({one.size:.1f})" for one in found.classes[:MOST])
            said.append(f"Classes that differ most, in units of noise: {largest}.")
    if found.compared == "inputs":
        lacking = "they share no class with enough samples" if labelled else "labels are needed"
        said.append(f"Only inputs were compared: {lacking} to see whether labels differ.")
    if found.nearest is not None:
        near = found.nearest
        own = "" if near.own is None else f"; its own is {near.own:.1f} times the noise away"
        nearest = f"cluster {near.cluster}, {near.distance:.1f} times the noise"
        said.append(f"The nearest other cluster of {a} is {nearest}{own}.")
    return " ".join(said)


def what_differs(found: Explanation) -> str:
    """What carries the difference, in a few words; empty where there is none."""
    if found.kind == "concept":
        return "how they label the same inputs"
    if found.kind == "labels":
        return "their class shares"
    return _named(found) if found.kind == "inputs" else ""


def _shares_in_words(found: Explanation) -> str:
    """': class 3 is 60 % of A and 2 % of B' for the largest differences, if some are notable."""
    a, b = found.names
    notable = [one for one in found.shares if abs(one.a - one.b) > NOTABLE][:3]
    said = [f"{one.name} is {one.a:.0%} of {a} and {one.b:.0%} of {b}" for one in notable]
    return f": class {', class '.join(said)}" if said else ""


def _named(found: Explanation) -> str:
    """The features that stand out, the region of an image, or 'their inputs' if none does."""
    if found.contributions.ndim > 1:
        return _region(found.contributions)
    clear = [one for one in found.features if one.above_noise > CLEAR and one.share > NOTABLE]
    units = [one for one in found.features if one.factor is not None]
    if units and not found.by_columns:
        clear = units[:1]  # it explains most of the difference, whatever others carry
    named = (one.name if one.factor is None else f"{one.name} ({_unit(one.factor, found.by_columns)})" for one in clear)
    return ", ".join(named) if clear else "their inputs"


def _unit(factor: float, of_values: bool) -> str:
    what = "values differ" if of_values else "weight differs"
    return f"different unit? its {what} by a factor of about {max(factor, 1 / factor):.3g}"


def _region(contributions: Array) -> str:
    """Where in an image most of the difference is."""
    picture = as_picture(contributions)
    if picture is None:
        return "their inputs"
    largest = np.argsort(-picture, axis=None, kind="stable")
    carrying = largest[: int(np.searchsorted(np.cumsum(picture.flat[largest]), REGION * picture.sum())) + 1]
    rows, columns = np.unravel_index(carrying, picture.shape)
    sides = [(int(at.min()), int(at.max())) for at in (rows, columns)]
    if all(last - first + 1 > WHOLE * n for (first, last), n in zip(sides, picture.shape, strict=True)):
        return "their inputs, all over the image"
    (top, bottom), (left, right) = sides
    return f"their inputs, half of it in rows {top} to {bottom} and columns {left} to {right} of the image"


def as_picture(values: Array) -> Array | None:
    """Values of the shape of a sample as rows and columns, summed over the channels of a colour image.

    None if samples are not images.
    """
    if values.ndim == 3 and min(values.shape[0], values.shape[2]) <= CHANNELS:
        return np.asarray(values.sum(axis=2 if values.shape[2] <= CHANNELS else 0))
    return values if values.ndim == 2 else None


def block_means(picture: Array, most: int) -> Array:
    """A picture of at most `most` rows and columns: means of square blocks of a larger one."""
    block = -(-max(picture.shape) // most)
    rows, columns = (-(-length // block) for length in picture.shape)
    padded = np.full((rows * block, columns * block), np.nan)
    padded[: picture.shape[0], : picture.shape[1]] = picture
    return np.asarray(np.nanmean(padded.reshape(rows, block, columns, block), axis=(1, 3)))
