"""Several data sets as one, with images of one size."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from pacfl.data.dataset import Dataset, Pixels
from pacfl.data.targets import TargetArray
from pacfl.errors import DataError


def mixture(datasets: Sequence[tuple[str, Dataset]], disjoint_labels: bool = True, name: str = "mixture") -> Dataset:
    """The data sets one after the other; a sample's source is the index of its set.

    Smaller images are padded with zeros to the largest height and width; grey ones are repeated to the largest number
    of channels. Integers become float32 if another set has floats. With disjoint labels, the classes of each set follow
    those of the sets before: MIX-4 has 40.
    """
    _check(datasets)
    _check_targets(datasets, disjoint_labels)
    sets = [dataset for _, dataset in datasets]
    shape = _common_shape(datasets)
    n_classes = [one.n_classes for one in sets]
    offsets = np.concatenate([[0], np.cumsum(n_classes)[:-1]]) if disjoint_labels else np.zeros(len(sets), np.int64)
    sources = np.arange(len(sets), dtype=np.intp)
    return Dataset(
        name=name,
        x_train=_joined([one.x_train for one in sets], shape),
        y_train=_targets([one.y_train for one in sets], offsets),
        x_test=_joined([one.x_test for one in sets], shape),
        y_test=_targets([one.y_test for one in sets], offsets),
        n_classes=sum(n_classes) if disjoint_labels else max(n_classes),
        source_train=np.repeat(sources, [len(one.y_train) for one in sets]),
        source_test=np.repeat(sources, [len(one.y_test) for one in sets]),
        source_names=tuple(name for name, _ in datasets),
        columns=sets[0].columns if len({one.columns for one in sets}) == 1 else None,
    )


def _targets(arrays: Sequence[TargetArray], offsets: NDArray[np.int64]) -> TargetArray:
    return np.concatenate([y + offset.astype(y.dtype) for y, offset in zip(arrays, offsets, strict=True)])


def _check(datasets: Sequence[tuple[str, Dataset]]) -> None:
    if not datasets:
        raise DataError("a mixture needs at least one data set, got none")
    names = [name for name, _ in datasets]
    if len(set(names)) < len(names):
        raise DataError(f"the data sets of a mixture need different names, got {', '.join(names)}")
    kinds = {name: str(one.x_train.dtype) for name, one in datasets}
    if "uint8" in kinds.values() and len(set(kinds.values())) > 1:
        listed = ", ".join(f"{name} {kind}" for name, kind in kinds.items())
        raise DataError(f"the data sets of a mixture must be all uint8 or none of them, got {listed}; convert some")


def _check_targets(datasets: Sequence[tuple[str, Dataset]], disjoint_labels: bool) -> None:
    """Sets of classes can be mixed however many each has; others if they have the same targets."""
    kinds = {(one.targets, one.y_train.shape[1:]) for _, one in datasets}
    if len(kinds) > 1:
        listed = ", ".join(f"{name} {one.targets} of shape {one.y_train.shape[1:]}" for name, one in datasets)
        raise DataError(f"the data sets of a mixture must have the same kind of targets, got {listed}")
    targets = datasets[0][1].targets
    if disjoint_labels and targets != "classes":
        raise DataError(
            f"only classes can be disjoint, the sets of this mixture have {targets}; say disjoint_labels=False"
        )


def _common_shape(datasets: Sequence[tuple[str, Dataset]]) -> tuple[int, ...]:
    """(h, w), (h, w, channels) or (features,) that every sample is brought to."""
    shapes = {name: one.shape for name, one in datasets}
    listed = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
    if any(len(shape) == 1 for shape in shapes.values()):
        if len(set(shapes.values())) > 1:
            raise DataError(f"tables can be mixed if they have the same number of columns, got {listed}")
        return next(iter(shapes.values()))
    channels = {shape[2] if len(shape) == 3 else 1 for shape in shapes.values()}
    if len(channels - {1}) > 1:
        raise DataError(f"images can be mixed if they are grey or have the same number of channels, got {listed}")
    size = tuple(max(shape[axis] for shape in shapes.values()) for axis in (0, 1))
    return size if all(len(shape) == 2 for shape in shapes.values()) else (*size, max(channels))


def _joined(arrays: Sequence[Pixels], shape: tuple[int, ...]) -> Pixels:
    kinds = {array.dtype for array in arrays}
    dtype = kinds.pop() if len(kinds) == 1 else np.dtype(np.float32)
    result: Pixels = np.zeros((sum(map(len, arrays)), *shape), dtype=dtype)
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
