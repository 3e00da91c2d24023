"""Very many clients: their bases, read in blocks, and how far some of them are from members of clusters."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pacfl.subspace.guarantee import random_angle
from pacfl.subspace.noise_scale import RESOLUTION, noise_of_pairs, own_variance
from pacfl.subspace.proximity import MEASURES, Measure, angles_between
from pacfl.subspace.split_half import OF_FIRST

Array = NDArray[np.float64]
Positions = NDArray[np.intp]

CANDIDATES: Final = 3  # clusters, nearest by their mean subspaces, with whose members a client is compared
AT_ONCE: Final = 1 << 16  # clients that are read at once
FINE: Final = 2.0  # degrees of noise below which angles are computed in float64
ROUNDING: Final = {2: 0.02, 4: 1e-5, 8: 0.0}  # degrees, by the bytes of a number of a basis


class ManyClients:
    """The bases and the noise of clients that need not fit in memory."""

    def __init__(self, bases: NDArray[Any], split_half_angles: ArrayLike, measure: Measure, seed: int = 0) -> None:
        """Take bases (n, features, rank), orthonormal, and split-half angles (n, splits), NaN for clients without."""
        angles = np.asarray(split_half_angles)
        if bases.ndim != 3 or 0 in bases.shape or bases.dtype.kind != "f":
            raise ValueError(f"bases must be (n, features, directions) of floats, got {bases.shape} of {bases.dtype}")
        if angles.ndim != 2 or len(angles) != len(bases):
            raise ValueError(f"split_half_angles must be ({len(bases)}, splits), one row a client, got {angles.shape}")
        if measure not in MEASURES:
            raise ValueError(f"measure must be one of {', '.join(MEASURES)}, got {measure!r}")
        self.bases, self.angles, self.measure, self.seed = bases, angles, measure, seed
        self.rounding = ROUNDING[bases.dtype.itemsize] * (1 if measure in OF_FIRST else bases.shape[2])
        squares = np.einsum("ns,ns->n", angles, angles, dtype=np.float64) / max(angles.shape[1], 1)
        self.known = np.isfinite(squares) & (angles.shape[1] > 0)
        if not self.known.any():
            raise ValueError("no client has split-half angles, and without them noise is not known; use method='exact'")
        self.noise = np.maximum(np.sqrt(np.where(self.known, squares, 0.0) + self.rounding**2), RESOLUTION)
        self.farthest = random_angle(bases.shape[1], bases.shape[2], measure)
        self.variances = own_variance(self.noise, self.farthest)

    def __len__(self) -> int:
        return len(self.bases)

    def own(self, clients: Positions) -> list[Array]:
        """Split-half angles of some clients."""
        return [np.hypot(a, self.rounding) for a in np.asarray(self.angles[clients], dtype=np.float64)]

    def read(self, clients: Positions) -> tuple[NDArray[np.float32], Positions]:
        """Bases (rank, m, features) of some clients, without rounding of their numbers, and each one's directions."""
        u = np.ascontiguousarray(np.asarray(self.bases[clients]).transpose(2, 0, 1), dtype=np.float32)
        gram = np.einsum("anf,bnf->nab", u, u)
        ranks = (gram.diagonal(axis1=1, axis2=2) > 0.5).sum(axis=1)
        # One Newton step towards the nearest orthonormal basis: the lengths of rounded columns would show as angles
        return np.einsum("nab,anf->bnf", 1.5 * np.eye(len(u), dtype=np.float32) - 0.5 * gram, u), ranks

    def first(self, clients: Positions, most: int) -> Positions:
        """At most so many of some clients: the first by digests of what they sent, in that order."""
        return clients[np.argsort(self._order[clients])[:most]]

    @cached_property
    def _order(self) -> Positions:
        """The place of each client in the order of digests: (n,)."""
        key, found = self.seed.to_bytes(8, "little"), np.empty(len(self), dtype=np.uint64)
        for start in range(0, len(self), AT_ONCE):
            part = slice(start, start + AT_ONCE)
            rows, angles = np.ascontiguousarray(self.bases[part]), np.ascontiguousarray(self.angles[part])
            for i, (u, a) in enumerate(zip(rows, angles, strict=True), start):
                digest = hashlib.blake2b(a, digest_size=8, key=key)
                digest.update(u)
                found[i] = int.from_bytes(digest.digest(), "little")
        order = np.empty(len(found), dtype=np.intp)
        order[np.argsort(found, kind="stable")] = np.arange(len(found))
        return order


@dataclass(frozen=True, eq=False)
class Group:
    """Some clients as they are compared: members of a cluster, for instance."""

    u: NDArray[Any]  # (rank, m, features); float64 where their noise is small
    ranks: Positions  # (m,)
    variances: Array  # (m,) what each adds to the noise of a pair

    @classmethod
    def of(cls, clients: ManyClients, members: Positions) -> "Group":
        """Read the members, by their positions."""
        u, ranks = clients.read(members)
        fine = len(members) > 0 and clients.noise[members].min() < FINE
        return cls(u.astype(np.float64) if fine else u, ranks, clients.variances[members])

    @cached_property
    def mean(self) -> NDArray[Any]:
        """The mean subspace: (rank or fewer, features)."""
        stacked = self.u.reshape(-1, self.u.shape[2])
        directions: NDArray[Any] = np.linalg.svd(stacked, full_matrices=False)[2][: len(self.u)]
        return directions

    def ratios(self, other: "Group", measure: Measure, farthest: float) -> Array:
        """Angles to another group's clients in units of noise: (m, others)."""
        own = self.u.astype(other.u.dtype, copy=False)
        angles = angles_between(own, other.u, self.ranks, other.ranks, measure)
        found: Array = angles / noise_of_pairs(np.add.outer(self.variances, other.variances), farthest)
        return found


def nearest(clients: ManyClients, some: Positions, groups: Sequence[Group]) -> tuple[Positions, Array]:
    """The nearest group of some clients, and the mean angle to its members in units of noise: (m,) each."""
    u, ranks = clients.read(some)
    variances = clients.variances[some]
    away = np.full((len(some), len(groups)), np.inf)
    near = np.ones(away.shape, dtype=bool)
    if len(groups) > CANDIDATES:
        means = np.zeros((len(u), len(groups), u.shape[2]), dtype=np.float32)
        for k, group in enumerate(groups):
            means[: len(group.mean), k] = group.mean
        full = np.array([len(group.mean) for group in groups])
        angles = angles_between(u, means, ranks, full, clients.measure)
        near = angles <= np.partition(angles, CANDIDATES - 1, axis=1)[:, CANDIDATES - 1 : CANDIDATES]
    for k, group in enumerate(groups):
        rows = np.flatnonzero(near[:, k])
        if len(rows):
            own = Group(u[:, rows], ranks[rows], variances[rows])
            away[rows, k] = own.ratios(group, clients.measure, clients.farthest).mean(axis=1)
    found = away.argmin(axis=1)
    return found, away[np.arange(len(some)), found]
