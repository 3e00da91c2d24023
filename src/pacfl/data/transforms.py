"""Known groups of clients: after any partition, the samples of each group are transformed in a way of its own.

A transform is a row of `TRANSFORMS` and a field of `Groups`: from its setting, the data and a generator it makes its
options. Each option is a name and a function of samples and targets, None if it changes nothing.
"""

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, Final, NamedTuple

import numpy as np

from pacfl.data.dataset import Dataset, Indices, Pixels
from pacfl.data.partition import Partition, build_scheme, owned_classes
from pacfl.data.schemes import Scheme, check_classes
from pacfl.data.styles import Style, restyled
from pacfl.data.subset import attribute_rows
from pacfl.data.targets import TargetArray
from pacfl.errors import ConfigError, DataError
from pacfl.settings import PositiveInt, Within, build, check, hyphened

Samples = tuple[Pixels, TargetArray]
Change = Callable[[Pixels, TargetArray], Samples]


class Option(NamedTuple):
    """One of the ways in which a transform changes samples."""

    name: str
    change: Change | None  # None: samples stay as they are
    of_samples: bool = True  # False: the targets alone are changed


@dataclass(frozen=True)
class Groups:
    """How groups of clients differ: every combination of the options is a group.

    rotate: degrees, counter-clockwise, by which the images of a group are rotated. Other than multiples of 90 are
    interpolated, and corners that come from outside are 0.
    permute_labels: the number of ways to number the classes, of which no two agree on any class; the first leaves
    them as they are.
    style: how the images of a group look, of `STYLES`.
    mixed: the share of its samples that each client has from a second group, drawn for it.
    """

    rotate: tuple[float, ...] | None = None
    permute_labels: PositiveInt | None = None
    style: tuple[Style, ...] | None = None
    mixed: Annotated[float, Within(0, 0.5, below=True)] = 0.0

    def __post_init__(self) -> None:
        for name in ("rotate", "style"):
            if isinstance(listed := getattr(self, name), list):
                object.__setattr__(self, name, tuple(listed))
        check(self)
        if all(getattr(self, name) is None for name in TRANSFORMS):
            raise ConfigError(f"groups differ by {' or '.join(hyphened(TRANSFORMS))}; got none of them")
        if self.style is not None and len(set(self.style)) < max(len(self.style), 1):
            raise ConfigError(f"style must be different styles, at least one, got {list(self.style)}")
        if self.rotate is not None and len({degrees % 360 for degrees in self.rotate}) < max(len(self.rotate), 1):
            raise ConfigError(f"rotate must be different angles, at least one, got {list(self.rotate)}")


def build_division(description: Mapping[str, object]) -> tuple[Scheme, Groups | None]:
    """The scheme that is described by its kind and its settings, and the groups on top of it, if there are any.

    >>> build_division({"kind": "iid", "groups": {"rotate": [0, 90]}})
    (Iid(minimum=1), Groups(rotate=(0.0, 90.0), permute_labels=None, style=None, mixed=0.0))
    """
    scheme = build_scheme({key: value for key, value in description.items() if key != "groups"})
    if "groups" not in description:
        return scheme, None
    return scheme, build(Groups, description["groups"], "groups", "scheme groups:")


