"""Ways to divide the training samples of one data set by their labels and numbers."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from pacfl.data.dataset import Dataset, Indices
from pacfl.errors import DataError

Sizes = NDArray[np.intp]

# Draws until every client has its minimum, and how many are made at once. Where one draw in a thousand gives it (with
# alpha 0.1 and 160 samples a client it is one in a hundred), all of these fail once in 300,000 runs.
TRIES: Final = 12_800
AT_ONCE: Final = 64


class Split(NamedTuple):
    """Samples of each client, and what else a scheme knows of them."""

    train_indices: Sequence[Indices]
    true_cluster: Indices | None = None  # the group of each client
    test_indices: Sequence[Indices] | None = None  # None: the test samples of the classes that a client owns


class Scheme(Protocol):
    """A way to divide a data set among clients."""

    remedy: ClassVar[str]  # what to change if a client has less than the minimum

    @property
    def minimum(self) -> int:
        """The least number of samples of a client."""

    def split(self, dataset: Dataset, n_clients: int, rng: np.random.Generator) -> Split:
        """The shards of n_clients clients; all randomness comes from rng."""


@dataclass(frozen=True)
class LabelSkew:
    """Client i owns class i mod K and others drawn until it has its share; a class is cut evenly among its owners."""

    share: float
    minimum: int = 1
    remedy: ClassVar[str] = "use fewer clients or a larger share of classes"

    def __post_init__(self) -> None:
        if not 0 < as_number("share", self.share) <= 1:
            raise DataError(f"share must lie in 0..1, a part of the classes, got {self.share}")
        check_whole("minimum", self.minimum)

    def split(self, dataset: Dataset, n_clients: int, rng: np.random.Generator) -> Split:
        """Every client has the same number of classes; a class that nobody owns is not used."""
        owned = self._owned(dataset.n_classes, n_clients, rng)
        sizes = np.zeros((dataset.n_classes, n_clients), dtype=np.intp)
        for c, count in enumerate(np.bincount(dataset.y_train, minlength=dataset.n_classes)):
            owners = np.flatnonzero(owned[:, c])
            if len(owners):
                sizes[c, owners] = _even(int(count), len(owners))
        return Split(split_by_class(dataset, sizes, rng))

    def _owned(self, n_classes: int, n_clients: int, rng: np.random.Generator) -> NDArray[np.bool_]:
        """(n_clients, n_classes): which client owns which class."""
        n_owned = max(1, math.ceil(self.share * n_classes - 1e-9))  # 0.07 × 100 is a little more than 7
        owned = np.zeros((n_clients, n_classes), dtype=np.bool_)
        for i in range(n_clients):
            others = np.delete(np.arange(n_classes), i % n_classes)
            owned[i, [i % n_classes, *rng.permutation(others)[: n_owned - 1]]] = True
        return owned


@dataclass(frozen=True)
class Dirichlet:
    """Every class is shared out by Dir(alpha); clients that already have their fair part get nothing more."""

    alpha: float
    minimum: int = 10
    remedy: ClassVar[str] = "use fewer clients, a larger alpha or a smaller minimum"

    def __post_init__(self) -> None:
        check_positive("alpha", self.alpha)
        check_whole("minimum", self.minimum)

    def split(self, dataset: Dataset, n_clients: int, rng: np.random.Generator) -> Split:
        """All samples are used; drawn again until every client has the minimum."""
        counts = np.bincount(dataset.y_train, minlength=dataset.n_classes)
        check_enough(len(dataset.y_train), n_clients, self.minimum, self.remedy)
        for _ in range(TRIES // AT_ONCE):
            sizes = self._sizes(counts, n_clients, rng)
            all_dealt = sizes.sum(axis=(1, 2)) == counts.sum()
            good = np.flatnonzero(all_dealt & (sizes.sum(axis=1).min(axis=1) >= self.minimum))
            if len(good):
                return Split(split_by_class(dataset, sizes[good[0]], rng))
        raise DataError(_never(self, n_clients))

    def _sizes(self, counts: Sizes, n_clients: int, rng: np.random.Generator) -> Sizes:
        """(draws, classes, clients) numbers of samples."""
        held = np.zeros((AT_ONCE, n_clients), dtype=np.intp)
        sizes = np.zeros((AT_ONCE, len(counts), n_clients), dtype=np.intp)
        for c, count in enumerate(counts):
            shares = rng.dirichlet(np.full(n_clients, self.alpha), AT_ONCE)
            shares[held * n_clients >= counts.sum()] = 0.0
            sizes[:, c] = _cut(int(count), shares)
            held += sizes[:, c]
        return sizes


@dataclass(frozen=True)
class Iid:
    """Everybody gets as many samples, drawn at random."""

    minimum: int = 1
    remedy: ClassVar[str] = "use fewer clients"

    def __post_init__(self) -> None:
        check_whole("minimum", self.minimum)

    def split(self, dataset: Dataset, n_clients: int, rng: np.random.Generator) -> Split:
        """All samples are used."""
        n = len(dataset.y_train)
        return Split(split_at_random(np.arange(n), _even(n, n_clients), rng))


@dataclass(frozen=True)
class QuantitySkew:
    """Numbers of samples are shared out by Dir(alpha); the samples are drawn at random."""

    alpha: float
    minimum: int = 10
    remedy: ClassVar[str] = "use fewer clients, a larger alpha or a smaller minimum"

    def __post_init__(self) -> None:
        check_positive("alpha", self.alpha)
        check_whole("minimum", self.minimum)

    def split(self, dataset: Dataset, n_clients: int, rng: np.random.Generator) -> Split:
        """All samples are used; drawn again until every client has the minimum."""
        n = len(dataset.y_train)
        check_enough(n, n_clients, self.minimum, self.remedy)
        for _ in range(TRIES // AT_ONCE):
            sizes = _cut(n, rng.dirichlet(np.full(n_clients, self.alpha), AT_ONCE))
            good = np.flatnonzero(sizes.min(axis=1) >= self.minimum)
            if len(good):
                return Split(split_at_random(np.arange(n), sizes[good[0]], rng))
        raise DataError(_never(self, n_clients))


def split_at_random(members: Indices, sizes: Sizes, rng: np.random.Generator) -> list[Indices]:
    """The members split at random among clients of the given sizes, each used at most once, in ascending order."""
    parts = np.split(rng.permutation(members), np.cumsum(sizes))[: len(sizes)]
    return [np.sort(part).astype(np.intp) for part in parts]


def split_by_class(dataset: Dataset, sizes: Sizes, rng: np.random.Generator) -> list[Indices]:
    """The training samples split at random with the given (classes, clients) numbers of samples."""
    parts = [split_at_random(np.flatnonzero(dataset.y_train == c), sizes[c], rng) for c in range(len(sizes))]
    return [np.sort(np.concatenate(of_client)) for of_client in zip(*parts, strict=True)]


def check_enough(n: int, n_clients: int, minimum: int, remedy: str) -> None:
    """Refuses what no draw can give."""
    if n < n_clients * minimum:
        raise DataError(f"{n_clients} clients cannot have {minimum} of {n} samples each; {remedy}")


def check_whole(name: str, value: object, least: int = 1) -> None:
    """A whole number of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise DataError(f"{name} must be a whole number of at least {least}, got {value!r}")


