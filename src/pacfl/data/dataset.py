"""A data set: images or features with targets, for training and for testing."""

import hashlib
import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pacfl.data.targets import TargetArray, Targets, as_targets, check_range, check_targets, kind_of
from pacfl.errors import DataError

Pixels = NDArray[np.uint8 | np.float32]
Labels = NDArray[np.int64]  # classes
Indices = NDArray[np.intp]
Flags = NDArray[np.bool_]
Moments = NDArray[np.float64]  # (channels,) of images with channels, () without, (columns,) of tables
T = TypeVar("T")

# Samples turned into floats at a time: few enough for them to stay in the processor's cache.
BLOCK: Final = 128


@dataclass(frozen=True, eq=False)
class Dataset:
    """Training and test samples, checked at construction.

    x (n, h, w), (n, h, w, channels) or (n, features), uint8 or float32.
    y (n,) int64 classes in 0..n_classes-1, (n, labels) int64 that are 0 or 1, or (n,) or (n, values) float32;
    n_classes is 0 unless they are classes.
    source (n,) says which data set of a mixture a sample came from: the position of its name in source_names.
    attributes: name -> (n,) yes or no for every sample, where the data have any.
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

    def __post_init__(self) -> None:
        _check_samples(self.name, "x_train", self.x_train)
        _check_samples(self.name, "x_test", self.x_test)
        if self.x_train.shape[1:] != self.x_test.shape[1:] or self.x_train.dtype != self.x_test.dtype:
            raise DataError(
                f"{self.name}: training and test samples must have the same shape and type, got "
                f"{_kind(self.x_train)} and {_kind(self.x_test)}; resize or convert one of them"
            )
        _check_same_targets(self.name, self.y_train, self.y_test)
        for split, x in (("train", self.x_train), ("test", self.x_test)):
            check_targets(self.name, f"y_{split}", getattr(self, f"y_{split}"), len(x), self.n_classes)
            check_range(self.name, f"source_{split}", getattr(self, f"source_{split}"), len(x), len(self.source_names))
            for name, flags in getattr(self, f"attributes_{split}").items():
                if flags.shape != (len(x),) or flags.dtype != np.bool_:
                    raise DataError(
                        f"{self.name}: attribute {name!r} must be yes or no for each of {len(x)} samples of x_{split}, "
                        f"got shape {flags.shape} of {flags.dtype}"
                    )

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
        for array in (self.x_train, self.y_train, self.x_test, self.y_test):
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
) -> Dataset:
    """A data set of the user's own arrays: samples of uint8 stay, other numbers become float32.

    Targets are classes if they are (n,) integers, of which there are n_classes, or as many as the largest says. They
    are labels if they are (n, labels) integers 0 or 1, or yes and no. They are values if they are floats.

    >>> from_arrays([[0.0, 1.0], [1.0, 0.0]], [0, 1], [[0.5, 0.5]], [1]).n_classes
    2
    >>> from_arrays([[0.0, 1.0], [1.0, 0.0]], [0.5, 1.5], [[0.5, 0.5]], [1.0]).targets
    'values'
    """
    train, test = as_targets(name, "y_train", y_train), as_targets(name, "y_test", y_test)
    if n_classes is None:
        classes = kind_of(train) == kind_of(test) == "classes"
        n_classes = int(max(train.max(initial=0), test.max(initial=0))) + 1 if classes else 0
    return Dataset(
        name=name,
        x_train=_as_samples(name, "x_train", x_train),
        y_train=train,
        x_test=_as_samples(name, "x_test", x_test),
        y_test=test,
        n_classes=n_classes,
        source_train=np.zeros(len(train), dtype=np.intp),
        source_test=np.zeros(len(test), dtype=np.intp),
        source_names=(name,),
    )


def normalised(dataset: Dataset) -> Dataset:
    """The same data as float32 with mean 0 and standard deviation 1, for every source apart.

    Images have one mean and one standard deviation per channel, tables one per column. Both are measured on the
    source's own training samples; uint8 is first brought to 0..1. A column that is constant in training becomes 0.
    The channels of an image lie one after the other in memory, as models take them.
    """
    x_train, x_test = _empty_channels_first(dataset.x_train.shape), _empty_channels_first(dataset.x_test.shape)
    for source, name in enumerate(dataset.source_names):
        train = np.flatnonzero(dataset.source_train == source)
        mean, std = _moments(dataset.x_train, train, name)
        for x, rows, result in (
            (dataset.x_train, train, x_train),
            (dataset.x_test, np.flatnonzero(dataset.source_test == source), x_test),
        ):
            _map_blocks(partial(_normalise_block, x, mean, std, result), rows)
    return replace(dataset, x_train=_channels_last(x_train), x_test=_channels_last(x_test))


def _normalise_block(x: Pixels, mean: Moments, std: Moments, result: NDArray[np.float32], block: Indices) -> None:
    result[block] = _normalised_samples(x[block], mean, std)


def _empty_channels_first(shape: tuple[int, ...]) -> NDArray[np.float32]:
    return np.empty((shape[0], shape[3], *shape[1:3]) if len(shape) == 4 else shape, dtype=np.float32)


def _channels_last(x: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.moveaxis(x, 1, -1) if x.ndim == 4 else x


def _normalised_samples(x: Pixels, mean: Moments, std: Moments) -> NDArray[np.float32]:
    """Samples normalised, channels first.

    A channel of bytes has 256 values: each is computed once. Channels are written one by one, because writing an
    image at a time would jump through memory.
    """
    result = _empty_channels_first(x.shape)
    if x.dtype == np.uint8 and x.ndim > 2:
        values = _scaled(np.arange(256, dtype=np.uint8))[:, None]
        table = ((values - mean) / std).astype(np.float32)  # (256, channels)
        positions = x.astype(np.intp)
        if x.ndim == 3:
            return table[:, 0].take(positions)
        for c in range(x.shape[-1]):
            result[:, c] = table[:, c].take(positions[..., c])
        return result
    _channels_last(result)[...] = (_scaled(x) - mean) / std
    return result


def _moments(x: Pixels, rows: Indices, name: str) -> tuple[Moments, Moments]:
    """Mean and standard deviation of each channel or column over the rows; infinite for a constant column."""
    if len(rows) == 0:
        raise DataError(
            f"{name}: has no training samples to compute a mean and a standard deviation from; leave the source out"
        )
    mean = _mean_over_samples(x, rows, np.float64(0.0), power=1)
    std = np.sqrt(_mean_over_samples(x, rows, mean, power=2))
    if x.ndim == 2:
        # Compared, because the standard deviation of a constant is not exactly 0 if its mean had to be rounded
        varies = np.any(_map_blocks(lambda block: (x[block] != x[rows[0]]).any(axis=0), rows), axis=0)
        std = np.where(varies, std, np.inf)
        if not varies.any():
            raise DataError(f"{name}: the columns of the training samples do not vary and cannot be normalised")
    elif not np.all(std > 0):
        raise DataError(f"{name}: the training pixels of a channel do not vary and cannot be normalised; use raw ones")
    return mean, std


def _mean_over_samples(x: Pixels, rows: Indices, centre: Moments | np.float64, power: int) -> Moments:
    """Mean of (x - centre)^power over the rows and all pixels of a channel, or over the rows of a column."""
    total = np.zeros(x.shape[1:])
    for of_block in _map_blocks(lambda block: ((_scaled(x[block]) - centre) ** power).sum(axis=0), rows):
        total += of_block
    if x.ndim > 2:
        total = np.asarray(total.mean(axis=(0, 1) if x.ndim == 4 else None))
    return np.asarray(total / len(rows))


def _scaled(x: Pixels) -> NDArray[np.float64]:
    return x.astype(np.float64) * (1 / 255 if x.dtype == np.uint8 else 1.0)


def _map_blocks(work: Callable[[Indices], T], rows: Indices) -> list[T]:
    """The results for each block of rows, in order, computed by threads: numpy releases the GIL."""
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        return list(threads.map(work, [rows[start : start + BLOCK] for start in range(0, len(rows), BLOCK)]))


def _as_samples(name: str, what: str, x: ArrayLike) -> Pixels:
    array = np.asarray(x)
    if array.dtype.kind not in "uifb":
        raise DataError(f"{name}: {what} must be numbers, got {array.dtype}; convert it to uint8 or float32 first")
    return array if array.dtype == np.uint8 else array.astype(np.float32, copy=False)


def _check_samples(name: str, what: str, x: NDArray[Any]) -> None:
    if x.dtype not in (np.uint8, np.float32) or x.ndim not in (2, 3, 4) or 0 in x.shape:
        raise DataError(
            f"{name}: {what} must be (n, h, w), (n, h, w, channels) or (n, features) of uint8 or float32 with at least "
            f"one sample, got {_kind(x)}"
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
