"""Samples that depend on each other go into halves together, as units: noise falls with the number of groups.

Windows of one recording, frames of one film or visits of one patient resemble each other. Random halves of the samples
share such neighbours, and show less noise than another sample of recordings would.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pacfl.subspace.signature import condense, drawn
from pacfl.subspace.sparse import stacked
from pacfl.subspace.stored import StoredRows

Array = NDArray[np.float64]
Indices = NDArray[np.intp]
Halves = list[tuple[Indices, Indices]]

FEWEST_UNITS: Final = 12  # groups of equal size: from fewer, noise is known so badly that equal clients may split
MANY_UNITS: Final = 32  # groups that are drawn even if they have more samples than are needed of independent ones
MOST_ROWS: Final = 512  # of all groups together; more are condensed
MANY: Final = 1 << 20  # samples: arrays with a number for each are made in parts, and only where they are needed


Groups = NDArray[np.integer[Any]]


def as_groups(groups: ArrayLike, n: int | None = None) -> Groups:
    """The group of each of n samples as an integer from 0, in order of appearance."""
    given = np.asarray(groups)
    if n is not None and given.shape != (n,):
        raise ValueError(f"groups must be one per sample, got shape {given.shape} for {n} samples")
    if given.dtype.kind in "fOU" and any(value in (None, "") or value != value for value in given.tolist()):
        raise ValueError("some groups are missing; name the group of every sample, or leave these samples out")
    if given.dtype.kind == "O":
        given = given.astype(str)
    if given.dtype.kind in "iu" and len(given) > MANY and int(given.max()) - int(given.min()) < len(given):
        return _codes(given)
    _, first, codes = np.unique(given, return_index=True, return_inverse=True)
    order = np.empty(len(first), dtype=np.intp)
    order[np.argsort(first)] = np.arange(len(first))
    return order[codes]


def blocks(n: int, size: int) -> Indices:
    """Groups of so many consecutive samples: (n,)."""
    return np.arange(n) // size


def effective_count(groups: Groups | int) -> int:
    """How many groups of equal size would average out as much: n² / Σ n_g², at most the number of groups.

    groups (n,), or n if every sample is its own.
    """
    if isinstance(groups, int):
        return groups
    return len(groups) ** 2 // int((_sizes(groups).astype(np.int64) ** 2).sum())


def is_grouped(groups: Groups | int) -> bool:
    """Whether some group has several samples."""
    return not isinstance(groups, int) and int(groups.max()) + 1 < len(groups)


def is_enough(groups: Groups | int, fewest: int = 1) -> bool:
    """Whether noise can be measured from these groups, or from so few samples if each is its own group."""
    return effective_count(groups) >= (max(fewest, FEWEST_UNITS) if is_grouped(groups) else fewest)


def _parts(n: int) -> Iterator[slice]:
    return (slice(start, start + MANY) for start in range(0, n, MANY))


def _codes(given: Groups) -> Groups:
    """Groups that are integers, numbered in order of appearance, without sorting them."""
    least, n = int(given.min()), len(given)
    steps = (np.diff(given[part.start : part.stop + 1].astype(np.int64)) for part in _parts(n))
    if given[0] == 0 and all(((step == 0) | (step == 1)).all() for step in steps):
        return given  # they are numbered so already
    first = np.full(int(given.max()) - least + 1, n)
    for part in reversed(list(_parts(n))):  # of several positions the last that is written stays: the first in the data
        own = given[part].astype(np.intp) - least
        first[own[::-1]] = np.arange(part.start, part.start + len(own))[::-1]
    code = np.empty(len(first), np.int32)
    code[np.argsort(first, kind="stable")] = np.arange(len(first), dtype=np.int32)
    codes = np.empty(n, np.int32)
    for part in _parts(n):
        codes[part] = code[given[part].astype(np.intp) - least]
    return codes


def _sizes(groups: Groups) -> Indices:
    """How many samples each group has."""
    sizes = np.zeros(int(groups.max()) + 1, np.intp)
    for part in _parts(len(groups)):
        found = np.bincount(groups[part])
        sizes[: len(found)] += found
    return sizes


def members_of(groups: Groups, chosen: Indices) -> list[Indices]:
    """Positions of the samples of some groups."""
    place = np.full(int(groups.max()) + 1, -1, np.intp)
    place[chosen] = np.arange(len(chosen))
    at = np.concatenate([part.start + np.flatnonzero(place[groups[part]] >= 0) for part in _parts(len(groups))])
    own = place[groups[at]]
    return np.split(at[np.argsort(own, kind="stable")], np.cumsum(np.bincount(own, minlength=len(chosen)))[:-1])


class Units:
    """Groups from which halves are drawn, and random halves of them that separate no group."""

    def __init__(self, groups: Groups | int, most: int) -> None:
        """Whole groups with at most so many samples, but MANY_UNITS groups where there are as many.

        groups (n,), or n if every sample is its own.
        """
        sizes = None if isinstance(groups, int) else _sizes(groups)
        n = groups if isinstance(groups, int) else int(groups.max()) + 1
        # Addressed by the data's size alone: the same data give the same bytes
        self._rng = np.random.default_rng(n)
        some = max(most, MANY_UNITS)
        order = self._rng.permutation(n) if n <= MANY else self._rng.choice(n, some, replace=False)
        ends = np.cumsum(np.ones(len(order), np.intp) if sizes is None else sizes[order])
        order = order[: max(int(np.searchsorted(ends, most, side="right")), MANY_UNITS)]
        self.members = list(order[:, None]) if isinstance(groups, int) else members_of(groups, order)  # samples of each
        self._n_samples = groups if isinstance(groups, int) else len(groups)

    def __len__(self) -> int:
        return len(self.members)

    def positions(self) -> Indices:
        """Of all samples that are drawn, sorted."""
        return np.sort(np.concatenate(self.members))

    def gathered(self, rows: Any, fewest: int) -> tuple[Array, list[Indices]]:
        """The samples of all units, and where those of each are; large groups condensed to `fewest` rows or more."""
        most = max(MOST_ROWS // len(self), fewest)
        if isinstance(rows, StoredRows) and all(len(own) <= most for own in self.members):
            ends = np.cumsum([len(own) for own in self.members])
            return drawn(rows, np.concatenate(self.members)), np.split(np.arange(ends[-1]), ends[:-1])
        parts = [condensed(rows, own, most) for own in self.members]
        ends = np.cumsum([part.shape[0] for part in parts])
        return stacked(parts), np.split(np.arange(ends[-1]), ends[:-1])

    def halves(self, members: Sequence[Indices], splits: int) -> tuple[Halves, float]:
        """Places of halves of equally many samples, as far as groups permit, and what share of all makes a half."""
        drawn: Halves = []
        shares = []
        for _ in range(splits):
            order = self._rng.permutation(len(self)).tolist()
            sizes = np.cumsum([len(self.members[k]) for k in order])
            first = int(np.abs(2 * sizes - sizes[-1]).argmin())
            last = first + 1 + int(np.abs(sizes[first + 1 :] - 2 * sizes[first]).argmin())
            a, b = int(sizes[first]), int(sizes[last] - sizes[first])
            shares.append(2 * a * b / ((a + b) * self._n_samples))
            one, other = order[: first + 1], order[first + 1 : last + 1]
            drawn.append((np.concatenate([members[k] for k in one]), np.concatenate([members[k] for k in other])))
        return drawn, float(np.mean(shares))


def places(pairs: Halves, positions: Indices) -> Halves:
    """Where the samples of halves are among those at sorted positions."""
    return [(np.searchsorted(positions, a), np.searchsorted(positions, b)) for a, b in pairs]


def condensed(rows: Any, own: Indices, most: int) -> Any:
    """At most so many rows with nearly the same second moments as those of a group."""
    taken = rows.take if isinstance(rows, StoredRows) else rows.__getitem__
    if len(own) <= most:
        return taken(own)
    summary = taken(own[: 4 * most])
    for start in range(4 * most, len(own), 3 * most):
        summary = stacked([condense(summary, most), taken(own[start : start + 3 * most])])
    return condense(summary, most)
