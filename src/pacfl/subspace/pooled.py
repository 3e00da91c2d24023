"""The classes of a cluster: directions of its clients pooled by their evidence, and compared with those of another."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from scipy.stats import gamma

from pacfl.subspace.classes import RANK, ClassSignatures
from pacfl.subspace.pairs import ClassNoise
from pacfl.subspace.threshold import ERROR_RATE

Array = NDArray[np.float64]

ALIGNMENTS: Final = 5  # of signs with the mean; it settles in one or two


@dataclass(frozen=True, eq=False)
class PooledClasses:
    """The classes of some clients together."""

    names: tuple[str, ...]
    directions: Array  # (rank, classes, features) of length 1; 0 where there is none
    variances: Array  # (rank, classes) degrees²; infinite where there is none


@dataclass(frozen=True)
class Relabelling:
    """What A calls one name and B another."""

    a: str
    b: str
    size: float  # of the difference between classes of the same name, in units of the noise of the pooled classes
    left: float  # of the difference between these two


@dataclass(frozen=True, eq=False)
class Matching:
    """The classes of A and those of B that resemble them most."""

    names: tuple[str, ...]  # common classes
    same: Array  # (classes,) squared difference from the class of the same name, over its mean by chance
    matched: Array  # (classes,) squared difference from the partner, mean of the partners of A's and of B's class
    relabelled: tuple[Relabelling, ...]  # partners of other names, where the same names differ by more than chance
    limit: float  # of the mean over classes: chance passes it at the error rate

    @property
    def difference(self) -> float:
        """Mean squared difference of classes of the same name, in units of noise."""
        return float(self.same.mean())

    @property
    def residual(self) -> float:
        """What is left of it between matched classes."""
        return float(self.matched.mean())

    @property
    def explained(self) -> float:
        """The share of the difference, less noise, that other names for the same classes explain."""
        excess = self.difference - 1
        return float(np.clip((self.difference - self.residual) / excess, 0, 1)) if excess > 0 else 0.0


def pool(
    clients: Sequence[ClassSignatures], noise: ClassNoise, rows: NDArray[np.intp], calibration: float = 1.0
) -> PooledClasses:
    """Mean directions of the clients in these rows, weighted by 1 / variance, whatever their signs.

    calibration: noise variance within clusters over the predicted.
    """
    index = [{name: k for k, name in enumerate(client.names)} for client in clients]
    features = clients[0].directions.shape[1] if clients else 0
    directions = np.zeros((RANK, len(noise.names), features))
    variances = np.full((RANK, len(noise.names)), np.inf)
    for k, c in np.ndindex(variances.shape):
        owners = rows[np.isfinite(noise.variances[rows, c, k])]
        if len(owners):
            each = np.stack([clients[i].directions[k][:, index[i][noise.names[c]]] for i in owners.tolist()])
            weights = 1 / noise.variances[owners, c, k]
            directions[k, c] = mean_direction(each, weights)
            variances[k, c] = calibration / weights.sum()
    present = np.isfinite(variances).any(axis=0)
    names = tuple(name for name, has in zip(noise.names, present, strict=True) if has)
    return PooledClasses(names, directions[:, present], variances[:, present])


def mean_direction(each: Array, weights: Array) -> Array:
    """The direction nearest to all of (n, features), which have no sign."""
    mean = each[np.argmax(weights)]
    for _ in range(ALIGNMENTS):
        signs = np.where(each @ mean < 0, -1.0, 1.0)
        total = (weights * signs) @ each
        mean = total / max(float(np.linalg.norm(total)), 1e-300)
    return np.asarray(mean)


def class_differences(a: PooledClasses, b: PooledClasses) -> Array:
    """Squared angles between every class of A and every class of B over their mean by chance; NaN without evidence."""
    cosines = np.abs(a.directions @ b.directions.swapaxes(1, 2)).clip(max=1.0)
    variances = (a.variances[:, :, None] + b.variances[:, None, :]) / 2
    known = np.isfinite(variances)
    squares = np.where(known, np.degrees(np.arccos(cosines)) ** 2 / np.where(known, variances, 1.0), 0.0)
    count = known.sum(axis=0)
    return np.where(count > 0, squares.sum(axis=0) / np.maximum(count, 1), np.nan)


def match_classes(a: PooledClasses, b: PooledClasses, dimensions: float) -> Matching | None:
    """The one-to-one matching of classes with the least sum of differences; None without common classes."""
    squares = class_differences(a, b)
    at = {name: k for k, name in enumerate(b.names)}
    common = [(i, at[name]) for i, name in enumerate(a.names) if name in at and np.isfinite(squares[i, at[name]])]
    if not common:
        return None
    rows, columns = linear_sum_assignment(np.where(np.isnan(squares), 1e6 * np.nanmax(squares), squares))
    chosen = [(i, j) for i, j in zip(rows.tolist(), columns.tolist(), strict=True) if np.isfinite(squares[i, j])]
    of_a, of_b = dict(chosen), {j: i for i, j in chosen}
    same = np.array([squares[i, j] for i, j in common])
    # a class without a partner has only the one of its name
    matched = np.array([(squares[i, of_a.get(i, j)] + squares[of_b.get(j, i), j]) / 2 for i, j in common])
    by_name = {a.names[i]: float(squares[i, j]) for i, j in common}
    each = _limit(1, dimensions)
    relabelled = []
    for i, j in chosen:
        named = max(by_name.get(a.names[i], 0.0), by_name.get(b.names[j], 0.0))
        if a.names[i] != b.names[j] and named > max(each, squares[i, j]):
            sizes = float(np.sqrt(named)), float(np.sqrt(squares[i, j]))
            relabelled.append(Relabelling(a.names[i], b.names[j], *sizes))
    limit = _limit(len(common), dimensions)
    return Matching(tuple(a.names[i] for i, _ in common), same, matched, tuple(relabelled), limit)


def _limit(n_classes: int, dimensions: float) -> float:
    """What the mean of so many squared differences passes by chance at the error rate, if their mean is 1."""
    variance = 2 / (dimensions * n_classes)
    return float(gamma.isf(ERROR_RATE, 1 / variance, scale=variance))
