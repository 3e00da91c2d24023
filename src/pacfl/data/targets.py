"""What a model is to predict: one class of each sample, several labels that are yes or no, or values."""

from collections.abc import Mapping
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pacfl.errors import DataError

Targets = Literal["classes", "labels", "values"]  # the words of losses
TargetArray = NDArray[np.int64 | np.float32]

SINGULAR: Final[Mapping[Targets, str]] = {"classes": "class", "labels": "label", "values": "value"}

EXPECTED: Final = (
    "classes are (n,) integers from 0; several labels are (n, labels) integers 0 or 1, or yes and no; values are "
    "(n,) or (n, values) floats"
)


def kind_of(y: NDArray[Any]) -> Targets:
    """The kind of targets, by their type and shape."""
    if y.dtype.kind == "f":
        return "values"
    return "labels" if y.ndim == 2 else "classes"


def as_targets(name: str, what: str, y: ArrayLike) -> TargetArray:
    """Targets as data sets have them: int64 classes (n,), int64 labels (n, labels) or float32 values.

    A column (n, 1) of integers is one of classes. Yes and no (n,) is one label.
    """
    array = np.asarray(y)
    if array.dtype.kind not in "uifb" or array.ndim not in (1, 2) or 0 in array.shape[1:]:
        raise DataError(f"{name}: {what} has shape {array.shape} of {array.dtype}, which are no targets; {EXPECTED}")
    if array.dtype.kind == "f":
        return array.astype(np.float32, copy=False)
    if array.dtype.kind == "b":
        return array.reshape(len(array), -1).astype(np.int64)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    return array.astype(np.int64, copy=False)


def check_targets(name: str, what: str, y: NDArray[Any], n: int, n_classes: int) -> None:
    """Refuse targets that are not those of n samples, or are out of range."""
    kind = kind_of(y)
    if kind == "classes":
        check_range(name, what, y, n, n_classes)
        return
    if n_classes:
        raise DataError(f"{name}: n_classes is for classes, got {n_classes} with {kind}; leave it out")
    if len(y) != n or y.ndim not in (1, 2) or 0 in y.shape or y.dtype not in (np.int64, np.float32):
        raise DataError(f"{name}: {what} must be {kind} of {n} samples, got shape {y.shape} of {y.dtype}; {EXPECTED}")
    if kind == "labels" and not np.isin(y, (0, 1)).all():
        raise DataError(f"{name}: several labels must be 0 or 1 each, got {y.min()}..{y.max()} in {what}; {EXPECTED}")
    if kind == "values" and not np.isfinite(y).all():
        raise DataError(f"{name}: {what} must be finite, got NaN or infinity; drop such samples")


def check_range(name: str, what: str, y: NDArray[Any], n: int, end: int) -> None:
    """Refuse anything but one integer in 0..end-1 for each of n samples."""
    if y.shape != (n,) or y.dtype.kind not in "ui":
        raise DataError(f"{name}: {what} must be one integer for each of {n} samples, got shape {y.shape} of {y.dtype}")
    if y.min() < 0 or y.max() >= end:
        raise DataError(
            f"{name}: {what} must lie in 0..{end - 1}, got {y.min()}..{y.max()}; number the classes from 0, or say "
            "how many there are"
        )
