"""Why two clients, or two clusters, differ: which classes and which features carry the difference, in words."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from pacfl.subspace.classes import RANK
from pacfl.subspace.clustering import Clustering
from pacfl.subspace.diagnosis import (
    ClassEvidence,
    Kind,
    between_groups,
    distance_between,
    evidence_on,
    matching_of,
    relabelled_words,
)
from pacfl.subspace.pooled import Matching, PooledClasses, Relabelling
from pacfl.subspace.shares import count_table
from pacfl.subspace.together import ClientSignature

Array = NDArray[np.float64]
Rows = NDArray[np.intp]
Between = Literal["clients", "clusters"]

FEW: Final = 3  # clients of a cluster, from which their scatter says which features are noisy
MOST: Final = 5  # features, and classes, that words name
CLEAR: Final = 2.0  # times the noise: features that words name
NOTABLE: Final = 0.1  # share of the difference, or of a client's samples: features, and classes, that words name
LARGE: Final = 2.5  # factor between two weights of a feature that suggests another unit
UNIT_EXPLAINS: Final = 0.8  # share of the difference that one factor must explain to be called a unit
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
class FeatureDifference:
    """A feature that carries much of the difference."""

    index: int
    name: str
    share: float  # of the squared difference
    above_noise: float  # in units of noise
    factor: float | None  # by which its weight relative to others is larger in A than in B, if that explains much


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

    def as_json(self) -> dict[str, Any]:
        """All fields, arrays as lists."""
        content = {field.name: getattr(self, field.name) for field in fields(self)}
        for name in ("classes", "relabelled", "shares", "features"):
            content[name] = [asdict(one) for one in content[name]]
        content["nearest"] = None if self.nearest is None else asdict(self.nearest)
        return content | {name: content[name].tolist() for name in ("contributions", "above_noise")}


@dataclass(frozen=True, eq=False)
class _Parts:
    """Directions of A and B that are compared, with signs that agree."""

    a: Array  # (directions, features)
    b: Array
    weights: Array  # (directions,) 1 / expected squared length of the difference by noise
    noise: Array  # (features,) shares of the noise


@dataclass(frozen=True, eq=False)
class _Known:
    """What all explanations of one clustering share."""

    clients: Sequence[ClientSignature]
    evidence: ClassEvidence
    client_names: Sequence[str] | None
    feature_names: Sequence[str]
    class_names: Mapping[str, str]
    shape: tuple[int, ...]

    @cached_property
    def class_noise(self) -> Array:
        """Shares of features in the noise of the directions of classes."""
        return _class_scatter(self.evidence)

    @cached_property
    def input_noise(self) -> tuple[Array, Array]:
        """Shares of features in the noise of bases, and the noise of each of their directions."""
        return _input_scatter(self.clients, self.evidence.clustering)

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
) -> list[Explanation]:
    """`explain` for many pairs, which takes far less time than one after the other."""
    evidence = evidence_on(clients, clustering, sizes)
    if client_names is not None and len(client_names) != len(clients):
        raise ValueError(f"client_names must name each of {len(clients)} clients, got {len(client_names)} names")
    features = len(clients[0].basis)
    names = _feature_names(features, feature_names, shape)
    known = _Known(clients, evidence, client_names, names, dict(class_names or {}), shape or (features,))
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
    parts = _class_parts(known, rows_a, rows_b) if matching else _input_parts(known, rows_a, rows_b)
    squares = parts.weights @ (parts.a - parts.b) ** 2
    contributions = squares / squares.sum() if squares.sum() > 0 else squares
    above = np.sqrt(squares / (len(parts.weights) * parts.noise))
    is_image = len(known.shape) > 1
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
        features=_features(parts, contributions, above, known.feature_names, units=not is_image),
        contributions=contributions.reshape(known.shape),
        above_noise=above.reshape(known.shape),
        nearest=_nearest(evidence, rows_a, a, between),
        words="",
    )
    return replace(found, words=_words(found, labelled=_are_labelled(evidence, rows_a, rows_b)))


def _rows(clustering: Clustering, a: int, b: int, between: Between) -> tuple[Rows, Rows]:
    """The clients on both sides."""
    if between not in ("clients", "clusters"):
        raise ValueError(f"between must be 'clients' or 'clusters', got {between!r}")
    n = len(clustering.labels) if between == "clients" else int(clustering.labels.max(initial=-1)) + 1
    if a == b or not (0 <= a < n and 0 <= b < n):
        raise ValueError(f"a and b must be two different {between} from 0 to {n - 1}, got {a} and {b}")
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


def _class_parts(known: _Known, a: Rows, b: Rows) -> _Parts:
    """Pooled directions of all classes that both sides have."""
    of_a, of_b = known.evidence.pooled(a), known.evidence.pooled(b)
    at = {name: k for k, name in enumerate(of_b.names)}
    left, right, weights = [], [], []
    for k in range(RANK):
        for i, name in enumerate(of_a.names):
            variance = (of_a.variances[k, i] + of_b.variances[k, at[name]]) / 2 if name in at else np.inf
            if np.isfinite(variance):
                other = of_b.directions[k, at[name]]
                left.append(of_a.directions[k, i])
                right.append(other * (-1.0 if left[-1] @ other < 0 else 1.0))
                weights.append(1 / np.radians(np.sqrt(variance)) ** 2)
    return _Parts(np.array(left), np.array(right), np.array(weights), known.class_noise)


def _class_scatter(evidence: ClassEvidence) -> Array:
    """Shares of features in the noise of directions, from clients of the same cluster; even where there are few.

    Even noise counts as one more direction, so that a feature that never varies has some.
    """
    features = evidence.classes[0].directions.shape[1]
    total, count = np.zeros(features), 0
    for rows in map(evidence.rows, range(evidence.n_clusters)):
        if len(rows) < FEW:
            continue
        pooled = evidence.pooled(rows)
        for i in rows.tolist():
            squares, n = _squared_deviations(evidence, i, pooled)
            total, count = total + squares, count + n
    return np.asarray((total + 1 / features) / (count + 1))


def _squared_deviations(evidence: ClassEvidence, i: int, pooled: PooledClasses) -> tuple[Array, int]:
    """Shares of features in the deviations of client i from its cluster, summed over directions; their number."""
    own = evidence.classes[i]
    at = [pooled.names.index(name) if name in pooled.names else -1 for name in own.names]
    total, count = np.zeros(own.directions.shape[1]), 0
    for k in range(RANK):
        for c, column in enumerate(at):
            mean = pooled.directions[k, column]
            if column < 0 or not mean.any() or not np.isfinite(pooled.variances[k, column]):
                continue
            direction = own.directions[k][:, c]
            deviation = (direction * (-1.0 if direction @ mean < 0 else 1.0) - mean) ** 2
            if deviation.sum() > 0:
                total, count = total + deviation / deviation.sum(), count + 1
    return total, count


def _input_parts(known: _Known, a: Rows, b: Rows) -> _Parts:
    """Every direction of either side and its image in the other's space, weighted by how well clients agree on it."""
    left, right = _pooled_basis(known.clients, a), _pooled_basis(known.clients, b)
    noise, expected = known.input_noise
    lengths = np.concatenate([expected[: left.shape[1]], expected[: right.shape[1]]])
    return _Parts(
        np.hstack([left, _projected(right, left)]).T,
        np.hstack([_projected(left, right), right]).T,
        1 / (np.maximum(lengths, 1e-12) * (1 / len(a) + 1 / len(b))),
        noise,
    )


