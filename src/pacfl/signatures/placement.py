"""How clients that join later were placed, and those who drifted: distances, runners-up, what speaks against it."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from pacfl.subspace import ClientSignature, Clustering, MergeSuggestion
from pacfl.subspace.class_null import newcomer_limit
from pacfl.subspace.columns import ColumnAngles, column_scores, pooled
from pacfl.subspace.drift import CLOSE, FALSE_ALARMS, pair_noise
from pacfl.subspace.noise_scale import noise_of_pairs, own_variance
from pacfl.subspace.threshold import ERROR_RATE

Rows = NDArray[np.intp]
Placed = TypeVar("Placed", "Newcomer", "Drift")
SAME_WITHIN: Final = 1e-6  # of numbers of two bases that are copies of each other


@dataclass(frozen=True)
class Newcomer:
    """How a client that joined later was placed. Distances are in units of noise: 1 is what noise alone shows."""

    cluster: int  # -1: it cannot be judged
    opened: bool  # whether the cluster did not exist before
    distance: float | None = None  # from those who were in its cluster before; None if it opened one
    runner_up: int | None = None  # the nearest other cluster; None if there is none
    runner_up_distance: float | None = None
    merge: bool = False  # whether it is within the threshold of both, which suggests merging them
    copy_of: str | None = None  # a client whose signature is nearer than noise allows
    too_small: bool = False  # whether its noise hides the difference between its cluster and the runner-up

    def among(self, clusters: Sequence[int]) -> "Newcomer":
        """The same, without a runner-up that all have left."""
        if self.runner_up is None or self.runner_up in clusters:
            return self
        return replace(self, runner_up=None, runner_up_distance=None, merge=False, too_small=False)

    def words(self) -> str:
        """Where it was placed, how far from it and from the next cluster it is."""
        if self.cluster < 0:
            return "is in no cluster: it cannot be judged"
        said = f"{'opens' if self.opened else 'joins'} cluster {self.cluster}"
        if self.distance is not None:
            said += f", {self.distance:.1f} times the noise from it"
        if self.runner_up_distance is not None:
            other = "the nearest other" if self.distance is not None else "the nearest"
            said += f"; {other} is cluster {self.runner_up}, {self.runner_up_distance:.1f} times the noise"
        return said

    def warnings(self) -> list[str]:
        """What speaks against the placement, in words."""
        said = []
        if self.copy_of is not None:
            said.append(
                f"its signature is nearer to that of {self.copy_of} than two samples of one distribution are; did "
                "both sign the same samples?"
            )
        if self.too_small:
            said.append(
                f"it has too few samples to be placed with confidence: its noise hides the difference between "
                f"clusters {self.cluster} and {self.runner_up}; sign more samples"
            )
        return said

    def as_json(self) -> dict[str, Any]:
        """All fields, and the warnings in words."""
        return {**asdict(self), "warnings": self.warnings()}


def describe(
    before: Clustering,
    after: Clustering,
    names: Sequence[str],
    clients: Sequence[ClientSignature],
    suggestions: Sequence[MergeSuggestion],
) -> dict[str, Newcomer]:
    """How newcomers, the last of the names and clients of the clustering `after`, were placed."""
    n, merges = len(before.labels), {suggestion.newcomer: suggestion for suggestion in suggestions}
    view = _View(after, {k: np.flatnonzero(before.labels == k) for k in before.numbers}, clients)
    found = {}
    for i in range(n, len(names)):
        cluster = int(after.labels[i])
        copied = _copied(after, clients, i)
        distances = view.distances(i) if cluster >= 0 else {}
        others = [k for k in sorted(distances, key=lambda k: distances[k]) if k != cluster]
        merge = merges.get(i - n)
        if merge is not None:
            others = [k for k in merge.clusters if k != cluster and k in distances] or others
        second = others[0] if others else None
        found[names[i]] = Newcomer(
            cluster=cluster,
            opened=cluster >= 0 and cluster not in view.members,
            distance=distances.get(cluster),
            runner_up=second,
            runner_up_distance=None if second is None else distances[second],
            merge=merge is not None and cluster in merge.clusters,
            copy_of=None if copied is None else names[copied],
            too_small=cluster in distances and second is not None and view.hides(i, cluster, second),
        )
    return found


@dataclass(frozen=True)
class Drift:
    """How far a client's new signature is from the one before, and where it would be placed now."""

    compared: str  # classes, inputs, or columns of a table
    size: float  # the angle between both, in units of noise: 1 is what two samples of one distribution show
    limit: float  # what they exceed in 1 % of cases
    drifted: bool
    fits: int  # the cluster in which it would be placed now; -1: it cannot be judged
    obstacle: str = ""  # why the test cannot say; empty where it can
    column: str | None = None  # of a table, that shows it

    def among(self, clusters: Sequence[int]) -> "Drift":
        """The same, where all have left the cluster that it fits."""
        return self if self.fits in clusters else replace(self, fits=-1)

    def words(self) -> str:
        """What the test says."""
        what = "its new signature" if self.column is None else f"its column {self.column}"
        apart = f"{what} is {self.size:.1f} times the noise from the one before"
        if self.obstacle:
            return f"whether it drifted cannot be said: {self.obstacle}"
        limit = f"{self.limit:.1f} is passed in {FALSE_ALARMS:.0%} of cases without drift"
        return f"{'drifted' if self.drifted else 'has not drifted'}: {apart} ({limit})"

    def fits_now(self) -> str:
        """Where it would be placed."""
        return f"now it fits cluster {self.fits}" if self.fits >= 0 else "now it fits no cluster"

    def as_json(self) -> dict[str, Any]:
        """All fields."""
        return asdict(self)


