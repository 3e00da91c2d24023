"""Clusters of very many clients: a few are clustered exactly, the others are placed with them.

1. A sample of clients, chosen by a digest of what they sent, is clustered at the automatic threshold (`cluster`).
2. Everybody else is compared with members of these clusters, and placed with the nearest where the mean angle, in units
   of noise, is within what chance reaches for one of that many clients (`placing_limit`).
3. Clients that fit nowhere are the next sample. A cluster that is found among them and whose mean angle to the nearest
   former one is within the limit joins it. Everybody is compared with new clusters, and moves where these are nearer.

So small groups are found: their clients fit nowhere. The order of the clients changes only the numbers of clusters.
"""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pacfl.subspace.clustering import Clustering, Landmarks, cluster
from pacfl.subspace.guarantee import TOO_FEW, noise_obstacle, too_noisy
from pacfl.subspace.hierarchy import Labels, in_order_of_appearance
from pacfl.subspace.many import AT_ONCE, Group, ManyClients, Positions, nearest
from pacfl.subspace.noise_scale import reference_scale
from pacfl.subspace.null import noise_energies, placing_limit
from pacfl.subspace.proximity import Measure, proximity
from pacfl.subspace.threshold import ERROR_RATE

SAMPLE: Final = 2000  # clients that are clustered exactly at once
MEMBERS: Final = 32  # of a cluster, with which clients are compared
OF_A_THREAD: Final = 1 << 11
DOUBT: Final = "clients were placed by landmarks, for which the error rate was not verified"


@dataclass(frozen=True, eq=False)
class Placing:
    """How far the placing of clients has come."""

    first: Clustering  # of the first sample
    sample: Positions  # its clients
    limit: float  # in units of noise
    labels: Labels  # (n,) the nearest cluster so far; -1: not judged
    distances: NDArray[np.float32]  # (n,) to it, in units of noise; 0 for those that were clustered or are not judged
    members: tuple[Positions, ...]  # of each cluster, with which others are compared
    new: tuple[int, ...]  # clusters with which not all clients were compared
    row: int = 0  # the first client that was not
    rounds: int = 1

    @property
    def finished(self) -> bool:
        """Whether everybody has a cluster who can."""
        return not self.new and not (self.distances > self.limit).any()


def cluster_by_landmarks(
    bases: NDArray[Any],
    split_half_angles: ArrayLike,
    measure: Measure = "smallest",
    *,
    caveats: Sequence[str] = (),
    error_rate: float = ERROR_RATE,
    sample: int = SAMPLE,
    seed: int = 0,
    on_clients: Callable[[int], object] | None = None,
) -> Clustering:
    """The clusters of very many clients by their inputs, with average linkage at the automatic threshold.

    bases (n, features, rank), an array or a memory map; split_half_angles (n, splits) degrees by the measure, NaN for
    clients that have none. on_clients is called with the number of clients that were compared since the last call.

    `proximity` of what comes back is that of the first sample, and `landmarks` says who is in it, and with whom clients
    were compared.
    """
    clients = ManyClients(bases, split_half_angles, measure, seed)
    placing = begin(clients, caveats=caveats, error_rate=error_rate, sample=sample)
    while not placing.finished:
        before, placing = placing, advance(clients, placing, sample)
        if on_clients is not None and before.new:
            on_clients((placing.row or len(clients)) - before.row)
    return completed(clients, placing)


def begin(
    clients: ManyClients, *, caveats: Sequence[str] = (), error_rate: float = ERROR_RATE, sample: int = SAMPLE
) -> Placing:
    """The first sample in its clusters, and the limit for all others; half of the error rate is for each."""
    n, noise = len(clients), clients.noise
    comparable = clients.known & (noise < clients.farthest)
    drawn = clients.first(np.flatnonzero(comparable if comparable.any() else clients.known), sample)
    several = drawn if len(drawn) > 1 else drawn.repeat(2)
    energies = noise_energies(np.empty((0, 0)), clients.own(several))
    rng = np.random.default_rng(0)
    limit = placing_limit(noise[several], energies, min(MEMBERS, len(drawn)), n, error_rate / 2, rng)
    comparable &= ~too_noisy(noise, reference_scale(noise[drawn]), limit, clients.farthest)
    drawn = clients.first(np.flatnonzero(comparable if comparable.any() else clients.known), sample)
    if len(drawn) == max(int(comparable.sum()), 1):  # everybody who can be compared: no one is left to place
        first = _exact(clients, drawn, error_rate, caveats)
    else:
        first = _exact(clients, drawn, error_rate / 2, [*caveats, DOUBT])
    comparable[drawn] = first.labels >= 0
    labels = np.where(comparable, 0, -1).astype(np.intp)
    distances = np.where(comparable, np.inf, 0.0).astype(np.float32)
    labels[drawn], distances[drawn] = first.labels, 0.0
    members = tuple(drawn[first.labels == k][:MEMBERS] for k in range(int(first.labels.max()) + 1))
    at_least = 0.0 if first.reference_scale is None else first.threshold / first.reference_scale
    limit = max(limit * _excess(first), at_least)
    return Placing(first, drawn, limit, labels, distances, members, tuple(range(len(members))))


def advance(clients: ManyClients, placing: Placing, sample: int = SAMPLE) -> Placing:
    """The placing after one more step: a block of clients compared with new clusters, or the next sample clustered."""
    return _compared(clients, placing) if placing.new else _next_round(clients, placing, sample)