def _input_scatter(clients: Sequence[ClientSignature], clustering: Clustering) -> tuple[Array, Array]:
    """Shares of features in the noise of bases (features,), and the mean squared noise of each direction.

    Of clusters of some clients. Without them: even shares, and the noise of the measure, which is half the squared
    split-half angle.
    """
    features, n = len(clients[0].basis), max(client.basis.shape[1] for client in clients)
    total, count, squares = np.full(features, 1 / features), 1, [np.full(n, np.nan)]
    for cluster in range(int(clustering.labels.max(initial=-1)) + 1):
        rows = np.flatnonzero(clustering.labels == cluster)
        if len(rows) < FEW:
            continue
        pooled = _pooled_basis(clients, rows)
        for i in rows.tolist():
            own = np.asarray(clients[i].basis, dtype=np.float64)
            deviation = (own - _projected(own, pooled)) ** 2
            lengths = deviation.sum(axis=0)
            squares.append(np.append(lengths, np.full(n - len(lengths), np.nan)) * len(rows) / (len(rows) - 1))
            total += (deviation / np.maximum(lengths, 1e-300)).sum(axis=1)
            count += int((lengths > 0).sum())
    even = np.radians(np.sqrt(np.mean(clustering.noise_scale**2))) ** 2 / 2
    counts = np.isfinite(squares).sum(axis=0)
    return total / count, np.where(counts > 0, np.nansum(squares, axis=0) / np.maximum(counts, 1), even)


