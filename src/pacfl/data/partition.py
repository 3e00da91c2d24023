"""A data set split among clients."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from pacfl.data.dataset import Dataset, Indices
from pacfl.data.groups import ByAttribute, BySet, Given
from pacfl.data.schemes import Dirichlet, Iid, LabelSkew, QuantitySkew, Scheme
from pacfl.errors import ConfigError, DataError
from pacfl.settings import PositiveInt, build, check_value, suggestion

AnyScheme = LabelSkew | Dirichlet | Iid | QuantitySkew | BySet | ByAttribute | Given

SCHEMES: Final[Mapping[str, type[AnyScheme]]] = {
    "label-skew": LabelSkew,
    "dirichlet": Dirichlet,
    "iid": Iid,
    "quantity-skew": QuantitySkew,
    "by-set": BySet,
    "by-attribute": ByAttribute,
    "given": Given,
}


@dataclass(frozen=True, eq=False)
class Partition:
    """What each client has: the indices of its training and test samples, its classes, and its group if it is known.

    A training sample belongs to at most one client. Test samples may be shared, and so are the arrays of their
    indices; a client has none if the test data lack its classes.
    """

    train_indices: tuple[Indices, ...]
    test_indices: tuple[Indices, ...]
    owned: tuple[tuple[int, ...], ...]  # the classes of each client's training samples; none without classes
    true_cluster: Indices | None  # the group of each client

    @property
    def n_clients(self) -> int:
        """The number of clients."""
        return len(self.train_indices)


def partition(dataset: Dataset, scheme: Scheme, n_clients: int, rng: np.random.Generator) -> Partition:
    """The data set split by the scheme among n_clients clients. The same generator gives the same partition.

    A client owns the classes of its training samples. It is tested on all test samples of the classes it owns, or on
    all test samples if the targets are not classes, unless the scheme knows better: on all those of its data set, or of
    its attribute.
    """
    check_value("the number of clients", n_clients, PositiveInt)
    train, true_cluster, test = scheme.split(dataset, n_clients, rng)
    _check_indices("training", train, len(dataset.y_train))
    _check_minimum(scheme, train)
    owned = owned_classes(dataset, train)
    if test is None:
        test = _of_classes(dataset, owned)
    else:
        for indices in test:
            _check_indices("test", [indices], len(dataset.y_test))
    return Partition(tuple(train), tuple(test), owned, true_cluster)


def build_scheme(description: Mapping[str, object]) -> AnyScheme:
    """The scheme that is described by its kind and its settings.

    >>> build_scheme({"kind": "label-skew", "share": 0.2})
    LabelSkew(share=0.2, minimum=1)
    """
    kind = description.get("kind")
    if not isinstance(kind, str) or kind not in SCHEMES:
        raise ConfigError(f"there is no scheme of kind {kind!r}{suggestion(str(kind), SCHEMES)}")
    table = {key: value for key, value in description.items() if key != "kind"}
    return build(SCHEMES[kind], table, "scheme", f"scheme {kind}:")


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


def _check_minimum(scheme: Scheme, train: Sequence[Indices]) -> None:
    sizes = [len(indices) for indices in train]
    smallest = int(np.argmin(sizes))
    if sizes[smallest] < scheme.minimum:
        n_below = sum(size < scheme.minimum for size in sizes)
        raise DataError(
            f"{n_below} of {len(sizes)} clients would have less than {scheme.minimum} training samples "
            f"(client {smallest} has {sizes[smallest]}); {scheme.remedy}"
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
