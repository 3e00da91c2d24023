"""Samples as models take them: mean 0 and standard deviation 1, or the values as they are."""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from pacfl.data.dataset import Dataset, Indices, Pixels
from pacfl.errors import DataError

Normalise = Literal["auto", "none", "feature", "channel"]
Moments = NDArray[np.float64]  # (channels,) or () of channels; the shape of one sample of features
T = TypeVar("T")

# Samples turned into floats at a time: few enough for them to stay in the processor's cache.
BLOCK: Final = 128


@dataclass(frozen=True, eq=False)
class Normalisation:
    """How the samples of one source are normalised: (x × unit - mean) / scale, computed in float64, as float32.

    mean and scale have the shape of one sample (h, w), (h, w, channels) or (features,); or (channels,) or () if all
    pixels of a channel share them. Channels are last. A scale is infinite where the training samples do not vary: such
    a feature becomes 0. Without mean and scale, bytes are multiplied by the unit, and others stay as they are.
    """

    unit: float  # 1/255 for bytes, 1 for others
    mean: Moments | None = None
    scale: Moments | None = None

    def apply(self, x: Pixels) -> NDArray[np.float32 | np.int64]:
        """Samples (n, ...) as models take them, channels last."""
        if self.mean is None and x.dtype != np.uint8:
            return x  # type: ignore[return-value]  # anything but bytes
        return _channels_last(self.channels_first(x))

    def channels_first(self, x: Pixels) -> NDArray[np.float32]:
        """The same, (n, channels, h, w) if there are channels.

        A channel of bytes has 256 values: each is computed once. Channels are written one by one, because writing an
        image at a time would jump through memory.
        """
        result = _empty_channels_first(x.shape)
        mean = np.zeros(()) if self.mean is None else self.mean
        scale = np.ones(()) if self.scale is None else self.scale
        if x.dtype == np.uint8 and x.ndim > 2 and mean.ndim < 2:
            values = self._scaled(np.arange(256, dtype=np.uint8))[:, None]
            table = ((values - mean) / scale).astype(np.float32)  # (256, channels), or (256, 1) for all channels
            positions = x.astype(np.intp)
            if x.ndim == 3:
                return table[:, 0].take(positions)
            for c in range(x.shape[-1]):
                result[:, c] = table[:, c % table.shape[1]].take(positions[..., c])
            return result
        _channels_last(result)[...] = (self._scaled(x) - mean) / scale
        return result

    def _scaled(self, x: Pixels) -> NDArray[np.float64]:
        return _as_floats(x) * self.unit


def normalised(dataset: Dataset, how: Normalise = "auto") -> Dataset:
    """The same data with every source normalised apart, as `normalisation` says.

    The channels of an image lie one after the other in memory, as models take them.
    """
    by_source = normalisation(dataset, how)
    if by_source[0].mean is None and dataset.x_train.dtype != np.uint8:
        return dataset
    x_train, x_test = _empty_channels_first(dataset.x_train.shape), _empty_channels_first(dataset.x_test.shape)
    for source, own in enumerate(by_source):
        for x, sources, result in (
            (dataset.x_train, dataset.source_train, x_train),
            (dataset.x_test, dataset.source_test, x_test),
        ):
            _map_blocks(partial(_normalise_block, x, own, result), np.flatnonzero(sources == source))
    return replace(dataset, x_train=_channels_last(x_train), x_test=_channels_last(x_test))


def normalisation(dataset: Dataset, how: Normalise = "auto") -> tuple[Normalisation, ...]:
    """The normalisation of every source, measured on its training samples; uint8 is first brought to 0..1.

    feature: a mean and a standard deviation for each column of a table, or each position of an image; where the
    training samples are constant, values become 0. channel: one of both for each channel of images. auto: channel for
    images, feature for tables. none: values as they are, for example tokens.
    """
    unit = 1 / 255 if dataset.x_train.dtype == np.uint8 else 1.0
    if how == "none":
        return (Normalisation(unit),) * len(dataset.source_names)
    table = len(dataset.shape) == 1
    if how == "channel" and table:
        raise DataError(f"{dataset.name}: a table has no channels to normalise; use normalise = 'feature' or 'none'")
    by_feature = table if how == "auto" else how == "feature"
    rows = (np.flatnonzero(dataset.source_train == source) for source in range(len(dataset.source_names)))
    return tuple(
        Normalisation(unit, *_moments(dataset.x_train, own, name, unit, by_feature))
        for name, own in zip(dataset.source_names, rows, strict=True)
    )


def _normalise_block(x: Pixels, own: Normalisation, result: NDArray[np.float32], block: Indices) -> None:
    result[block] = own.channels_first(x[block])


def _empty_channels_first(shape: tuple[int, ...]) -> NDArray[np.float32]:
    return np.empty((shape[0], shape[3], *shape[1:3]) if len(shape) == 4 else shape, dtype=np.float32)


def _channels_last(x: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.moveaxis(x, 1, -1) if x.ndim == 4 else x


def _moments(x: Pixels, rows: Indices, name: str, unit: float, by_feature: bool) -> tuple[Moments, Moments]:
    """Mean and standard deviation of each feature or channel over the rows; infinite for a constant feature."""
    if len(rows) == 0:
        raise DataError(
            f"{name}: has no training samples to compute a mean and a standard deviation from; leave the source out"
        )
    average = partial(_mean_over_samples, x, rows, unit, by_feature)
    mean = average(np.float64(0.0), 1)
    std = np.sqrt(average(mean, 2))
    if by_feature:
        # Compared, because the standard deviation of a constant is not exactly 0 if its mean had to be rounded
        first = _as_floats(x[rows[0]])
        varies = np.any(_map_blocks(lambda block: (_as_floats(x[block]) != first).any(axis=0), rows), axis=0)
        std = np.where(varies, std, np.inf)
        if not varies.any():
            raise DataError(f"{name}: no feature varies in the training samples; use normalise = 'none'")
    elif not np.all(std > 0):
        raise DataError(f"{name}: the training pixels of a channel do not vary; use normalise = 'feature' or 'none'")
    return mean, std


def _mean_over_samples(
    x: Pixels, rows: Indices, unit: float, by_feature: bool, centre: Moments | np.float64, power: int
) -> Moments:
    """Mean of (x - centre)^power over the rows, and over all pixels of a channel unless by feature."""
    total = np.zeros(x.shape[1:])
    for of_block in _map_blocks(lambda block: ((_as_floats(x[block]) * unit - centre) ** power).sum(axis=0), rows):
        total += of_block
    if not by_feature:
        total = np.asarray(total.mean(axis=(0, 1) if x.ndim == 4 else None))
    return np.asarray(total / len(rows))


def _as_floats(x: Pixels) -> NDArray[np.float64]:
    """Integers as the float32 numbers that models take."""
    return (x.astype(np.float32) if x.dtype == np.int64 else x).astype(np.float64)


def _map_blocks(work: Callable[[Indices], T], rows: Indices) -> list[T]:
    """The results for each block of rows, in order, computed by threads: numpy releases the GIL."""
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        return list(threads.map(work, [rows[start : start + BLOCK] for start in range(0, len(rows), BLOCK)]))
