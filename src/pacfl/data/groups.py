"""Ways to split training samples by the group they belong to: a data set of a mixture, an attribute, a client.

Or as given.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from pacfl.data.dataset import Dataset, Flags, Indices
from pacfl.data.natural import NaturalClients
from pacfl.data.schemes import Split, check_classes, split_at_random
from pacfl.errors import ConfigError, DataError
from pacfl.settings import NonNegativeInt, PositiveInt, check, suggestion


@dataclass(frozen=True)
class BySet:
    """Every client has samples of one data set of a mixture: counts[s] clients of set s, `size` samples each.

    per_class: the same number of samples of each class, if the set has enough of every class for all its clients.
    Otherwise, and without per_class, samples in the set's own class proportions; without classes, at random.
    MIX-4 of the paper: counts 32, 26, 28, 14 and size 500.
    """

    counts: tuple[NonNegativeInt, ...]
    size: PositiveInt
    per_class: bool = True
    minimum: PositiveInt = 1
    remedy: ClassVar[str] = "use a larger size"

    def __post_init__(self) -> None:
        object.__setattr__(self, "counts", _as_tuple(self.counts))
        check(self)

    def split(self, dataset: Dataset, n_clients: int, rng: np.random.Generator) -> Split:
        """The true cluster is the set; a client is tested on all test samples of its set."""
        if self.per_class:
            check_classes(dataset, "by-set divides", "use per-class = false")
        if len(self.counts) != len(dataset.source_names) or sum(self.counts) != n_clients:
            raise DataError(
                f"counts must say how many of the {n_clients} clients each of {', '.join(dataset.source_names)} has, "
                f"got {list(self.counts)}, which are {sum(self.counts)} clients of {len(self.counts)} sets"
            )
        train = [own for source, n in enumerate(self.counts) for own in self._of_set(dataset, source, n, rng)]
        tests = [np.flatnonzero(dataset.source_test == source) for source in range(len(self.counts))]
        true_cluster = np.repeat(np.arange(len(self.counts), dtype=np.intp), self.counts)
        return Split(train, true_cluster, [tests[source] for source in true_cluster])

    def _of_set(self, dataset: Dataset, source: int, n_clients: int, rng: np.random.Generator) -> list[Indices]:
        """The samples of the clients of one set."""
        if n_clients == 0:
            return []
        members = np.flatnonzero(dataset.source_train == source)
        if len(members) < n_clients * self.size:
            raise DataError(
                f"{n_clients} clients of {dataset.source_names[source]} need {self.size} samples each, it has "
                f"{len(members)}; use fewer clients or a size of at most {len(members) // n_clients}"
            )
        if dataset.targets != "classes":
            return split_at_random(members, np.full(n_clients, self.size), rng)
        classes, counts = np.unique(dataset.y_train[members], return_counts=True)
        if self.per_class and self.size % len(classes):
            raise DataError(
                f"{self.size} samples cannot be the same number of each of the {len(classes)} classes of "
                f"{dataset.source_names[source]}; use a multiple of {len(classes)}, or per_class = false"
            )
        if self.per_class and counts.min() >= n_clients * self.size // len(classes):
            sizes = np.full(n_clients, self.size // len(classes))
            by_class = [split_at_random(members[dataset.y_train[members] == c], sizes, rng) for c in classes]
            return [np.sort(np.concatenate(of_client)) for of_client in zip(*by_class, strict=True)]
        order = _proportional_order(members, dataset, rng)
        return [np.sort(order[i * self.size : (i + 1) * self.size]) for i in range(n_clients)]


@dataclass(frozen=True)
class ByAttribute:
    """Every client has samples with one of the attributes and none of the others; clients are split evenly."""

    attributes: tuple[str, ...]
    minimum: PositiveInt = 1
    remedy: ClassVar[str] = "use fewer clients, or attributes that more samples have without the others"

    def __post_init__(self) -> None:
        object.__setattr__(self, "attributes", _as_tuple(self.attributes))
        check(self)
        if not self.attributes or len(set(self.attributes)) < len(self.attributes):
            raise ConfigError(f"attributes must be different names, at least one, got {list(self.attributes)}")

    def split(self, dataset: Dataset, n_clients: int, rng: np.random.Generator) -> Split:
        """The true cluster is the attribute; a client is tested on samples of its attribute, where they are known."""
        if n_clients < len(self.attributes):
            raise DataError(f"{n_clients} clients cannot have {len(self.attributes)} attributes; use more clients")
        clients_of = np.array_split(np.arange(n_clients), len(self.attributes))
        train: list[Indices] = []
        for members, clients in zip(self._members(dataset.attributes_train), clients_of, strict=True):
            sizes = np.array([len(some) for some in np.array_split(members, len(clients))])
            train += split_at_random(members, sizes, rng)
        true_cluster = np.repeat(np.arange(len(clients_of), dtype=np.intp), [len(clients) for clients in clients_of])
        if not dataset.attributes_test:
            return Split(train, true_cluster)
        tests = self._members(dataset.attributes_test)
        return Split(train, true_cluster, [tests[group] for group in true_cluster])

    def _members(self, attributes: Mapping[str, Flags]) -> list[Indices]:
        """For each attribute, the samples that have it and none of the others."""
        for name in self.attributes:
            if name not in attributes:
                raise DataError(f"the data have no attribute {name!r}{suggestion(name, attributes)}")
        flags = np.stack([attributes[name] for name in self.attributes])
        has_one = flags.sum(axis=0) == 1
        return [np.flatnonzero(has & has_one) for has in flags]


@dataclass(frozen=True)
class Given:
    """Clients as given: indices of each one's training samples, and of its test samples if these are given too."""

    indices: Sequence[Sequence[int]]
    test_indices: Sequence[Sequence[int]] | None = None
    minimum: PositiveInt = 1
    remedy: ClassVar[str] = "give every client enough samples, or leave it out"

    def __post_init__(self) -> None:
        object.__setattr__(self, "indices", _as_index_tuples("indices", self.indices))
        if self.test_indices is not None:
            object.__setattr__(self, "test_indices", _as_index_tuples("test_indices", self.test_indices))
        check(self)

    def split(self, dataset: Dataset, n_clients: int, rng: np.random.Generator) -> Split:  # noqa: ARG002 - as every scheme
        """The indices as given."""
        for name, lists in {"indices": self.indices, "test_indices": self.test_indices}.items():
            if lists is not None and len(lists) != n_clients:
                raise DataError(f"{name} must have one list for each of {n_clients} clients, got {len(lists)}")
        tests = None if self.test_indices is None else [np.array(own, dtype=np.intp) for own in self.test_indices]
        return Split([np.array(own, dtype=np.intp) for own in self.indices], test_indices=tests)