def _projected(directions: Array, basis: Array) -> Array:
    """Directions (features, k) in the space of an orthonormal basis."""
    return basis @ (basis.T @ directions)


def _pooled_basis(clients: Sequence[ClientSignature], rows: Rows) -> Array:
    """The subspace nearest to the bases of these clients."""
    bases = [np.asarray(clients[i].basis, dtype=np.float64) for i in rows.tolist()]
    if len(bases) == 1:
        return bases[0]
    u, _, _ = np.linalg.svd(np.hstack(bases), full_matrices=False)
    return np.asarray(u[:, : max(basis.shape[1] for basis in bases)])


def _features(
    parts: _Parts, shares: Array, above: Array, names: Sequence[str], units: bool
) -> tuple[FeatureDifference, ...]:
    """The features that carry most, largest first; units: whether they may have different ones."""
    largest = [int(j) for j in np.argsort(-shares, kind="stable")[:MOST] if shares[j] > 0]
    unit = _unit(parts) if units else None
    if unit is not None and unit[0] not in largest:
        largest = [unit[0], *largest[: MOST - 1]]
    return tuple(
        FeatureDifference(
            j, names[j], float(shares[j]), float(above[j]), unit[1] if unit is not None and unit[0] == j else None
        )
        for j in largest
    )


def _unit(parts: _Parts) -> tuple[int, float] | None:
    """The feature, and its factor, whose weight alone differs between A and B; None if there is none.

    A column in another unit has all its weights multiplied by one number. All weights of others then change by another
    one, because directions have length 1: what counts is the ratio of ratios.
    """
    if parts.a.shape[1] < 3:
        return None
    a, b = (np.sqrt(parts.weights @ side**2) for side in (parts.a, parts.b))
    if not (a > 0).any() or not (b > 0).any():
        return None
    tiny = 1e-12 * max(a.max(), b.max())
    logs = np.log((a + tiny) / (b + tiny))
    before = float(parts.weights @ ((parts.a - parts.b) ** 2).sum(axis=1))
    best, least = None, (1 - UNIT_EXPLAINS) * before
    candidates = np.argsort(-np.abs(logs - np.median(logs)))[:MOST].tolist()
    for j in [*candidates, int(np.argmax(np.abs(a - b)))]:
        factor = float(np.exp(logs[j] - np.median(np.delete(logs, j))))
        scaled = parts.b.copy()
        scaled[:, j] *= factor
        scaled /= np.maximum(np.linalg.norm(scaled, axis=1, keepdims=True), 1e-300)
        left = float(parts.weights @ ((parts.a - scaled) ** 2).sum(axis=1))
        if left < least and max(factor, 1 / factor) >= LARGE:
            best, least = (j, factor), left
    return best


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
    others = [k for k in range(int(labels.max(initial=-1)) + 1) if k != home]
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
    units = [one for one in found.features if one.factor is not None]
    if units:
        factor = units[0].factor or 1.0
        return (
            f"{units[0].name} (different unit? its weight differs by a factor of about {max(factor, 1 / factor):.3g})"
        )
    clear = [one.name for one in found.features if one.above_noise > CLEAR and one.share > NOTABLE]
    return ", ".join(clear) if clear else "their inputs"


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
