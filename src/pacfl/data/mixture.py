"""Several data sets as one, with images of one size."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from pacfl.data.dataset import Dataset, Pixels
from pacfl.errors import DataError


def mixture(parts: Sequence[tuple[str, Dataset]], disjoint_labels: bool = True, name: str = "mixture") -> Dataset:
    """The data sets one after the other; a sample's source is the position of its set.

    Smaller images are padded with zeros around them to the largest height and width, grey ones repeated to the largest
    number of channels. With disjoint labels, those of each set follow those of the sets before: MIX-4 has 40.
    """
    _check(parts)
    sets = [part for _, part in parts]
    shape = _common_shape(parts)
    n_classes = [part.n_classes for part in sets]
    offsets = np.concatenate([[0], np.cumsum(n_classes)[:-1]]) if disjoint_labels else np.zeros(len(sets), np.int64)
    sources = np.arange(len(sets), dtype=np.intp)
    return Dataset(
        name=name,
        x_train=_joined([part.x_train for part in sets], shape),
        y_train=np.concatenate([part.y_train + offset for part, offset in zip(sets, offsets, strict=True)]),
        x_test=_joined([part.x_test for part in sets], shape),
        y_test=np.concatenate([part.y_test + offset for part, offset in zip(sets, offsets, strict=True)]),
        n_classes=sum(n_classes) if disjoint_labels else max(n_classes),
        source_train=np.repeat(sources, [len(part.y_train) for part in sets]),
        source_test=np.repeat(sources, [len(part.y_test) for part in sets]),
        source_names=tuple(name for name, _ in parts),
    )


def _check(parts: Sequence[tuple[str, Dataset]]) -> None:
    if not parts:
        raise DataError("a mixture needs at least one data set, got none")
    names = [name for name, _ in parts]
    if len(set(names)) < len(names):
        raise DataError(f"the data sets of a mixture need different names, got {', '.join(names)}")
    kinds = {name: str(part.x_train.dtype) for name, part in parts}
    if len(set(kinds.values())) > 1:
        listed = ", ".join(f"{name} {kind}" for name, kind in kinds.items())
        raise DataError(f"the data sets of a mixture must be all uint8 or all float32, got {listed}; convert some")


def _common_shape(parts: Sequence[tuple[str, Dataset]]) -> tuple[int, ...]:
    """(h, w), (h, w, channels) or (features,) that every sample is brought to."""
    shapes = {name: part.shape for name, part in parts}
    listed = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
    if any(len(shape) == 1 for shape in shapes.values()):
        if len(set(shapes.values())) > 1:
            raise DataError(f"features can be mixed only with as many features, got {listed}")
        return next(iter(shapes.values()))
    channels = {shape[2] if len(shape) == 3 else 1 for shape in shapes.values()}
    if len(channels - {1}) > 1:
        raise DataError(f"images can be mixed if they are grey or have the same number of channels, got {listed}")
    size = tuple(max(shape[axis] for shape in shapes.values()) for axis in (0, 1))
    return size if all(len(shape) == 2 for shape in shapes.values()) else (*size, max(channels))


def _joined(arrays: Sequence[Pixels], shape: tuple[int, ...]) -> Pixels:
    result: NDArray[np.uint8 | np.float32] = np.zeros((sum(map(len, arrays)), *shape), dtype=arrays[0].dtype)
    start = 0
    for array in arrays:
        target = result[start : start + len(array)]
        start += len(array)
        if len(shape) == 1:
            target[:] = array
            continue
        top, left = (shape[0] - array.shape[1]) // 2, (shape[1] - array.shape[2]) // 2
        framed = target[:, top : top + array.shape[1], left : left + array.shape[2]]
        framed[:] = array[..., None] if array.ndim < result.ndim else array
    return result