def completed(clients: ManyClients, placing: Placing) -> Clustering:
    """The clustering of everybody, numbered in the order of the clients."""
    comparable = placing.labels >= 0
    labels = placing.labels.copy()
    labels[comparable] = in_order_of_appearance(labels[comparable])
    number = np.full(len(placing.members), -1, dtype=np.intp)
    number[placing.labels[comparable]] = labels[comparable]
    landmarks = Landmarks(
        clients=placing.sample,
        members=np.concatenate([np.empty(0, dtype=np.intp), *placing.members]),
        clusters=np.repeat(number, [len(members) for members in placing.members]),
        limit=placing.limit,
    )
    evidence, n_clusters = dict(placing.first.evidence), int(labels.max()) + 1
    if n_clusters > 1 and evidence["finding"] == "homogeneous":
        evidence["finding"] = "distinct"
    if comparable.any():
        evidence["smallest_difference"] = placing.limit * reference_scale(clients.noise[comparable])
    evidence["not_judged"] = {
        str(i): noise_obstacle(float(clients.noise[i]), clients.farthest) if clients.known[i] else TOO_FEW
        for i in np.flatnonzero(~comparable).tolist()
    }
    if len(placing.sample) < comparable.sum():
        evidence["reasons"] = _reasons(placing, n_clusters, int((~comparable).sum()))
    return replace(placing.first, noise_scale=clients.noise, labels=labels, evidence=evidence, landmarks=landmarks)


def _reasons(placing: Placing, n_clusters: int, not_judged: int) -> str:
    """The evidence in words: what was clustered, how the others were placed, and what the first sample shows."""
    clustered = int((placing.distances == 0).sum()) - not_judged
    rounds = "" if placing.rounds == 1 else f" in {placing.rounds} rounds"
    left = f" {not_judged:,} cannot be judged and joined nobody." if not_judged else ""
    return (
        f"{n_clusters} cluster{'' if n_clusters == 1 else 's'} of {len(placing.labels):,} clients by landmarks: "
        f"{clustered:,} were clustered{rounds}, the others placed where they differ from members of a cluster by at "
        f"most {placing.limit:.2f} times the noise in the mean.{left} The first {len(placing.sample):,}: "
        f"{placing.first.evidence['reasons']}"
    )


def _excess(first: Clustering) -> float:
    """By what factor angles within clusters exceed the noise scale; 1 where they do not."""
    ratios = first.distances() / (first.reference_scale or 1.0)
    same = np.equal.outer(first.labels, first.labels) & (first.labels >= 0) & ~np.eye(len(ratios), dtype=bool)
    return max(1.0, float(np.sqrt(np.mean(ratios[same] ** 2)))) if same.any() else 1.0


def _exact(clients: ManyClients, some: Positions, error_rate: float, caveats: Sequence[str]) -> Clustering:
    """The clusters of some clients, found exactly."""
    u, ranks = clients.read(some)
    bases = [u[:rank, i].T for i, rank in enumerate(ranks.tolist())]
    angles, own = proximity(bases, clients.measure), clients.own(some)
    return cluster(angles, own, clients.measure, signatures=bases, caveats=caveats, error_rate=error_rate)


def _compared(clients: ManyClients, placing: Placing) -> Placing:
    """The next block of clients compared with the new clusters: each moves where one is nearer than its own."""
    stop = min(placing.row + AT_ONCE, len(clients))
    labels, distances = placing.labels.copy(), placing.distances.copy()
    groups, new = [Group.of(clients, placing.members[k]) for k in placing.new], np.array(placing.new)
    movable = placing.row + np.flatnonzero(distances[placing.row : stop] > 0)
    parts = [movable[i : i + OF_A_THREAD] for i in range(0, len(movable), OF_A_THREAD)]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        found = pool.map(lambda part: nearest(clients, part, groups), parts)
        for part, (group, distance) in zip(parts, found, strict=True):
            moved = distance < distances[part]
            labels[part[moved]], distances[part[moved]] = new[group[moved]], distance[moved]
    done = stop == len(clients)
    return replace(
        placing, labels=labels, distances=distances, new=() if done else placing.new, row=0 if done else stop
    )


def _next_round(clients: ManyClients, placing: Placing, sample: int) -> Placing:
    """Clients that fit nowhere, clustered: as new clusters, or with the former one from which they do not differ."""
    labels, distances, members = placing.labels.copy(), placing.distances.copy(), list(placing.members)
    outside = distances > placing.limit
    drawn = clients.first(np.flatnonzero(outside), sample)
    homes = labels[drawn]  # the nearest of the former clusters
    few = [k for k in np.unique(homes).tolist() if len(members[k]) < MEMBERS]
    for k in few:  # clusters of which the former samples had few
        members[k] = clients.first(np.flatnonzero(~outside & (labels == k)), MEMBERS)
    new = {k for k in few if len(members[k]) > len(placing.members[k])}
    found = _exact(clients, drawn, ERROR_RATE, ()).labels
    labels[drawn], distances[drawn] = -1, 0.0
    for j in range(int(found.max()) + 1):
        own = drawn[found == j]
        home, group = int(np.bincount(homes[found == j]).argmax()), own[:MEMBERS]
        former = Group.of(clients, members[home])
        if Group.of(clients, group).ratios(former, clients.measure, clients.farthest).mean() <= placing.limit:
            labels[own] = home
        else:
            labels[own] = len(members)
            new.add(len(members))
            members.append(group)
    rounds = placing.rounds + 1
    return Placing(
        placing.first, placing.sample, placing.limit, labels, distances, tuple(members), tuple(sorted(new)), 0, rounds
    )