def as_number(name: str, value: object) -> float:
    """A finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.number) or not math.isfinite(value):
        raise DataError(f"{name} must be a number, got {value!r}")
    return float(value)


def check_positive(name: str, value: object) -> None:
    """A number above 0."""
    if as_number(name, value) <= 0:
        raise DataError(f"{name} must be above 0, got {value!r}")


def _even(n: int, n_parts: int) -> Sizes:
    """Sizes of n_parts parts of n things that differ by at most one."""
    sizes: Sizes = np.full(n_parts, n // n_parts, dtype=np.intp)
    sizes[: n % n_parts] += 1
    return sizes


def _cut(n: int, shares: NDArray[np.float64]) -> Sizes:
    """Sizes of parts of n things in the proportions of the shares: (draws, parts). Shares of 0 leave all to nobody."""
    ends = np.nan_to_num(np.cumsum(shares, axis=1))
    total = ends[:, -1:]
    whole = np.floor(ends / np.where(total > 0, total, 1.0) * n).astype(np.intp)
    sizes: Sizes = np.diff(whole, prepend=0)
    return sizes


def _never(scheme: Dirichlet | QuantitySkew, n_clients: int) -> str:
    return (
        f"in {TRIES} draws with alpha {scheme.alpha}, one of {n_clients} clients always had less than "
        f"{scheme.minimum} samples; {scheme.remedy}"
    )