@dataclass(frozen=True)
class Natural:
    """The clients that the data come from: hospitals, stores, people, or the data sets of a mixture.

    Of more than are asked for, those with the most training samples.
    """

    minimum: PositiveInt = 1
    remedy: ClassVar[str] = "use fewer clients: those with the most training samples are chosen"

    def __post_init__(self) -> None:
        check(self)

    def split(self, dataset: Dataset, n_clients: int, rng: np.random.Generator) -> Split:  # noqa: ARG002 - as every scheme
        """Every sample belongs to its own client, for training and for testing."""
        own = dataset.natural or _of_sources(dataset)
        if own is None:
            raise DataError(
                f"{dataset.name} does not say which clients its samples come from; use another kind of scheme, or one "
                "of the data sets that 'pacfl data' lists with clients"
            )
        if n_clients > len(own.names):
            raise DataError(
                f"{dataset.name} comes from {len(own.names)} clients, got clients = {n_clients}; use clients = "
                f"{len(own.names)}, or fewer: those with the most training samples"
            )
        sizes = np.bincount(own.train, minlength=len(own.names))
        chosen = np.sort(np.argsort(-sizes, kind="stable")[:n_clients])
        train, tests = ([np.flatnonzero(of == c) for c in chosen] for of in (own.train, own.test))
        return Split(train, None, tests, tuple(own.names[c] for c in chosen))


def _of_sources(dataset: Dataset) -> NaturalClients | None:
    """The data sets of a mixture as its clients."""
    if len(dataset.source_names) == 1:
        return None
    return NaturalClients(dataset.source_names, dataset.source_train, dataset.source_test)


def _proportional_order(members: Indices, dataset: Dataset, rng: np.random.Generator) -> Indices:
    """The members in a random order in which every interval has the classes in the proportions of all members.

    The samples of each class are spread evenly over 0..1 from a random start, and sorted by that position.
    """
    labels = dataset.y_train[members]
    place = np.empty(len(members))
    for c in np.unique(labels):
        at = np.flatnonzero(labels == c)
        place[rng.permutation(at)] = (np.arange(len(at)) + rng.random()) / len(at)
    return members[np.argsort(place, kind="stable")]


def _as_tuple(values: Any) -> Any:
    """A list or an array as a tuple, so that schemes can be hashed; anything else is left for `check` to refuse."""
    return tuple(values) if isinstance(values, list | np.ndarray) else values


def _as_index_tuples(name: str, lists: Any) -> tuple[tuple[int, ...], ...]:
    """Checked as arrays: one by one, the indices of a large data set would take seconds."""
    if isinstance(lists, str) or not isinstance(lists, Sequence | np.ndarray):
        raise ConfigError(f"{name} must be a list of lists, got {lists!r}")
    arrays = [np.asarray(own) for own in lists]
    for client, own in enumerate(arrays):
        if own.ndim != 1 or (own.size and own.dtype.kind not in "ui"):
            raise ConfigError(
                f"{name} must be a list of integers for each client, got {own.ndim} dimensions of {own.dtype} for "
                f"client {client}"
            )
    return tuple(tuple(own.tolist()) for own in arrays)
