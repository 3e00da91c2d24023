"""Ways to divide training samples by the group they belong to: a data set of a mixture, an attribute, or as given."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from pacfl.data.dataset import Dataset, Flags, Indices
from pacfl.data.schemes import Split, check_whole, split_at_random
from pacfl.errors import DataError
from pacfl.settings import suggestion


@dataclass(frozen=True)
class BySet:
    """Every client has samples of one data set of a mixture: counts[s] clients of set s, `size` samples each.

    per_class: as many samples of each class, where the set has enough of every class for all its clients. Otherwise,
    and without per_class, samples in the set's own class proportions. MIX-4: counts 32, 26, 28, 14 and size 500.
    """

    counts: tuple[int, ...]
    size: int
    per_class: bool = True
    minimum: int = 1
    remedy: ClassVar[str] = "use a larger size"

    def __post_init__(self) -> None:
        object.__setattr__(self, "counts", _as_tuple("counts", self.counts))
        for n in self.counts:
            check_whole("counts", n, least=0)
        check_whole("size", self.size)
        check_whole("minimum", self.minimum)

    def split(self, dataset: Dataset, n_clients: int, rng: np.random.Generator) -> Split:
        """The true_cluster is the set; a client's test set is the whole test set of its set."""
        if len(self.counts) != len(dataset.source_names) or sum(self.counts) != n_clients:
            raise DataError(
                f"counts must say how many of the {n_clients} clients each of {', '.join(dataset.source_names)} has, "
                f"got {list(self.counts)}, which are {sum(self.counts)} clients of {len(self.counts)} sets"
            )
        shards = [shard for source, n in enumerate(self.counts) for shard in self._shards(dataset, source, n, rng)]
        tests = [np.flatnonzero(dataset.source_test == source) for source in range(len(self.counts))]
        true_cluster = np.repeat(np.arange(len(self.counts), dtype=np.intp), self.counts)
        return Split(shards, true_cluster, [tests[source] for source in true_cluster])

    def _shards(self, dataset: Dataset, source: int, n_clients: int, rng: np.random.Generator) -> list[Indices]:
        if n_clients == 0:
            return []
        members = np.flatnonzero(dataset.source_train == source)
        if len(members) < n_clients * self.size:
            raise DataError(
                f"{n_clients} clients of {dataset.source_names[source]} want {self.size} samples each, it has "
                f"{len(members)}; use fewer clients or a size of at most {len(members) // n_clients}"
            )
        classes, counts = np.unique(dataset.y_train[members], return_counts=True)
        if self.per_class and self.size % len(classes):
            raise DataError(
                f"{self.size} samples cannot be as many of each of the {len(classes)} classes of "
                f"{dataset.source_names[source]}; use a multiple of {len(classes)}, or per_class = false"
            )
        if self.per_class and counts.min() >= n_clients * self.size // len(classes):
            sizes = np.full(n_clients, self.size // len(classes))
            parts = [split_at_random(members[dataset.y_train[members] == c], sizes, rng) for c in classes]
            return [np.sort(np.concatenate(of_client)) for of_client in zip(*parts, strict=True)]
        order = _proportional_order(members, dataset, rng)
        return [np.sort(order[i * self.size : (i + 1) * self.size]) for i in range(n_clients)]


@dataclass(frozen=True)
class ByAttribute:
    """Every client has samples with one of the attributes and none of the others; as many clients for each."""

    attributes: tuple[str, ...]
    minimum: int = 1
    remedy: ClassVar[str] = "use fewer clients or attributes that more samples have alone"

    def __post_init__(self) -> None:
        object.__setattr__(self, "attributes", _as_tuple("attributes", self.attributes))
        if not self.attributes or len(set(self.attributes)) < len(self.attributes):
            raise DataError(f"attributes must be different names, at least one, got {list(self.attributes)}")
        check_whole("minimum", self.minimum)

    def split(self, dataset: Dataset, n_clients: int, rng: np.random.Generator) -> Split:
        """The true cluster is the attribute; a client is tested on samples of its attribute, where they are known."""
        if n_clients < len(self.attributes):
            raise DataError(f"{n_clients} clients cannot have {len(self.attributes)} attributes; use more clients")
        owners = np.array_split(np.arange(n_clients), len(self.attributes))
        shards: list[Indices] = []
        for members, clients in zip(self._parts(dataset.attributes_train), owners, strict=True):
            sizes = np.array([len(part) for part in np.array_split(members, len(clients))])
            shards += split_at_random(members, sizes, rng)
        true_cluster = np.repeat(np.arange(len(owners), dtype=np.intp), [len(clients) for clients in owners])
        if not dataset.attributes_test:
            return Split(shards, true_cluster)
        tests = self._parts(dataset.attributes_test)
        return Split(shards, true_cluster, [tests[group] for group in true_cluster])

    def _parts(self, known: Mapping[str, Flags]) -> list[Indices]:
        """Samples that have one of the attributes alone, for each."""
        for name in self.attributes:
            if name not in known:
                raise DataError(f"the data have no attribute {name!r}{suggestion(name, known)}")
        flags = np.stack([known[name] for name in self.attributes])
        alone = flags.sum(axis=0) == 1
        return [np.flatnonzero(one & alone) for one in flags]


@dataclass(frozen=True)
class Given:
    """Shards as they are given: positions in the training data, and in the test data if these are given too."""

    indices: tuple[tuple[int, ...], ...]
    test_indices: tuple[tuple[int, ...], ...] | None = None
    minimum: int = 1
    remedy: ClassVar[str] = "give every client enough samples, or leave it out"

    def __post_init__(self) -> None:
        object.__setattr__(self, "indices", _as_shards("indices", self.indices))
        if self.test_indices is not None:
            object.__setattr__(self, "test_indices", _as_shards("test_indices", self.test_indices))
        check_whole("minimum", self.minimum)

    def split(self, dataset: Dataset, n_clients: int, rng: np.random.Generator) -> Split:  # noqa: ARG002 - as every scheme
        """The shards as given."""
        given = {"indices": self.indices, "test_indices": self.test_indices}
        for name, shards in given.items():
            if shards is not None and len(shards) != n_clients:
                raise DataError(f"{name} must have one list for each of {n_clients} clients, got {len(shards)}")
        tests = None if self.test_indices is None else [np.array(part, dtype=np.intp) for part in self.test_indices]
        return Split([np.array(part, dtype=np.intp) for part in self.indices], test_indices=tests)


def _proportional_order(members: Indices, dataset: Dataset, rng: np.random.Generator) -> Indices:
    """The members in a random order of which every run has the classes in the proportions of the whole.

    The samples of each class are spread evenly over 0..1 from a random start, and all are taken in that order.
    """
    labels = dataset.y_train[members]
    place = np.empty(len(members))
    for c in np.unique(labels):
        at = np.flatnonzero(labels == c)
        place[rng.permutation(at)] = (np.arange(len(at)) + rng.random()) / len(at)
    return members[np.argsort(place, kind="stable")]


def _as_tuple(name: str, values: object) -> tuple[object, ...]:
    if isinstance(values, str) or not isinstance(values, Sequence | np.ndarray):
        raise DataError(f"{name} must be a list, got {values!r}")
    return tuple(values)


def _as_shards(name: str, shards: object) -> tuple[tuple[int, ...], ...]:
    parts = []
    for shard in _as_tuple(name, shards):
        array = np.asarray(shard)
        if array.ndim != 1 or (array.size and array.dtype.kind not in "ui"):
            raise DataError(f"{name} must be one list of whole numbers for each client, got {array.dtype} in one")
        parts.append(tuple(int(i) for i in array))
    return tuple(parts)
