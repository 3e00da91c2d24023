"""A data set divided among clients."""

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from typing import Final

import numpy as np

from pacfl.data.dataset import Dataset, Indices
from pacfl.data.groups import ByAttribute, BySet, Given
from pacfl.data.schemes import Dirichlet, Iid, LabelSkew, QuantitySkew, Scheme, check_whole
from pacfl.errors import DataError
from pacfl.settings import suggestion

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
    """What each client has: positions in the training data and in the test data, classes, and the group if known.

    A training sample belongs to at most one client. Test samples may be shared, and so are the arrays of positions;
    a client has none if the test data lack its classes.
    """

    train_indices: tuple[Indices, ...]
    test_indices: tuple[Indices, ...]
    owned: tuple[tuple[int, ...], ...]
    true_cluster: Indices | None

    @property
    def n_clients(self) -> int:
        """The number of clients."""
        return len(self.train_indices)


def partition(dataset: Dataset, scheme: Scheme, n_clients: int, rng: np.random.Generator) -> Partition:
    """The data set divided by the scheme among n_clients clients. The same generator gives the same division.

    A client owns the classes of its training samples. Its test samples are all those of the classes it owns, unless
    the scheme says better: all those of its data set, or of its attribute.
    """
    check_whole("the number of clients", n_clients)
    shards, true_cluster, test_indices = scheme.split(dataset, n_clients, rng)
    _check_positions("training", shards, len(dataset.y_train))
    _check_minimum(scheme, shards)
    owned = tuple(tuple(int(c) for c in np.unique(dataset.y_train[shard])) for shard in shards)
    if test_indices is None:
        test_indices = _of_classes(dataset, owned)
    else:
        for shard in test_indices:
            _check_positions("test", [shard], len(dataset.y_test))
    return Partition(tuple(shards), tuple(test_indices), owned, true_cluster)


def build_scheme(description: Mapping[str, object]) -> AnyScheme:
    """The scheme that is described by its kind and its numbers.

    >>> build_scheme({"kind": "label-skew", "share": 0.2})
    LabelSkew(share=0.2, minimum=1)
    """
    kind = description.get("kind")
    if not isinstance(kind, str) or kind not in SCHEMES:
        raise DataError(f"there is no scheme of kind {kind!r}{suggestion(str(kind), SCHEMES)}")
    scheme = SCHEMES[kind]
    known = {field.name: field for field in fields(scheme)}
    given = {key.replace("-", "_"): value for key, value in description.items() if key != "kind"}
    for key in given:
        if key not in known:
            raise DataError(f"the scheme {kind} has no {key!r}{suggestion(key, known)}")
    lacking = [name for name, field in known.items() if field.default is MISSING and name not in given]
    if lacking:
        raise DataError(f"the scheme {kind} needs {', '.join(lacking)}{suggestion('', known)}")
    return scheme(**given)  # type: ignore[arg-type]  # checked by the scheme itself


def _of_classes(dataset: Dataset, owned: Sequence[tuple[int, ...]]) -> list[Indices]:
    """Test samples of the classes of each client; clients with the same classes share one array."""
    of_classes = {classes: np.flatnonzero(np.isin(dataset.y_test, classes)) for classes in set(owned)}
    return [of_classes[classes] for classes in owned]


def _check_minimum(scheme: Scheme, shards: Sequence[Indices]) -> None:
    sizes = [len(shard) for shard in shards]
    poorest = int(np.argmin(sizes))
    if sizes[poorest] < scheme.minimum:
        n_poor = sum(size < scheme.minimum for size in sizes)
        raise DataError(
            f"{n_poor} of {len(sizes)} clients would have less than {scheme.minimum} training samples "
            f"(client {poorest} has {sizes[poorest]}); {scheme.remedy}"
        )


def _check_positions(part: str, shards: Sequence[Indices], n: int) -> None:
    positions = np.concatenate(shards)
    if not len(positions):
        return
    if positions.min() < 0 or positions.max() >= n:
        raise DataError(f"{part} samples are at 0..{n - 1}, got positions {positions.min()}..{positions.max()}")
    uses = np.bincount(positions, minlength=n)
    if uses.max() > 1:
        raise DataError(f"a {part} sample must be used at most once, got {int((uses > 1).sum())} used more often")
