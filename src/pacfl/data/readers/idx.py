"""MNIST's idx files, plain or gzipped: Fashion-MNIST and MNIST."""

import gzip
import math
import struct
from collections.abc import Sequence
from io import BufferedIOBase
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from pacfl.data.dataset import Dataset, Labels, from_arrays
from pacfl.data.readers.search import Search, check_declared, checked_labels, reading, search
from pacfl.errors import DataError

FILES: Final = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)
SUBFOLDERS: Final = {
    "fmnist": ("FashionMNIST/raw", "FashionMNIST", "fashion-mnist", "fmnist", ""),
    "mnist": ("MNIST/raw", "MNIST", "mnist", ""),
}

# The sets share their file names, so that one is easily taken for the other: these are their first training labels.
FIRST_LABELS: Final = {
    "fmnist": (9, 0, 0, 3, 0, 2, 7, 2, 5, 5, 0, 9, 5, 5, 7, 9),
    "mnist": (5, 0, 4, 1, 9, 2, 1, 3, 1, 4, 3, 5, 3, 6, 1, 7),
}
_BYTES: Final = 8  # the code of unsigned bytes in the magic number


def find(name: str, folder: Path) -> Search:
    """The four files of a set, that are not those of the other set."""
    nearest = Search((), FILES)
    for subfolder in SUBFOLDERS[name]:
        here = search(folder, FILES, (subfolder,), ".gz")
        other = _other(name, here.paths[1]) if here.complete else None
        if other is not None:
            here = Search((), tuple(f"{file} (that in {here.paths[0].parent} is of {other})" for file in FILES))
        if here.complete:
            return here
        if len(here.paths) >= len(nearest.paths):
            nearest = here
    return nearest


def count(paths: Sequence[Path]) -> tuple[int, int]:
    """Numbers of training and test samples, from the headers."""
    return _length(paths[0]), _length(paths[2])


def read(name: str, paths: Sequence[Path], n_classes: int) -> Dataset:
    """The data set in the four files."""
    other = _other(name, paths[1])
    if other is not None:
        raise DataError(f"{paths[1]}: these are the labels of {other}, not of {name}; load_dataset({other!r}) reads it")
    train, test = _part(paths[0], paths[1], n_classes), _part(paths[2], paths[3], n_classes)
    return from_arrays(*train, *test, name=name, n_classes=n_classes)


def _part(images: Path, labels: Path, n_classes: int) -> tuple[NDArray[np.uint8], Labels]:
    x = _read(images, 3)
    return x, checked_labels(labels, _read(labels, 1), len(x), n_classes)


def _read(path: Path, n_dimensions: int) -> NDArray[np.uint8]:
    with reading(path, "an idx file"), _opened(path) as file:
        shape = _header(path, file, n_dimensions)
        n_bytes = math.prod(shape)
        check_declared(path, n_bytes, compressed=path.suffix == ".gz")
        data = file.read(n_bytes + 1)
        if len(data) != n_bytes:
            size = "more" if len(data) > n_bytes else f"only {len(data)}"
            raise DataError(f"{path}: declares {n_bytes} bytes of data and has {size}; get the file again")
        return np.frombuffer(data, dtype=np.uint8).reshape(shape)


def _length(path: Path) -> int:
    with reading(path, "an idx file"), _opened(path) as file:
        return _header(path, file, 3)[0]


def _header(path: Path, file: BufferedIOBase, n_dimensions: int) -> tuple[int, ...]:
    magic = file.read(4)
    if magic != bytes((0, 0, _BYTES, n_dimensions)):
        raise DataError(
            f"{path}: starts with {magic.hex(' ') or 'nothing'}, expected 00 00 08 {n_dimensions:02d}: an idx file of "
            f"bytes in {n_dimensions} dimension{'s' if n_dimensions > 1 else ''}"
        )
    shape: tuple[int, ...] = struct.unpack(f">{n_dimensions}I", file.read(4 * n_dimensions))
    return shape


def _opened(path: Path) -> BufferedIOBase:
    return gzip.GzipFile(path) if path.suffix == ".gz" else path.open("rb")


def _other(name: str, labels: Path) -> str | None:
    """The other set that these labels belong to, if they do."""
    try:
        with reading(labels, "an idx file"), _opened(labels) as file:
            first = tuple(file.read(8 + 16)[8:])
    except DataError:
        return None  # reported when the file is read
    return next((other for other, theirs in FIRST_LABELS.items() if other != name and first == theirs), None)
