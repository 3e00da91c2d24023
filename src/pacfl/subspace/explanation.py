"""Why two clients, or two clusters, differ: which classes and which features carry the difference, in words."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
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
from pacfl.subspace.pooled import Matching, PooledClasses, Relabelling, pool
from pacfl.subspace.together import ClientSignature

Array = NDArray[np.float64]
Rows = NDArray[np.intp]
Between = Literal["clients", "clusters"]

FEW: Final = 3  # clients of a cluster, from which their scatter says which features are noisy
MOST: Final = 5  # features, and classes, that words name
CLEAR: Final = 2.0  # times the noise: features that words name
NOTABLE: Final = 0.1  # share of the difference: features that words name
LARGE: Final = 2.5  # factor between two weights of a feature that suggests another unit
UNIT_EXPLAINS: Final = 0.8  # share of the difference that one factor must explain to be called a unit


@dataclass(frozen=True)
class ClassDifference:
    """How far one class of A is from the class of the same name of B."""

    name: str
    size: float  # in units of the noise of the pooled directions


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
    a: int
    b: int
    compared: Literal["classes", "inputs"]
    kind: Kind
    size: float  # in units of noise
    classes: tuple[ClassDifference, ...]  # largest first
    relabelled: tuple[Relabelling, ...]
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
        for name in ("classes", "relabelled", "features"):
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


def explain(
    clients: Sequence[ClientSignature],
    clustering: Clustering,
    a: int,
    b: int,
    between: Between = "clients",
    *,
    feature_names: Sequence[str] | None = None,
    class_names: Mapping[str, str] | None = None,
    shape: tuple[int, ...] | None = None,
) -> Explanation:
    """What carries the difference between two clients, or two clusters, a and b: positions, or cluster numbers.

    feature_names (features,); class_names: words for names of classes; shape: of one sample, for images.
    """
    evidence = evidence_on(clients, clustering)
    rows_a, rows_b = _rows(clustering, a, b, between)
    features = len(clients[0].basis)
    names = _feature_names(features, feature_names, shape)
    shown = dict(class_names or {})
    matching = matching_of(evidence, rows_a, rows_b)
    kind, size, relabelled = between_groups(evidence, rows_a, rows_b)
    if matching is None and clustering.labels[rows_a[0]] == clustering.labels[rows_b[0]]:
        kind = "none"  # inputs of one cluster
    relabelled = tuple(Relabelling(shown.get(r.a, r.a), shown.get(r.b, r.b), r.size, r.left) for r in relabelled)
    parts = _class_parts(evidence, rows_a, rows_b) if matching else _input_parts(clients, clustering, rows_a, rows_b)
    squares = parts.weights @ (parts.a - parts.b) ** 2
    shares = squares / squares.sum() if squares.sum() > 0 else squares
    above = np.sqrt(squares / (len(parts.weights) * parts.noise))
    found = _features(parts, shares, above, names)
    classes = _class_differences(matching, shown)
    nearest = _nearest(evidence, rows_a, a, between)
    one = between[:-1]
    spoken = _words(kind, size, (f"{one} {a}", f"{one} {b}"), classes, relabelled, found, nearest, matching is None)
    return Explanation(
        between,
        a,
        b,
        "inputs" if matching is None else "classes",
        kind,
        size,
        classes,
        relabelled,
        found,
        shares.reshape(shape or (features,)),
        above.reshape(shape or (features,)),
        nearest,
        spoken,
    )


def _rows(clustering: Clustering, a: int, b: int, between: Between) -> tuple[Rows, Rows]:
    """The clients on both sides."""
    if between not in ("clients", "clusters"):
        raise ValueError(f"between must be 'clients' or 'clusters', got {between!r}")
    n = len(clustering.labels) if between == "clients" else int(clustering.labels.max(initial=-1)) + 1
    if a == b or not (0 <= a < n and 0 <= b < n):
        raise ValueError(f"a and b must be two different {between} from 0 to {n - 1}, got {a} and {b}")
    if between == "clients":
        return np.array([a]), np.array([b])
    return np.flatnonzero(clustering.labels == a), np.flatnonzero(clustering.labels == b)


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


def _class_parts(evidence: ClassEvidence, a: Rows, b: Rows) -> _Parts:
    """Pooled directions of all classes that both sides have."""
    of_a, of_b = (pool(evidence.classes, evidence.noise, rows, evidence.calibration) for rows in (a, b))
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
    return _Parts(np.array(left), np.array(right), np.array(weights), _class_scatter(evidence))


def _class_scatter(evidence: ClassEvidence) -> Array:
    """Shares of features in the noise of directions, from clients of the same cluster; even where there are few.

    Even noise counts as one more direction, so that a feature that never varies has some.
    """
    labels, noise = evidence.clustering.labels, evidence.noise
    features = evidence.classes[0].directions.shape[1]
    total, count = np.zeros(features), 0
    for cluster in range(int(labels.max(initial=-1)) + 1):
        rows = np.flatnonzero(labels == cluster)
        if len(rows) < FEW:
            continue
        pooled = pool(evidence.classes, noise, rows)
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


def _input_parts(clients: Sequence[ClientSignature], clustering: Clustering, a: Rows, b: Rows) -> _Parts:
    """The principal vectors of the bases of both sides, weighted by how well clients of one cluster agree on them."""
    left, right = _principal_vectors(_pooled_basis(clients, a), _pooled_basis(clients, b))
    n, features = left.shape
    total, count, squares = np.full(features, 1 / features), 1, []
    for cluster in range(int(clustering.labels.max(initial=-1)) + 1):
        rows = np.flatnonzero(clustering.labels == cluster)
        if len(rows) < FEW:
            continue
        pooled = _pooled_basis(clients, rows)
        for i in rows.tolist():
            own, mean = _principal_vectors(np.asarray(clients[i].basis, dtype=np.float64), pooled)
            deviation = (own - mean) ** 2
            lengths = deviation.sum(axis=1)
            if len(lengths) >= n:
                squares.append(lengths[:n] * len(rows) / (len(rows) - 1))
            total += (deviation / np.maximum(lengths[:, None], 1e-300)).sum(axis=0)
            count += int((lengths > 0).sum())
    # without clusters of some clients: the noise of the measure, which is half the squared split-half angle each
    even = np.full(n, np.radians(np.sqrt(np.mean(clustering.noise_scale**2))) ** 2 / 2)
    expected = np.mean(squares, axis=0) if squares else even
    return _Parts(left, right, 1 / (np.maximum(expected, 1e-12) * (1 / len(a) + 1 / len(b))), total / count)


def _pooled_basis(clients: Sequence[ClientSignature], rows: Rows) -> Array:
    """The subspace nearest to the bases of these clients."""
    bases = [np.asarray(clients[i].basis, dtype=np.float64) for i in rows.tolist()]
    if len(bases) == 1:
        return bases[0]
    u, _, _ = np.linalg.svd(np.hstack(bases), full_matrices=False)
    return np.asarray(u[:, : max(basis.shape[1] for basis in bases)])


def _principal_vectors(a: Array, b: Array) -> tuple[Array, Array]:
    """Of two bases, the smallest angle first, with signs that agree: (directions, features) each."""
    u, _, vt = np.linalg.svd(a.T @ b, full_matrices=False)
    return (a @ u).T, (b @ vt.T).T


def _features(parts: _Parts, shares: Array, above: Array, names: Sequence[str]) -> tuple[FeatureDifference, ...]:
    """The features that carry most, largest first."""
    largest = [int(j) for j in np.argsort(-shares, kind="stable")[:MOST] if shares[j] > 0]
    unit = _unit(parts)
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


def _words(
    kind: Kind,
    size: float,
    sides: tuple[str, str],
    classes: Sequence[ClassDifference],
    relabelled: Sequence[Relabelling],
    features: Sequence[FeatureDifference],
    nearest: Alternative | None,
    unlabelled: bool,
) -> str:
    """Sentences that people can act on."""
    a, b = sides
    said = []
    if kind == "none":
        said.append(f"{a} and {b} differ by no more than noise.")
    elif kind == "concept":
        said.append(f"{a} and {b} label the same inputs differently, {size:.1f} times the noise.")
        if relabelled:
            said.append(relabelled_words(relabelled, a, b))
    elif kind == "labels":
        said.append(f"{a} and {b} differ in their class shares only.")
    else:
        said.append(f"{a} and {b} differ in {_named(features)}, {size:.1f} times the noise.")
        if classes:
            largest = ", ".join(f"{one.name} ({one.size:.1f})" for one in classes[:MOST])
            said.append(f"Classes that differ most, in units of noise: {largest}.")
    if unlabelled:
        said.append("Only inputs were compared: labels are needed to see whether labels differ.")
    if nearest is not None:
        own = "" if nearest.own is None else f", {nearest.own:.1f} from its own"
        said.append(
            f"The nearest other cluster of {a} is {nearest.cluster}: {nearest.distance:.1f} times the noise{own}."
        )
    return " ".join(f"{sentence[0].upper()}{sentence[1:]}" for sentence in said)


def _named(features: Sequence[FeatureDifference]) -> str:
    """The features that stand out, or 'their inputs' if none does."""
    units = [one for one in features if one.factor is not None]
    if units:
        factor = units[0].factor or 1.0
        return (
            f"{units[0].name} (different unit? its weight differs by a factor of about {max(factor, 1 / factor):.3g})"
        )
    clear = [one.name for one in features if one.above_noise > CLEAR and one.share > NOTABLE]
    return ", ".join(clear) if clear else "their inputs"
