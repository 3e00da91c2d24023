"""A data set: images or features with targets, for training and for testing."""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pacfl.data.display import count, html_table, listing
from pacfl.data.natural import NaturalClients, check_natural
from pacfl.data.targets import SINGULAR, TargetArray, Targets, as_targets, check_range, check_targets, kind_of
from pacfl.errors import DataError

Pixels = NDArray[np.uint8 | np.float32 | np.int64]
Labels = NDArray[np.int64]  # classes
Indices = NDArray[np.intp]
Flags = NDArray[np.bool_]
Channels = Literal["last", "first"]

COMMON_CHANNELS: Final = (1, 3)  # of images; with transparency 4


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """Training and test samples, checked at construction.

    x (n, h, w), (n, h, w, channels) or (n, features), uint8, float32 or int64.
    y (n,) int64 classes in 0..n_classes-1, (n, labels) int64 that are 0 or 1, or (n,) or (n, values) float32;
    n_classes is 0 unless they are classes.
    source (n,) says which data set of a mixture a sample came from: the position of its name in source_names.
    attributes: name -> (n,) yes or no for every sample, where the data have any.
    natural: whose the samples are, where the data come from several clients.
    columns: names of the features of tables, each less a centre, over a scale, on which all clients agreed by a schema.
    """

    name: str
    x_train: Pixels
    y_train: TargetArray
    x_test: Pixels
    y_test: TargetArray
    n_classes: int
    source_train: Indices
    source_test: Indices
    source_names: tuple[str, ...]
    attributes_train: Mapping[str, Flags] = field(default_factory=dict)
    attributes_test: Mapping[str, Flags] = field(default_factory=dict)
    natural: NaturalClients | None = None
    columns: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        _check_samples(self.name, "x_train", self.x_train)
        _check_samples(self.name, "x_test", self.x_test)
        if self.x_train.shape[1:] != self.x_test.shape[1:] or self.x_train.dtype != self.x_test.dtype:
            raise DataError(
                f"{self.name}: training and test samples must have the same shape and type, got "
                f"{_kind(self.x_train)} and {_kind(self.x_test)}; resize or convert one of them"
            )
        _check_same_targets(self.name, self.y_train, self.y_test)
        if self.columns is not None and self.shape != (len(self.columns),):
            raise DataError(f"{self.name}: has {len(self.columns)} names of columns, and samples of shape {self.shape}")
        if self.natural is not None:
            check_natural(self.name, self.natural, len(self.x_train), len(self.x_test))
        for split, x in (("train", self.x_train), ("test", self.x_test)):
            check_targets(self.name, f"y_{split}", getattr(self, f"y_{split}"), len(x), self.n_classes)
            check_range(self.name, f"source_{split}", getattr(self, f"source_{split}"), len(x), len(self.source_names))
            for name, flags in getattr(self, f"attributes_{split}").items():
                if flags.shape != (len(x),) or flags.dtype != np.bool_:
                    raise DataError(
                        f"{self.name}: attribute {name!r} must be yes or no for each of {len(x)} samples of x_{split}, "
                        f"got shape {flags.shape} of {flags.dtype}"
                    )

    def __repr__(self) -> str:
        facts = "; ".join(f"{name} {value}" for name, value in self._facts().items())
        return f"Dataset({listing([self.name])}: {facts})"

    def _repr_html_(self) -> str:
        return html_table(f"Dataset {self.name}", (), list(self._facts().items()))

    def _facts(self) -> dict[str, str]:
        """What a user wants to know at a glance."""
        facts = {
            "samples": f"{len(self.y_train):,} for training, {len(self.y_test):,} for testing",
            "shape": f"{self.shape} of {self.x_train.dtype}",
            "targets": count(self.n_outputs, SINGULAR[self.targets], self.targets),
        }
        if len(self.source_names) > 1:
            facts["sources"] = listing(self.source_names)
        if self.natural is not None:
            facts["clients"] = listing(self.natural.names)
        if self.attributes_train:
            facts["attributes"] = listing(list(self.attributes_train))
        return facts

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one sample."""
        return self.x_train.shape[1:]

    @property
    def targets(self) -> Targets:
        """The kind of targets: one class, several labels or values."""
        return kind_of(self.y_train)

    @property
    def n_outputs(self) -> int:
        """How many outputs a model has: one for each class, label or value."""
        if self.targets == "classes":
            return self.n_classes
        return self.y_train.shape[1] if self.y_train.ndim == 2 else 1

    @cached_property
    def digest(self) -> str:
        """A hash of all samples and targets."""
        digest = hashlib.blake2b(digest_size=16)
        for array in (*_digested(self.x_train), self.y_train, *_digested(self.x_test), self.y_test):
            digest.update(f"{array.dtype} {array.shape}".encode())
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()


def from_arrays(
    x_train: ArrayLike,
    y_train: ArrayLike,
    x_test: ArrayLike,
    y_test: ArrayLike,
    name: str = "arrays",
    n_classes: int | None = None,
    channels: Channels = "last",
    natural: NaturalClients | None = None,
    columns: tuple[str, ...] | None = None,
) -> Dataset:
    """A data set of the user's own arrays: samples of uint8 stay, other integers become int64, other numbers float32.

    Images with channels are (n, h, w, channels), or (n, channels, h, w) with channels="first". The data set has them
    last.
    Targets are classes if they are (n,) integers, of which there are n_classes, or as many as the largest says. They
    are labels if they are (n, labels) integers 0 or 1, or yes and no. They are values if they are floats.
    natural: whose the samples are, from `natural_clients`, for the scheme natural.
    columns: names of the features of tables that a schema encoded; PACFL then compares columns too.

    >>> from_arrays([[0.0, 1.0], [1.0, 0.0]], [0, 1], [[0.5, 0.5]], [1]).n_classes
    2
    >>> from_arrays([[0.0, 1.0], [1.0, 0.0]], [0.5, 1.5], [[0.5, 0.5]], [1.0]).targets
    'values'
    """
    if channels not in get_args(Channels):
        raise DataError(f"{name}: channels must be 'last' or 'first', got {channels!r}")
    samples = _as_samples(name, "x_train", x_train, channels), _as_samples(name, "x_test", x_test, channels)
    if {x.dtype.kind for x in samples} == {"i", "f"}:
        samples = samples[0].astype(np.float32), samples[1].astype(np.float32)
    train, test = as_targets(name, "y_train", y_train), as_targets(name, "y_test", y_test)
    if n_classes is None:
        classes = kind_of(train) == kind_of(test) == "classes"
        n_classes = int(max(train.max(initial=0), test.max(initial=0))) + 1 if classes else 0
    return Dataset(
        name=name,
        x_train=samples[0],
        y_train=train,
        x_test=samples[1],
        y_test=test,
        n_classes=n_classes,
        source_train=np.zeros(len(train), dtype=np.intp),
        source_test=np.zeros(len(test), dtype=np.intp),
        source_names=(name,),
        natural=natural,
        columns=columns,
    )


def _as_samples(name: str, what: str, x: ArrayLike, channels: Channels) -> Pixels:
    array = _channels_last(name, what, np.asarray(x), channels)
    if array.dtype.kind not in "uifb":
        raise DataError(f"{name}: {what} must be numbers, got {array.dtype}; convert it to uint8 or float32 first")
    if array.dtype == np.uint8:
        return array
    if array.dtype == np.uint64 and array.size and array.max() > np.iinfo(np.int64).max:
        raise DataError(
            f"{name}: {what} has integers up to {array.max()}, too large for int64; convert them to float32"
        )
    return array.astype(np.int64 if array.dtype.kind in "ui" else np.float32, copy=False)


def _channels_last(name: str, what: str, x: NDArray[Any], channels: Channels) -> NDArray[Any]:
    """Images with their channels last; refused if their shape says that the channels are elsewhere."""
    if x.ndim != 4:
        return x
    here, elsewhere, other = (1, 3, "last") if channels == "first" else (3, 1, "first")
    if x.shape[elsewhere] in COMMON_CHANNELS and x.shape[here] not in (*COMMON_CHANNELS, 4):
        example = "(n, h, w, channels)" if channels == "first" else "(n, channels, h, w)"
        raise DataError(
            f"{name}: {what} has shape {x.shape}, which looks like {example}; give channels={other!r}"
            + ("" if channels == "first" else ", or move the channels first if the images really are so low")
        )
    return np.moveaxis(x, 1, -1) if channels == "first" else x


def _digested(x: Pixels) -> Iterator[Pixels]:
    """What the digest of samples is made of.

    Integers count as float32, as which they were stored once, so that results remain those of their data; integers that
    float32 cannot represent count in full.
    """
    if x.dtype != np.int64:
        yield x
        return
    rounded = x.astype(np.float32)
    yield rounded
    if not np.array_equal(rounded.astype(np.float64), x):
        yield x


def _check_samples(name: str, what: str, x: NDArray[Any]) -> None:
    if x.dtype not in (np.uint8, np.float32, np.int64) or x.ndim not in (2, 3, 4) or 0 in x.shape:
        raise DataError(
            f"{name}: {what} must be (n, h, w), (n, h, w, channels) or (n, features) of uint8, float32 or int64 with "
            f"at least one sample, got {_kind(x)}"
        )
    # The sum of finite float32 numbers is finite in float64, and needs no mask as large as the data
    if x.dtype == np.float32 and not np.isfinite(x.sum(dtype=np.float64)):
        raise DataError(f"{name}: {what} must be finite, got NaN or infinity; drop or fill such samples")


def _check_same_targets(name: str, train: NDArray[Any], test: NDArray[Any]) -> None:
    if kind_of(train) != kind_of(test) or train.shape[1:] != test.shape[1:]:
        raise DataError(
            f"{name}: training and test samples must have the same kind of targets, got {kind_of(train)}, "
            f"{_kind(train)}, and {kind_of(test)}, {_kind(test)}; convert one of them"
        )


def _kind(x: NDArray[Any]) -> str:
    return f"shape {x.shape} of {x.dtype}"
