"""Columns of tables, compared with the same columns of others: who differs, and in which column.

A column that differs is one of many. Angles between all data hardly show it, and noise of other columns hides it. So a
client sends, for each column, the mean angle of its samples to the constant 1, arctan(z), and the mean of its absolute
value, where z is the value less an agreed centre, over an agreed scale. The first says where values are, the second how
far they spread; both are bounded, so that no extreme value decides. Two clients are compared by Student's t, column by
column, and class by class where they have labels.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import root
from scipy.special import ndtri_exp, stdtr

from pacfl.subspace.class_clustering import solve, worst_separation
from pacfl.subspace.class_null import class_limits
from pacfl.subspace.hierarchy import Labels, in_order_of_appearance
from pacfl.subspace.pairs import ClassNoise, ClassPairs
from pacfl.subspace.signature import as_labels, as_rows
from pacfl.subspace.units import as_groups, is_enough
from pacfl.subspace.weighted import Limits, by_height, differences

Array = NDArray[np.float64]
Counts = NDArray[np.int64]
Rows = NDArray[np.intp]
What = Literal["values", "spread"]

WHATS: Final[tuple[What, ...]] = ("values", "spread")
UNLABELLED: Final = ""  # name of the one class of clients without labels
RANK: Final = 1  # of the signature of a table: the direction of the mean; others would hide it
CONSTANT: Final = 2.0  # times the root of the number of columns: longer than what columns have in common
FEWEST: Final = 10  # samples of a class: of fewer, values that occur once in a while decide
AT_ONCE: Final = 1 << 22  # scores of pairs
UNIT: Final = 2.0  # factor between values of two clients that suggests another unit
UNIT_LEAVES: Final = 4.0  # squared errors that one factor may leave, of a mean and a spread
MISFIT: Final = 0.15  # of a spread, beside chance: no column is quite normal
MOST: Final = 37.0  # times the noise: chance that shows more is less than the smallest number


@dataclass(frozen=True, eq=False)
class ColumnAngles:
    """What one client sends of the columns of its table, class by class if it has labels."""

    names: tuple[str, ...]  # classes with enough samples, sorted; one without a name if there are no labels
    counts: Counts  # (classes,) samples, or groups of samples that depend on each other
    means: Array  # (classes, 2, columns) degrees: of angles, and of their absolute values
    variances: Array  # (classes, 2, columns) degrees², of a sample or of the mean of a group
    zeros: Array | None = None  # (columns,) what 0 is in agreed units; NaN where 0 means nothing, as of categories

    @property
    def n_columns(self) -> int:
        """How many columns there are."""
        return int(self.means.shape[2])


@dataclass(frozen=True)
class ColumnDifference:
    """A column in which two clients, or clusters, differ."""

    column: int
    what: What
    label: str  # the class whose samples differ; empty without labels
    size: float  # in units of noise


@dataclass(frozen=True, eq=False)
class ColumnClusters:
    """Clusters of clients whose columns agree."""

    labels: Labels  # (n,) from 0; -1 for clients without evidence
    separating: tuple[ColumnDifference, ...]  # what separated them, in the order in which it did
    limit: float  # times the noise by which a column of two clients differs by chance at the error rate


def with_constant(x: ArrayLike) -> Array:
    """The features of which a table is signed as a whole: angles to the constant 1, and a constant column.

    x (n, columns) less an agreed centre, over an agreed scale. The constant is so large that the first direction is
    that of the mean.
    """
    rows = as_rows(x)
    return np.column_stack([np.arctan(rows), np.full(len(rows), CONSTANT * np.sqrt(rows.shape[1]))])


def column_angles(
    x: ArrayLike,
    labels: ArrayLike | None = None,
    groups: ArrayLike | None = None,
    fewest: int = FEWEST,
    zeros: ArrayLike | None = None,
) -> ColumnAngles:
    """The mean angles of every column, of every class with at least `fewest` samples.

    x (n, columns) less an agreed centre, over an agreed scale. labels (n,), groups (n,) of samples that depend on each
    other: each counts as one sample. zeros (columns,): what 0 became, less the centre, over the scale.

    >>> made = column_angles([[0.0, 1.0], [0.0, -1.0], [0.0, 1.0], [0.0, -1.0]])
    >>> made.means.round().tolist()
    [[[0.0, 0.0], [0.0, 45.0]]]
    """
    rows = as_rows(x)
    named = np.full(len(rows), UNLABELLED) if labels is None else as_labels(labels, len(rows)).astype(str)
    of_group = np.arange(len(rows)) if groups is None else as_groups(groups, len(rows))
    angles = np.degrees(np.arctan(rows))
    names, counts, means, variances = [], [], [], []
    for name in np.unique(named).tolist():
        own = np.flatnonzero(named == name)
        units = as_groups(of_group[own])
        if len(own) < fewest or not is_enough(units, fewest):
            continue
        sizes = np.bincount(units)[:, None, None]
        sums = np.zeros((len(sizes), 2, rows.shape[1]))
        np.add.at(sums, units, np.stack([angles[own], np.abs(angles[own])], axis=1))
        of_units = sums / sizes
        names.append(name)
        counts.append(len(sizes))
        means.append(of_units.mean(axis=0))
        variances.append(of_units.var(axis=0, ddof=1))
    shape = (len(names), 2, rows.shape[1])
    arrays = np.array(counts, dtype=np.int64), np.reshape(means, shape), np.reshape(variances, shape)
    return ColumnAngles(tuple(names), *arrays, None if zeros is None else np.asarray(zeros, dtype=np.float64))


def cluster_columns(
    clients: Sequence[ColumnAngles], error_rate: float, start: Labels | None = None, seed: int = 0
) -> ColumnClusters:
    """Clusters in which all columns agree but for chance: those of `start`, divided further.

    Clusters of one distribution are divided at the error rate. Each column is compared alone, at its share of that
    rate, whatever depends on what: one that differs is not hidden by others.
    """
    labels = np.zeros(len(clients), dtype=np.intp) if start is None else start.copy()
    labels[[not len(client.names) for client in clients]] = -1
    separating: list[ColumnDifference] = []
    known: dict[bytes, Limits] = {}
    left = [np.flatnonzero(labels == k) for k in np.unique(labels[labels >= 0])]
    while left:
        rows = left.pop()
        found = _division([clients[i] for i in rows.tolist()], error_rate, seed, known)
        if found is None:
            continue
        own, difference = found
        separating.append(difference)
        labels[rows] = np.where(own < 0, -1, np.where(own == 0, labels[rows[0]], labels.max() + own))
        left += [rows[own == k] for k in range(int(own.max()) + 1)]
    placed = labels >= 0
    labels[placed] = in_order_of_appearance(labels[placed])
    return ColumnClusters(labels, tuple(separating), score_limit(clients, error_rate))


def _division(
    clients: Sequence[ColumnAngles], error_rate: float, seed: int, known: dict[bytes, Limits]
) -> tuple[Labels, ColumnDifference] | None:
    """How the column that shows most divides some clients; None if all agree. -1 for clients without evidence."""
    rate = error_rate / max(n_comparisons(clients), 1)
    best: tuple[tuple[int, float], Labels, Rows, ColumnDifference] | None = None
    shown: list[tuple[Rows, ClassPairs, Limits]] = []
    for name, rows, counts, means, variances in _of_classes(clients):
        key = counts.tobytes() + rate.hex().encode()
        limits = known[key] = known[key] if key in known else _limits(counts, rate, seed)
        weights = _weights(counts)
        for at, scores in _scores_of_pairs(counts, means, variances):
            pairs = ClassPairs(weights * scores**2, weights, weights**2)
            if scores.max() <= limits.heights.min():
                continue
            labels = solve(pairs, limits)
            separation = worst_separation(pairs, labels, limits)
            if not labels.any() or separation is None:
                continue
            shown.append((rows, pairs, limits))
            what, column = WHATS[at[0]], at[1]
            apart = np.not_equal.outer(labels, labels)
            size = float(np.sqrt(pairs.squares[apart].sum() / pairs.weights[apart].sum()))
            order = (int(labels.max()), separation)
            if best is None or order > best[0]:
                best = order, labels, rows, ColumnDifference(column, what, name, size)
    if best is None:
        return None
    labels = np.full(len(clients), -1, dtype=np.intp)
    labels[best[2]] = best[1]
    return _with_others(labels, shown), best[3]


def _with_others(labels: Labels, shown: Sequence[tuple[Rows, ClassPairs, Limits]]) -> Labels:
    """Clients that lack the class that divides others, where other columns that differ say to which they belong."""
    n, lacking = len(labels), np.flatnonzero(labels < 0)
    if not len(lacking):
        return labels
    parts = np.zeros((3, n, n))
    for rows, pairs, _ in shown:
        for total, part in zip(parts, pairs.parts, strict=True):
            total[np.ix_(rows, rows)] += part
    difference = differences(ClassPairs(*parts), labels)[lacking]
    placed = labels.copy()
    placed[lacking] = np.where(np.isfinite(difference.min(axis=1)), difference.argmin(axis=1), -1)
    return placed


def assign_by_columns(clients: Sequence[ColumnAngles], labels: Labels, error_rate: float) -> Labels:
    """The labels with all clients at -1 in the clusters whose columns agree with theirs best.

    One that differs from all clusters beyond chance opens a new one; without evidence it stays at -1.
    """
    placed = labels.copy()
    limit = score_limit(clients, error_rate)
    for i in np.flatnonzero(labels < 0).tolist():
        sizes = {}
        for k in np.unique(placed[placed >= 0]).tolist():
            sizes[k] = column_scores(clients[i], pooled([clients[j] for j in np.flatnonzero(placed == k).tolist()]))
        largest = {k: float(scores.max()) for k, scores in sizes.items() if scores.size}
        if largest:
            nearest = min(largest, key=lambda k: largest[k])
            placed[i] = nearest if largest[nearest] <= limit else placed.max() + 1
    return placed


def differs_from(clients: Sequence[ColumnAngles], i: int, members: Rows, error_rate: float) -> bool:
    """Whether some column of a client differs from those of others together beyond chance."""
    scores = column_scores(clients[i], pooled([clients[j] for j in members.tolist()]))
    return bool(scores.size and scores.max() > score_limit(clients, error_rate))


def pooled(clients: Sequence[ColumnAngles]) -> ColumnAngles:
    """The columns of several clients as if they were one."""
    names = tuple(sorted({name for client in clients for name in client.names}))
    counts, means, variances = [], [], []
    for name in names:
        own = [(client, client.names.index(name)) for client in clients if name in client.names]
        n = np.array([client.counts[c] for client, c in own], dtype=np.float64)[:, None, None]
        m, v = (np.stack([getattr(client, part)[c] for client, c in own]) for part in ("means", "variances"))
        mean = (n * m).sum(axis=0) / n.sum()
        counts.append(int(n.sum()))
        means.append(mean)
        variances.append(((n - 1) * v + n * (m - mean) ** 2).sum(axis=0) / (n.sum() - 1))
    shape = (len(names), 2, clients[0].n_columns)
    arrays = np.array(counts, dtype=np.int64), np.reshape(means, shape), np.reshape(variances, shape)
    return ColumnAngles(names, *arrays, clients[0].zeros)


def column_scores(a: ColumnAngles, b: ColumnAngles) -> Array:
    """How far the columns of all common classes are apart, in units of noise: (classes, 2, columns)."""
    common = sorted(set(a.names) & set(b.names))
    one, other = ([side.names.index(name) for name in common] for side in (a, b))
    n, m = (side.counts[at].astype(np.float64)[:, None, None] for side, at in ((a, one), (b, other)))
    return _scores(n, m, a.means[one], b.means[other], a.variances[one], b.variances[other])


def largest_scores(clients: Sequence[ColumnAngles]) -> Array:
    """Of each two clients, how far the column that differs most is apart: (n, n), NaN where no class is common."""
    largest = np.full((len(clients), len(clients)), np.nan)
    for _, rows, counts, means, variances in _of_classes(clients):
        at = np.ix_(rows, rows)
        for _, scores in _scores_of_pairs(counts, means, variances):
            largest[at] = np.fmax(largest[at], scores)
    np.fill_diagonal(largest, 0.0)
    return largest


def largest_column_differences(a: ColumnAngles, b: ColumnAngles) -> list[ColumnDifference]:
    """Of every column the largest difference, largest first."""
    common, scores = sorted(set(a.names) & set(b.names)), column_scores(a, b)
    if not scores.size:
        return []
    found = []
    for column in range(scores.shape[2]):
        c, what = np.unravel_index(int(scores[:, :, column].argmax()), scores.shape[:2])
        found.append(ColumnDifference(column, WHATS[what], common[c], float(scores[c, what, column])))
    return sorted(found, key=lambda one: -one.size)


def unit_factor(a: ColumnAngles, b: ColumnAngles, at: ColumnDifference) -> float | None:
    """By what factor the values of a column are larger in A than in B, if another unit may be why.

    It is if one factor explains where values are and how far they spread. Values are taken for normal, which gives
    their mean and spread from those of angles. None if it does not, or if it is not known what 0 became.
    """
    zero = np.nan if a.zeros is None else float(a.zeros[at.column])
    sides = [_normal(side, side.names.index(at.label), at.column) for side in (a, b)]
    if not np.isfinite(zero) or None in sides:
        return None
    (mean, spread, n), (other, of_other, m) = (side for side in sides if side is not None)
    logs = np.log(spread / of_other) + np.linspace(-1.5, 1.5, 601)
    factors = np.exp(logs)
    errors = spread**2 * (1 / n + MISFIT**2) + (factors * of_other) ** 2 * (1 / m + MISFIT**2)
    left = (mean - zero - factors * (other - zero)) ** 2 / errors
    left += (logs - np.log(spread / of_other)) ** 2 / (0.5 / n + 0.5 / m + MISFIT**2)
    best = float(factors[left.argmin()])
    return best if left.min() <= UNIT_LEAVES and max(best, 1 / best) >= UNIT else None


def _normal(side: ColumnAngles, c: int, column: int) -> tuple[float, float, int] | None:
    """Mean and standard deviation of the normal distribution whose angles have these moments, and the samples."""
    wanted = side.means[c, 0, column], np.sqrt(side.variances[c, 0, column])
    nodes, weights = np.polynomial.hermite_e.hermegauss(41)
    weights = weights / weights.sum()

    def off(x: Array) -> Array:
        angles = np.degrees(np.arctan(x[0] + np.exp(x[1]) * nodes))
        mean = weights @ angles
        return np.array([mean - wanted[0], np.log(np.sqrt(weights @ (angles - mean) ** 2) / wanted[1])])

    if not wanted[1] > 0:
        return None
    start = np.tan(np.radians(wanted[0]))
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):  # of values that no normal ones are like
        found = root(off, [start, np.log(np.radians(wanted[1]) * (1 + start**2))])
        if not found.success or not np.abs(off(found.x)).max() < 1e-3:
            return None
    return float(found.x[0]), float(np.exp(found.x[1])), int(side.counts[c])


def score_limit(clients: Sequence[ColumnAngles], error_rate: float) -> float:
    """Times the noise that the largest difference between two clients of one distribution passes at the error rate."""
    return float(-ndtri_exp(np.log(error_rate / (2 * max(n_comparisons(clients), 1)))))


def n_comparisons(clients: Sequence[ColumnAngles]) -> int:
    """Of two clients: columns, their values and their spread, times classes."""
    return 2 * clients[0].n_columns * len({name for client in clients for name in client.names}) if clients else 0


def _of_classes(clients: Sequence[ColumnAngles]) -> Iterator[tuple[str, Rows, Array, Array, Array]]:
    """Every class of two clients or more, who has it, and their counts (m,), means and variances (m, 2, columns)."""
    for name in sorted({name for client in clients for name in client.names}):
        at = {i: client.names.index(name) for i, client in enumerate(clients) if name in client.names}
        if len(at) > 1:
            counts = np.array([clients[i].counts[c] for i, c in at.items()], dtype=np.float64)
            means, variances = (
                np.stack([getattr(clients[i], part)[c] for i, c in at.items()]) for part in ("means", "variances")
            )
            yield name, np.array(list(at)), counts, means, variances


def _scores_of_pairs(counts: Array, means: Array, variances: Array) -> Iterator[tuple[tuple[int, int], Array]]:
    """Scores of all pairs of m clients in one column after the other: (what, column), (m, m)."""
    m, columns = len(counts), means.shape[2]
    block = max(AT_ONCE // m**2, 1)
    n = counts[:, None]
    for what in range(len(WHATS)):
        for first in range(0, columns, block):
            mean, variance = (part[:, what, first : first + block] for part in (means, variances))
            scores = _scores(n[:, None], n[None], mean[:, None], mean[None], variance[:, None], variance[None])
            for column in range(scores.shape[2]):
                yield (what, first + column), scores[:, :, column]


def _scores(n: Array, m: Array, mean: Array, other: Array, variance: Array, of_other: Array) -> Array:
    """Student's t of two means as the normal score of the same probability: what chance shows has mean square 1.

    Of n and m samples. The error is the larger of two: a pooled one, because a rare value may not occur in one of the
    samples; and that of each sample's own variance (Welch), because it may occur often in a small one by chance.
    """
    a, b = variance / n, of_other / m
    together = ((n - 1) * variance + (m - 1) * of_other) / (n + m - 2) * (1 / n + 1 / m)
    error = np.maximum(a + b, together)
    welch = np.divide((a + b) ** 2, a**2 / (n - 1) + b**2 / (m - 1), out=np.ones_like(error), where=a + b > 0)
    freedom = np.where(together > (1 + 1e-9) * (a + b), n + m - 2, welch)
    squared = (mean - other) ** 2
    with np.errstate(divide="ignore", invalid="ignore"):
        t = np.sqrt(np.where(squared > 0, squared / error, 0.0))
        scores = -ndtri_exp(np.log(stdtr(freedom, -t)))
    return np.asarray(scores.clip(0.0, MOST))


def _weights(counts: Array) -> Array:
    """The evidence of pairs, as of classes: (m, m)."""
    variances = np.median(counts) / counts
    weights = 2 / (variances[:, None] + variances)
    np.fill_diagonal(weights, 0.0)
    return np.asarray(weights)


def _limits(counts: Array, error_rate: float, seed: int) -> Limits:
    """What chance reaches in one column of clients with so many samples: its noise has one dimension.

    Heights alone: many clients may have the same share of a rare value, and no distance inside a group to compare with.
    """
    one = np.ones((1, 1))
    noise = ClassNoise(("",), (1 / counts)[:, None, None], one, one, one / np.sqrt(np.median(counts)), one)
    limits, _ = class_limits(noise, 2 * error_rate, np.random.default_rng(seed))  # half of it is for contrasts
    return by_height(limits.heights)
