"""Any data set in one .npz file with x_train, y_train, x_test and y_test."""

import math
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
from numpy.lib import format as npy

from pacfl.data.dataset import Dataset, from_arrays
from pacfl.data.readers.search import Search, check_declared, reading, search
from pacfl.errors import DataError

ARRAYS: Final = ("x_train", "y_train", "x_test", "y_test")


def find(name: str, folder: Path) -> Search:
    """The file NAME.npz."""
    return search(folder, (f"{name}.npz",))


def count(paths: Sequence[Path]) -> tuple[int, int]:
    """Numbers of training and test samples, from the headers."""
    shapes = _shapes(paths[0])
    return shapes["x_train"][0], shapes["x_test"][0]


def read(name: str, paths: Sequence[Path], n_classes: int | None = None) -> Dataset:
    """The data set in the file; without n_classes, there are as many as the largest label says."""
    path = paths[0]
    _shapes(path)
    with reading(path, ".npz"), np.load(path, allow_pickle=False) as arrays:
        x_train, y_train, x_test, y_test = (arrays[array] for array in ARRAYS)
    try:
        return from_arrays(x_train, y_train, x_test, y_test, name, n_classes)
    except DataError as error:
        raise DataError(f"{path}: {error}") from None


def _shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """Shapes of the four arrays as their headers declare them, checked against the size of the file."""
    shapes = {}
    with reading(path, ".npz"), zipfile.ZipFile(path) as archive:
        names = set(archive.namelist())
        lacking = [array for array in ARRAYS if f"{array}.npy" not in names]
        if lacking:
            raise DataError(f"{path}: lacks {', '.join(lacking)}; expected the arrays {', '.join(ARRAYS)}")
        for array in ARRAYS:
            member = archive.getinfo(f"{array}.npy")
            with archive.open(member) as file:
                version = npy.read_magic(file)
                header = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
                shape, _, dtype = header(file)
            if not shape:
                raise DataError(f"{path}: {array} is a single number; expected one entry for each sample")
            check_declared(path, math.prod(shape) * dtype.itemsize, stored=member.file_size, compressed=False)
            check_declared(path, member.file_size, stored=max(member.compress_size, 1))
            shapes[array] = shape
    return shapes
