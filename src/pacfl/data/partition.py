"""A data set split among clients."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, is_dataclass
from typing import Final, Literal, cast

import numpy as np

from pacfl import plugins
from pacfl.data.dataset import Dataset, Indices
from pacfl.data.display import count, extent, html_table, listing
from pacfl.data.drift import DataSwap
from pacfl.data.groups import ByAttribute, BySet, Given, Natural
from pacfl.data.schemes import Dirichlet, Iid, LabelSkew, QuantitySkew, Scheme, Split
from pacfl.errors import ConfigError, DataError
from pacfl.settings import PositiveInt, build, check_value, suggestion

TestSamples = Literal["owned", "proportional", "global"]
TestChoice = TestSamples | tuple[TestSamples, ...]  # the first of several is the primary one

SCHEMES: Final[Mapping[str, type[Scheme]]] = {
    "label-skew": LabelSkew,
    "dirichlet": Dirichlet,
    "iid": Iid,
    "quantity-skew": QuantitySkew,
    "by-set": BySet,
    "by-attribute": ByAttribute,
    "given": Given,
    "natural": Natural,
}


@dataclass(frozen=True, eq=False, repr=False)
class Partition:
    """What each client has: the indices of its training and test samples, its classes, and its group if it is known.

    A training sample belongs to at most one client. Test samples may be shared, and so are the arrays of their
    indices; a client has none if the test data lack its classes. test_indices are those of the primary kind of test
    samples, other_tests those of the other kinds, if several were asked for.
    """

    train_indices: tuple[Indices, ...]
    test_indices: tuple[Indices, ...]
    owned: tuple[tuple[int, ...], ...]  # the classes of each client's training samples; none without classes
    true_cluster: Indices | None  # the group of each client
    transforms: tuple[str, ...] | None = None  # what was done to each client's samples, where groups differ by it
    test: TestSamples = "owned"  # the primary kind
    other_tests: Mapping[TestSamples, tuple[Indices, ...]] = field(default_factory=dict)
    names: tuple[str, ...] | None = None  # of the clients, where the data have them
    swap: DataSwap | None = None  # of the data of some clients, in mid-run; all other fields are those before it

    @property
    def n_clients(self) -> int:
        """The number of clients."""
        return len(self.train_indices)

    @property
    def tests(self) -> tuple[TestSamples, ...]:
        """The kinds of test samples, the primary one first."""
        return self.test, *self.other_tests

    def true_cluster_in(self, round_: int) -> Indices | None:
        """The group of each client in a round, counted from 1."""
        if self.swap is None or self.true_cluster is None or round_ < self.swap.round:
            return self.true_cluster
        return self.true_cluster[self.swap.source]

    def __repr__(self) -> str:
        return f"Partition({self._summary()})"

    def _repr_html_(self) -> str:
        columns: dict[str, Sequence[object]] = {
            "client": self.names or range(self.n_clients),
            "training samples": [len(indices) for indices in self.train_indices],
            "test samples": [len(indices) for indices in self.test_indices],
            **{f"{kind} test samples": [len(own) for own in of] for kind, of in self.other_tests.items()},
        }
        if any(self.owned):
            columns["classes"] = [listing([str(c) for c in classes]) for classes in self.owned]
        if self.true_cluster is not None:
            columns["true cluster"] = self.true_cluster.tolist()
        if self.transforms is not None:
            columns["transform"] = self.transforms
        return html_table(f"Partition: {self._summary()}", tuple(columns), list(zip(*columns.values(), strict=True)))

    def _summary(self) -> str:
        facts = [
            count(self.n_clients, "client"),
            f"{extent(map(len, self.train_indices))} training samples each",
            f"{extent(map(len, self.test_indices))} test samples each",
            *(f"{extent(map(len, of))} {kind} test samples each" for kind, of in self.other_tests.items()),
        ]
        if any(self.owned):
            facts.append(f"{extent(map(len, self.owned))} classes each")
        if self.true_cluster is not None:
            facts.append(count(len(np.unique(self.true_cluster)), "true cluster"))
        return ", ".join(facts)


def partition(
    dataset: Dataset,
    scheme: Scheme,
    n_clients: int,
    rng: np.random.Generator,
    test: TestSamples | Sequence[TestSamples] = "owned",
    test_rng: np.random.Generator | None = None,
) -> Partition:
    """The data set split by the scheme among n_clients clients. The same generators give the same partition.

    A client owns the classes of its training samples. test says on which samples it is tested:
    - owned: all of its data set or attribute, or those given, if the scheme says so; else all of the classes that it
      owns, or all there are if the targets are not classes;
    - proportional: drawn from those, by test_rng if it is given. Classes have the same shares as in its training
      samples, and there are as many samples as that allows. Without classes, it is tested on the same share of all test
      samples as it has of the training samples, drawn at random;
    - global: all test samples.
    Of several kinds the first is the primary one, and every client has test samples of each.
    """
    check_value("the number of clients", n_clients, PositiveInt)
    kinds = kinds_of_tests("the choice of test samples", test)
    train, true_cluster, tests, names = Split(*scheme.split(dataset, n_clients, rng))
    if len(train) != n_clients:
        raise DataError(f"the scheme must split the samples among {n_clients} clients, got {len(train)}")
    _check_indices("training", train, len(dataset.y_train))
    _check_minimum(scheme, train)
    owned = owned_classes(dataset, train)
    if tests is None:
        tests = _of_classes(dataset, owned)
    for indices in {id(indices): indices for indices in tests}.values():
        _check_indices("test", [indices], len(dataset.y_test))
    found = {kind: _tests(kind, dataset, train, tests, test_rng or rng) for kind in kinds}
    first, *others = kinds
    return Partition(
        tuple(train),
        found[first],
        owned,
        true_cluster,
        test=first,
        other_tests={kind: found[kind] for kind in others},
        names=names,
    )


def kinds_of_tests(name: str, test: TestSamples | Sequence[TestSamples]) -> tuple[TestSamples, ...]:
    """One or several kinds of test samples as a tuple; refused if there are none, or one twice.

    >>> kinds_of_tests("test", "owned"), kinds_of_tests("test", ["owned", "global"])
    (('owned',), ('owned', 'global'))
    """
    if isinstance(test, list | tuple):
        check_value(name, tuple(test), TestChoice)
        if len(set(test)) < max(len(test), 1):
            raise ConfigError(f"{name} must be different kinds, at least one, got {list(test)}; name each kind once")
        return tuple(test)
    check_value(name, test, TestSamples)
    return (cast("TestSamples", test),)


def build_scheme(description: Mapping[str, object]) -> Scheme:
    """The scheme that is described by its kind and its settings.

    >>> build_scheme({"kind": "label-skew", "share": 0.2})
    LabelSkew(share=0.2, minimum=1)
    """
    kind = description.get("kind")
    found = find_scheme(kind)
    table = {key: value for key, value in description.items() if key != "kind"}
    if "groups" in table:
        raise ConfigError("groups come after the scheme: build_division gives both, and grouped makes them")
    return build(found, table, "scheme", f"scheme {kind}:")


def find_scheme(kind: object) -> type[Scheme]:
    """The dataclass of a kind of schemes: one of ours, of an entry point, or of an import path."""
    known = isinstance(kind, str) and (kind in SCHEMES or plugins.import_path("partitions", kind) is not None)
    if not isinstance(kind, str) or not known:
        names = (*SCHEMES, *plugins.offered("partitions"))
        raise ConfigError(f"there is no scheme of kind {kind!r}{suggestion(str(kind), names)}")
    found: type[Scheme] = plugins.find("partitions", kind, SCHEMES)
    if not (isinstance(found, type) and is_dataclass(found) and callable(getattr(found, "split", None))):
        raise ConfigError(
            f"the scheme {kind!r} is {found!r}, expected a dataclass with a method split(dataset, n_clients, rng) that "
            "returns a pacfl.data.Split"
        )
    return found


def owned_classes(dataset: Dataset, train: Sequence[Indices]) -> tuple[tuple[int, ...], ...]:
    """The classes of each client's training samples; none if the targets are not classes."""
    if dataset.targets != "classes":
        return ((),) * len(train)
    return tuple(tuple(int(c) for c in np.unique(dataset.y_train[indices])) for indices in train)