def grouped(
    dataset: Dataset, clients: Partition, groups: Groups, rng: np.random.Generator
) -> tuple[Dataset, Partition]:
    """The clients put into groups of equal size at random, and the data set with the samples of each as its group's.

    Training and test samples are transformed. The true cluster is the group, within the true cluster of the partition
    if that has one; of clients with samples of two groups, it is the one of most. A test sample that clients of several
    groups share becomes one sample for each group.
    """
    used = {name: setting for name in TRANSFORMS if (setting := getattr(groups, name)) is not None}
    place = rng.permutation(clients.n_clients)
    options = [TRANSFORMS[name](setting, dataset, rng) for name, setting in used.items()]
    combined = list(itertools.product(*options))
    if len(combined) > clients.n_clients:
        raise DataError(
            f"{clients.n_clients} clients cannot be of {len(combined)} groups; use more clients or fewer options"
        )
    group_of = place % len(combined)
    names = [
        ", ".join(f"{name} {option.name}" for name, option in zip(hyphened(used), chosen, strict=True))
        for chosen in combined
    ]
    of_client = [names[group] for group in group_of]
    pieces = _pieces(clients, group_of)
    if groups.mixed:
        pieces, second = _mixed(pieces, groups.mixed, len(combined), rng)
        of_client = [f"{own}; {groups.mixed:.0%} {names[s]}" for own, s in zip(of_client, second, strict=True)]
    changed, (tests, *others) = _transformed(dataset, clients, pieces, combined)
    own = 0 if clients.true_cluster is None else clients.true_cluster
    return changed, Partition(
        clients.train_indices,
        tests,
        owned_classes(changed, clients.train_indices),
        np.unique(own * len(combined) + group_of, return_inverse=True)[1].astype(np.intp),
        tuple(of_client),
        clients.test,
        dict(zip(clients.other_tests, others, strict=True)),
        clients.names,
    )


class Piece(NamedTuple):
    """Samples of one client that are of one group."""

    client: int
    group: int
    train: Indices
    tests: tuple[Indices, ...]  # by kind


def _pieces(clients: Partition, group_of: Indices) -> list[Piece]:
    """All samples of a client are of its group."""
    kinds = zip(clients.test_indices, *clients.other_tests.values(), strict=True)
    whole = zip(range(clients.n_clients), group_of.tolist(), clients.train_indices, kinds, strict=True)
    return [Piece(*one) for one in whole]


def _mixed(pieces: list[Piece], share: float, n_groups: int, rng: np.random.Generator) -> tuple[list[Piece], list[int]]:
    """Every client's piece as two: about a share of the samples of each kind is of a second group; and that group."""
    if n_groups < 2:
        raise DataError("clients are mixed of two groups, got one group; give more options, or leave out mixed")
    found, second = [], []
    for one in pieces:
        other = (one.group + int(rng.integers(1, n_groups))) % n_groups
        moved = [rng.random(len(rows)) < share for rows in (one.train, *one.tests)]
        for group, chosen in ((one.group, [~flags for flags in moved]), (other, moved)):
            train, *tests = (rows[flags] for rows, flags in zip((one.train, *one.tests), chosen, strict=True))
            found.append(Piece(one.client, group, train, tuple(tests)))
        second.append(other)
    return found, second


def _transformed(
    dataset: Dataset, clients: Partition, pieces: list[Piece], combined: list[tuple[Option, ...]]
) -> tuple[Dataset, list[tuple[Indices, ...]]]:
    """The data set with transformed samples, and for each kind of tests where those of each client are in it."""
    members = [[one for one in pieces if one.group == group] for group in range(len(combined))]
    x_train, y_train = dataset.x_train, dataset.y_train.copy()
    if any(_changes_samples(chosen) for chosen in combined):
        x_train = x_train.copy()
    for chosen, own in zip(combined, members, strict=True):
        rows = np.concatenate([one.train for one in own])
        if _changes_samples(chosen):
            x_train[rows], y_train[rows] = _apply(chosen, x_train[rows], y_train[rows])
        else:
            _, y_train[rows] = _apply(chosen, x_train[:0], y_train[rows])
    changed = replace(dataset, x_train=x_train, y_train=y_train)
    kinds = [clients.test_indices, *clients.other_tests.values()]
    needed = [np.unique(np.concatenate([tests for one in own for tests in one.tests])) for own in members]
    rows = np.concatenate(needed)
    if not len(rows):
        return changed, kinds
    x_test, y_test = np.empty((len(rows), *dataset.shape), dataset.x_test.dtype), dataset.y_test[rows]
    moved: list[list[list[Indices]]] = [[[] for _ in range(clients.n_clients)] for _ in kinds]
    start = 0
    for chosen, own, some in zip(combined, members, needed, strict=True):
        block = slice(start, start + len(some))
        x_test[block], y_test[block] = _apply(chosen, dataset.x_test[some], y_test[block])
        shared = {id(tests): tests for one in own for tests in one.tests}  # one array for many clients
        places = {key: start + np.searchsorted(some, indices) for key, indices in shared.items()}
        for one in own:
            for of_kind, tests in zip(moved, one.tests, strict=True):
                of_kind[one.client].append(places[id(tests)])
        start += len(some)
    changed = replace(
        changed,
        x_test=x_test,
        y_test=y_test,
        source_test=dataset.source_test[rows],
        attributes_test=attribute_rows(dataset.attributes_test, rows),
        natural=None if dataset.natural is None else dataset.natural.rows(np.arange(len(y_train)), rows),
    )
    return changed, [tuple(own[0] if len(own) == 1 else np.concatenate(own) for own in of_kind) for of_kind in moved]


