"""Ways to split the training samples of one data set among clients, by their labels and their number."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from pacfl.data.dataset import Dataset, Indices
from pacfl.errors import DataError
from pacfl.settings import Positive, PositiveInt, PositiveShare, check

Sizes = NDArray[np.intp]

# Draws until every client has its minimum, and how many are made at once. If one draw in a thousand succeeds (with
# alpha 0.1 and 160 samples per client it is one in a hundred), all of these fail once in 300,000 runs.
MAX_DRAWS: Final = 12_800
DRAWS_AT_ONCE: Final = 64


class Split(NamedTuple):
    """The indices of each client's samples, and what else a scheme knows about the clients."""

    train_indices: Sequence[Indices]
    true_cluster: Indices | None = None  # the group of each client
    test_indices: Sequence[Indices] | None = None  # None: the test samples of the classes that a client owns
    names: tuple[str, ...] | None = None  # of the clients, if they have any


class Scheme(Protocol):
    """A way to split a data set among clients."""

    remedy: ClassVar[str]  # what to change if a client has less than the minimum

    @property
    def minimum(self) -> int:
        """The least number of samples of a client."""

    def split(self, dataset: Dataset, n_clients: int, rng: np.random.Generator) -> Split:
        """The samples of n_clients clients; all randomness comes from rng."""


@dataclass(frozen=True)
class LabelSkew:
    """Client i owns class i mod K and others drawn until it has its share; a class is split evenly among its owners."""

    share: PositiveShare
    minimum: PositiveInt = 1
    remedy: ClassVar[str] = "use fewer clients or a larger share of classes"

    def __post_init__(self) -> None:
        check(self)

    def split(self, dataset: Dataset, n_clients: int, rng: np.random.Generator) -> Split:
        """Every client has the same number of classes; a class without an owner is not used."""
        check_classes(dataset, "label-skew splits")
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
    """Every class is split by shares drawn from Dir(alpha); clients that have N/n samples already get no more."""

    alpha: Positive
    minimum: PositiveInt = 10
    remedy: ClassVar[str] = "use fewer clients, a larger alpha or a smaller minimum"

    def __post_init__(self) -> None:
        check(self)

    def split(self, dataset: Dataset, n_clients: int, rng: np.random.Generator) -> Split:
        """All samples are used; drawn again until every client has the minimum."""
        check_classes(dataset, "dirichlet splits")
        counts = np.bincount(dataset.y_train, minlength=dataset.n_classes)
        check_enough(len(dataset.y_train), n_clients, self.minimum, self.remedy)
        for _ in range(MAX_DRAWS // DRAWS_AT_ONCE):
            sizes = self._sizes(counts, n_clients, rng)
            all_used = sizes.sum(axis=(1, 2)) == counts.sum()
            good = np.flatnonzero(all_used & (sizes.sum(axis=1).min(axis=1) >= self.minimum))
            if len(good):
                return Split(split_by_class(dataset, sizes[good[0]], rng))
        raise DataError(_too_few(self, n_clients))

    def _sizes(self, counts: Sizes, n_clients: int, rng: np.random.Generator) -> Sizes:
        """(draws, classes, clients) numbers of samples."""
        held = np.zeros((DRAWS_AT_ONCE, n_clients), dtype=np.intp)
        sizes = np.zeros((DRAWS_AT_ONCE, len(counts), n_clients), dtype=np.intp)
        for c, count in enumerate(counts):
            shares = rng.dirichlet(np.full(n_clients, self.alpha), DRAWS_AT_ONCE)
            shares[held * n_clients >= counts.sum()] = 0.0
            sizes[:, c] = _proportional(int(count), shares)
            held += sizes[:, c]
        return sizes


@dataclass(frozen=True)
class Iid:
    """Every client gets the same number of samples, drawn at random."""

    minimum: PositiveInt = 1
    remedy: ClassVar[str] = "use fewer clients"

    def __post_init__(self) -> None:
        check(self)

    def split(self, dataset: Dataset, n_clients: int, rng: np.random.Generator) -> Split:
        """All samples are used."""
        n = len(dataset.y_train)
        return Split(split_at_random(np.arange(n), _even(n, n_clients), rng))


@dataclass(frozen=True)
class QuantitySkew:
    """Numbers of samples are drawn from Dir(alpha); the samples are drawn at random."""

    alpha: Positive
    minimum: PositiveInt = 10
    remedy: ClassVar[str] = "use fewer clients, a larger alpha or a smaller minimum"

    def __post_init__(self) -> None:
        check(self)

    def split(self, dataset: Dataset, n_clients: int, rng: np.random.Generator) -> Split:
        """All samples are used; drawn again until every client has the minimum."""
        n = len(dataset.y_train)
        check_enough(n, n_clients, self.minimum, self.remedy)
        for _ in range(MAX_DRAWS // DRAWS_AT_ONCE):
            sizes = _proportional(n, rng.dirichlet(np.full(n_clients, self.alpha), DRAWS_AT_ONCE))
            good = np.flatnonzero(sizes.min(axis=1) >= self.minimum)
            if len(good):
                return Split(split_at_random(np.arange(n), sizes[good[0]], rng))
        raise DataError(_too_few(self, n_clients))


def split_at_random(members: Indices, sizes: Sizes, rng: np.random.Generator) -> list[Indices]:
    """The members split at random among clients of the given sizes, each used at most once, in ascending order."""
    of_clients = np.split(rng.permutation(members), np.cumsum(sizes))[: len(sizes)]
    return [np.sort(indices).astype(np.intp) for indices in of_clients]


def split_by_class(dataset: Dataset, sizes: Sizes, rng: np.random.Generator) -> list[Indices]:
    """The training samples split at random with the given (classes, clients) numbers of samples."""
    by_class = [split_at_random(np.flatnonzero(dataset.y_train == c), sizes[c], rng) for c in range(len(sizes))]
    return [np.sort(np.concatenate(of_client)) for of_client in zip(*by_class, strict=True)]


def check_classes(dataset: Dataset, what: str, remedy: str = "use iid or quantity-skew") -> None:
    """Refuse data without classes, for what is done by class."""
    if dataset.targets != "classes":
        raise DataError(f"{what} samples by their class, and {dataset.name} has {dataset.targets}; {remedy}")


def check_enough(n: int, n_clients: int, minimum: int, remedy: str) -> None:
    """Refuse what no draw can give."""
    if n < n_clients * minimum:
        raise DataError(f"{n_clients} clients cannot have {minimum} of {n} samples each; {remedy}")


def _even(n: int, n_clients: int) -> Sizes:
    """Sizes of n_clients subsets of n samples that differ by at most one."""
    sizes: Sizes = np.full(n_clients, n // n_clients, dtype=np.intp)
    sizes[: n % n_clients] += 1
    return sizes


def _proportional(n: int, shares: NDArray[np.float64]) -> Sizes:
    """Sizes of subsets of n samples in the proportions of the shares, (draws, clients); all 0 if all shares are 0."""
    ends = np.nan_to_num(np.cumsum(shares, axis=1))
    total = ends[:, -1:]
    last = np.floor(ends / np.where(total > 0, total, 1.0) * n).astype(np.intp)
    sizes: Sizes = np.diff(last, prepend=0)
    return sizes


def _too_few(scheme: Dirichlet | QuantitySkew, n_clients: int) -> str:
    return (
        f"in {MAX_DRAWS} draws with alpha {scheme.alpha}, one of {n_clients} clients always had fewer than "
        f"{scheme.minimum} samples; {scheme.remedy}"
    )
