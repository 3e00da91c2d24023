"""SVHN's cropped digits: MATLAB files."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from pacfl.data.dataset import Dataset, Labels, from_arrays
from pacfl.data.readers.matlab import Matrix, matrices
from pacfl.data.readers.search import Search, checked_labels, search
from pacfl.errors import DataError

FILES: Final = ("train_32x32.mat", "test_32x32.mat")
IMAGE: Final = (32, 32, 3)


def find(folder: Path) -> Search:
    """The two files."""
    return search(folder, FILES, ("", "SVHN", "svhn"))


def count(paths: Sequence[Path]) -> tuple[int, int]:
    """Numbers of training and test samples, from the headers."""
    return _declared(paths[0])[0].shape[3], _declared(paths[1])[0].shape[3]


def read(name: str, paths: Sequence[Path], n_classes: int) -> Dataset:
    """The data set in the two files; the label 10 means the digit 0."""
    return from_arrays(*_read(paths[0], n_classes), *_read(paths[1], n_classes), name=name, n_classes=n_classes)


def _read(path: Path, n_classes: int) -> tuple[NDArray[np.uint8], Labels]:
    images, labels = _declared(path)
    digits = labels.read().reshape(-1)
    y = checked_labels(path, np.where(digits == 10, 0, digits), images.shape[3], n_classes)
    return np.ascontiguousarray(images.read().transpose(3, 0, 1, 2)), y


def _declared(path: Path) -> tuple[Matrix, Matrix]:
    """Images (32, 32, 3, n) and labels (n, 1), as the file declares them."""
    found = matrices(path)
    x, y = found.get("X"), found.get("y")
    fits = x is not None and x.shape[:3] == IMAGE and len(x.shape) == 4 and x.dtype == np.uint8
    if x is None or y is None or not fits or y.shape != (x.shape[3], 1):
        listed = ", ".join(f"{name} {matrix.shape} of {matrix.dtype}" for name, matrix in found.items())
        raise DataError(
            f"{path}: expected X (32, 32, 3, n) of uint8 and one label y for each image, got {listed or 'nothing'}; "
            "is it the right file?"
        )
    return x, y