def _changes_samples(chosen: tuple[Option, ...]) -> bool:
    return any(option.change is not None and option.of_samples for option in chosen)


def _apply(chosen: tuple[Option, ...], x: Pixels, y: TargetArray) -> Samples:
    for option in chosen:
        if option.change is not None:
            x, y = option.change(x, y)
    return x, y


def _rotations(degrees: tuple[float, ...], dataset: Dataset, rng: np.random.Generator) -> list[Option]:  # noqa: ARG001
    if len(dataset.shape) == 1:
        raise DataError(f"{dataset.name}: a table cannot be rotated; groups of tables differ by permute-labels")
    height, width = dataset.shape[:2]
    for angle in degrees:
        if angle % 180 == 90 and height != width:
            raise DataError(f"{dataset.name}: images of {height}x{width} cannot be rotated by {angle:g} degrees")
    return [Option(f"{angle:g}", _rotation(angle) if angle % 360 else None) for angle in degrees]


def _rotation(degrees: float) -> Change:
    def rotate(x: Pixels, y: TargetArray) -> Samples:
        if degrees % 90 == 0:
            return np.ascontiguousarray(np.rot90(x, int(degrees // 90) % 4, axes=(1, 2))), y
        from scipy import ndimage  # only here: it takes a while to import

        return ndimage.rotate(x, degrees, axes=(2, 1), reshape=False, order=1), y

    return rotate


def _label_maps(n_maps: int, dataset: Dataset, rng: np.random.Generator) -> list[Option]:
    """Class c becomes that which follows it by so many places in a random order of all classes."""
    check_classes(dataset, "permute-labels changes", "leave it out")
    if n_maps > dataset.n_classes:
        raise DataError(
            f"{dataset.name}: {dataset.n_classes} classes can be numbered in {dataset.n_classes} ways of which no two "
            f"agree on a class, got permute-labels = {n_maps}"
        )
    order = rng.permutation(dataset.n_classes)
    maps = [np.empty_like(order) for _ in range(n_maps)]
    for shift, one in enumerate(maps):
        one[order] = np.roll(order, -shift)
    return [
        Option(str(shift), _relabelling(one) if shift else None, of_samples=False) for shift, one in enumerate(maps)
    ]


def _relabelling(new: Indices) -> Change:
    return lambda x, y: (x, new[y].astype(np.int64))


def _styles(styles: tuple[Style, ...], dataset: Dataset, rng: np.random.Generator) -> list[Option]:  # noqa: ARG001
    return [Option(style, None if style == "plain" else _restyling(restyled(style, dataset))) for style in styles]


def _restyling(change: Callable[[Pixels], Pixels]) -> Change:
    return lambda x, y: (change(x), y)


TRANSFORMS: Final[Mapping[str, Callable[[Any, Dataset, np.random.Generator], list[Option]]]] = {
    "rotate": _rotations,
    "permute_labels": _label_maps,
    "style": _styles,
}