def restored(kind: type[Placed], table: Any) -> dict[str, Placed]:
    """Newcomers, or clients that drifted, as they were stored, checked."""
    made = {}
    for name, stored in table.items():
        given = {field.name: stored[field.name] for field in fields(kind) if field.name in stored}
        for key, value in given.items():
            listed = str(kind.__annotations__[key]).replace("None", "NoneType")
            if type(value).__name__ not in listed or (isinstance(value, float) and not np.isfinite(value)):
                raise ValueError(f"it has no valid {key} of {name}")
        made[str(name)] = kind(**given)
    return made


@dataclass(frozen=True, eq=False)
class _View:
    """Distances of groups of clients in units of noise, and the evidence behind them, by classes or by inputs."""

    clustering: Clustering
    members: Mapping[int, Rows]  # of clusters, before newcomers came
    clients: Sequence[ClientSignature]

    @cached_property
    def _everybody(self) -> Rows:
        return np.concatenate([np.empty(0, np.intp), *self.members.values()])

    def distances(self, newcomer: int) -> dict[int, float]:
        """From the clusters that it can be compared with; where columns separate these, by the largest score."""
        own = self.clients[newcomer].columns
        if self.clustering.by_columns and own is not None:
            scores = {k: column_scores(own, self._columns_of(k)) for k in self.members}
            return {k: float(of_columns.max()) for k, of_columns in scores.items() if of_columns.size}
        found = {k: self.between(np.array([newcomer]), rows, newcomer) for k, rows in self.members.items()}
        return {k: float(np.sqrt(square)) for k, (square, evidence) in found.items() if evidence > 0}

    def hides(self, newcomer: int, a: int, b: int) -> bool:
        """Whether a client of cluster a with the newcomer's noise would be within the limit of cluster b as well."""
        clustering, rows = self.clustering, self.members
        square, evidence = self.between(rows[a], rows[b], newcomer)
        _, own = self.between(np.array([newcomer]), rows[b], newcomer)
        by_classes = self._by_classes(newcomer)
        cut = clustering if by_classes or clustering.inputs is None else clustering.inputs
        if not evidence or cut.reference_scale is None or clustering.by_columns:
            return False
        limit = cut.threshold / cut.reference_scale
        if clustering.classes is not None and by_classes:
            by_chance = newcomer_limit(clustering.classes.noise, newcomer, rows[b], ERROR_RATE)
            limit = max(float(clustering.classes.limits[0]), by_chance)
        return bool(1 + max(square - 1, 0.0) * own / evidence <= limit**2)

    def between(self, a: Rows, b: Rows, newcomer: int) -> tuple[float, float]:
        """The squared distance, and the mean evidence of a pair: by what the newcomer is compared."""
        block = np.ix_(a, b)
        if self._by_classes(newcomer):
            pairs = self.clustering.classes.pairs  # type: ignore[union-attr]  # compared by classes
            squares, weights = float(pairs.squares[block].sum()), float(pairs.weights[block].sum())
            return (squares / weights if weights else 0.0), weights / (len(a) * len(b))
        farthest = self.clustering.evidence.get("random_angle")
        own = own_variance(self.clustering.noise_scale, farthest)
        scale = noise_of_pairs(np.add.outer(own[a], own[b]), farthest)
        return float((self.clustering.proximity[block] / scale).mean()) ** 2, float((1 / scale**2).mean())

    def _columns_of(self, cluster: int) -> ColumnAngles:
        own = [self.clients[j].columns for j in self.members[cluster].tolist()]
        return pooled([columns for columns in own if columns is not None])

    def _by_classes(self, newcomer: int) -> bool:
        classes = self.clustering.classes
        return classes is not None and bool(classes.pairs.weights[newcomer, self._everybody].any())


def _copied(clustering: Clustering, clients: Sequence[ClientSignature], i: int) -> int | None:
    """The first client before client i whose signature is the same, or nearer than noise allows."""
    new = clients[i]
    for j in range(i):
        if clients[j].basis.shape == new.basis.shape and np.abs(clients[j].basis - new.basis).max() < SAME_WITHIN:
            return j
    shape = len(new.basis), min(client.basis.shape[1] for client in clients)
    found = [(j, pair_noise(clustering, j, i, new.split_half_angles, shape)) for j in _near(clustering, i)]
    near = [(pair.size, j) for j, pair in found if not pair.obstacle and pair.size < pair.least(FALSE_ALARMS / i)]
    return min(near)[1] if near else None


def _near(clustering: Clustering, i: int) -> list[int]:
    """Clients before client i that may be nearer than noise allows."""
    noise, classes = clustering.noise_scale, clustering.classes
    ratios = clustering.proximity[i, :i] / np.sqrt((noise[i] ** 2 + noise[:i] ** 2) / 2)
    if classes is not None:
        squares, weights = classes.pairs.squares[i, :i], classes.pairs.weights[i, :i]
        ratios = np.where(weights > 0, np.sqrt(squares / np.where(weights > 0, weights, 1.0)), ratios)
    return [int(j) for j in np.flatnonzero(ratios < CLOSE)]