def _of_classes(dataset: Dataset, owned: Sequence[tuple[int, ...]]) -> list[Indices]:
    """Test samples of the classes of each client; clients with the same classes share one array."""
    if dataset.targets != "classes":
        return [np.arange(len(dataset.y_test))] * len(owned)
    of_classes = {classes: np.flatnonzero(np.isin(dataset.y_test, classes)) for classes in set(owned)}
    return [of_classes[classes] for classes in owned]


def _tests(
    kind: TestSamples,
    dataset: Dataset,
    train: Sequence[Indices],
    pools: Sequence[Indices],
    rng: np.random.Generator,
) -> tuple[Indices, ...]:
    """The test samples of each client by one kind; pools: those that it owns."""
    if kind == "global":
        return (np.arange(len(dataset.y_test)),) * len(train)
    if kind == "proportional":
        pairs = enumerate(zip(train, pools, strict=True))
        return tuple(_proportional(dataset, client, own, pool, rng) for client, (own, pool) in pairs)
    return tuple(pools)


def _proportional(dataset: Dataset, client: int, train: Indices, pool: Indices, rng: np.random.Generator) -> Indices:
    """Test samples from the pool with the class shares of the client's training samples, as many as there can be.

    The class that is scarcest for its share decides: all its samples are drawn, and of the others in proportion,
    rounded down.
    """
    if dataset.targets != "classes":
        n = max(1, round(len(train) / len(dataset.y_train) * len(dataset.y_test)))
        return np.sort(rng.permutation(pool)[:n])
    own = np.bincount(dataset.y_train[train], minlength=dataset.n_classes)
    there = np.bincount(dataset.y_test[pool], minlength=dataset.n_classes)
    classes = np.flatnonzero(own)
    if not there[classes].all():
        lacking = int(classes[there[classes] == 0][0])
        raise DataError(
            f"client {client} trains on class {lacking}, of which there are no test samples for it: its shares of "
            "classes cannot be had; use test = 'owned'"
        )
    scarcest = classes[np.argmin(there[classes] / own[classes])]
    sizes = own * there[scarcest] // own[scarcest]
    drawn = [rng.permutation(pool[dataset.y_test[pool] == c])[: sizes[c]] for c in classes]
    return np.sort(np.concatenate(drawn))


def _check_minimum(scheme: Scheme, train: Sequence[Indices]) -> None:
    sizes = [len(indices) for indices in train]
    smallest = int(np.argmin(sizes))
    minimum = getattr(scheme, "minimum", 1)  # plug-ins need not have one
    if sizes[smallest] < minimum:
        n_below = sum(size < minimum for size in sizes)
        raise DataError(
            f"{n_below} of {len(sizes)} clients would have less than {minimum} training samples "
            f"(client {smallest} has {sizes[smallest]}); {getattr(scheme, 'remedy', 'change the scheme')}"
        )


def _check_indices(what: str, of_clients: Sequence[Indices], n: int) -> None:
    indices = np.concatenate(of_clients)
    if not len(indices):
        return
    if indices.min() < 0 or indices.max() >= n:
        raise DataError(f"indices of {what} samples must lie in 0..{n - 1}, got {indices.min()}..{indices.max()}")
    uses = np.bincount(indices, minlength=n)
    if uses.max() > 1:
        raise DataError(f"a {what} sample must be used at most once, got {int((uses > 1).sum())} used more often")
