"""Which features carry the difference between two clients, or two clusters."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from pacfl.subspace.classes import RANK
from pacfl.subspace.clustering import Clustering
from pacfl.subspace.diagnosis import ClassEvidence
from pacfl.subspace.pooled import PooledClasses
from pacfl.subspace.together import ClientSignature

Array = NDArray[np.float64]
Rows = NDArray[np.intp]

FEW: Final = 3  # clients of a cluster, from which their scatter says which features are noisy
MOST: Final = 5  # features that are named
LARGE: Final = 2.5  # factor between two weights of a feature that suggests another unit
UNIT_EXPLAINS: Final = 0.8  # share of the difference that factors must explain to be called units


@dataclass(frozen=True)
class FeatureDifference:
    """A feature that carries much of the difference."""

    index: int
    name: str
    share: float  # of the squared difference
    above_noise: float  # in units of noise
    factor: float | None  # by which its weight, or values of a table, are larger in A than in B, if that explains much


@dataclass(frozen=True, eq=False)
class Directions:
    """Directions of A and B that are compared, with signs that agree."""

    a: Array  # (directions, features)
    b: Array
    weights: Array  # (directions,) 1 / expected squared length of the difference by noise
    noise: Array  # (features,) shares of the noise


def class_directions(evidence: ClassEvidence, noise: Array, a: Rows, b: Rows) -> Directions:
    """Pooled directions of all classes that both sides have."""
    of_a, of_b = evidence.pooled(a), evidence.pooled(b)
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
    return Directions(np.array(left), np.array(right), np.array(weights), noise)


def class_scatter(evidence: ClassEvidence) -> Array:
    """Shares of features in the noise of directions, from clients of the same cluster; even where there are few.

    Even noise counts as one more direction, so that a feature that never varies has some.
    """
    features = evidence.classes[0].directions.shape[1]
    total, count = np.zeros(features), 0
    for rows in map(evidence.rows, evidence.clustering.numbers):
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


def input_directions(clients: Sequence[ClientSignature], scatter: tuple[Array, Array], a: Rows, b: Rows) -> Directions:
    """Every direction of either side and its image in the other's space, weighted by how well clients agree on it."""
    left, right = _pooled_basis(clients, a), _pooled_basis(clients, b)
    noise, expected = scatter
    lengths = np.concatenate([expected[: left.shape[1]], expected[: right.shape[1]]])
    return Directions(
        np.hstack([left, _projected(right, left)]).T,
        np.hstack([_projected(left, right), right]).T,
        1 / (np.maximum(lengths, 1e-12) * (1 / len(a) + 1 / len(b))),
        noise,
    )


def input_scatter(clients: Sequence[ClientSignature], clustering: Clustering) -> tuple[Array, Array]:
    """Shares of features in the noise of bases (features,), and the mean squared noise of each direction.

    Of clusters of some clients. Without them: even shares, and the noise of the measure, which is half the squared
    split-half angle.
    """
    features, n = len(clients[0].basis), max(client.basis.shape[1] for client in clients)
    total, count, squares = np.full(features, 1 / features), 1, [np.full(n, np.nan)]
    for cluster in clustering.numbers:
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


def largest_differences(
    parts: Directions, shares: Array, above: Array, names: Sequence[str], units: bool
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


def _unit(parts: Directions) -> tuple[int, float] | None:
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
