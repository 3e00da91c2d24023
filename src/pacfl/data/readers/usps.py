"""USPS: LIBSVM's text, compressed with bzip2, or an HDF5 file."""

import bz2
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from pacfl.data.dataset import Dataset, Labels, from_arrays
from pacfl.data.readers.search import Search, check_declared, checked_labels, reading, search
from pacfl.errors import DataError, library

SIDE: Final = 16
PIXELS: Final = SIDE * SIDE
NUMBERS: Final = [float(i) for i in range(1, PIXELS + 1)]

# Bzip2 has no bound on how much it shrinks. The true files have 7291 lines of less than 4000 characters.
MOST_LINES: Final = 100_000
MOST_CHARACTERS: Final = 16_384

Samples = tuple[NDArray[np.uint8], Labels]


def find_text(folder: Path) -> Search:
    """The two text files."""
    return search(folder, ("usps.bz2", "usps.t.bz2"), ("", "USPS", "usps"))


def find_h5(folder: Path) -> Search:
    """The one HDF5 file."""
    return search(folder, ("usps.h5",), ("", "USPS", "usps"))


def count_text(paths: Sequence[Path]) -> tuple[int, int]:
    """Numbers of training and test samples."""
    return sum(1 for _ in _lines(paths[0])), sum(1 for _ in _lines(paths[1]))


def count_h5(paths: Sequence[Path]) -> tuple[int, int]:
    """Numbers of training and test samples, from the headers."""
    h5py = library("h5py", f"{paths[0]}: reading HDF5", "data")
    with reading(paths[0], "an HDF5 file"), h5py.File(paths[0], "r") as file:
        return len(_stored(paths[0], file, "train", "data", 2)), len(_stored(paths[0], file, "test", "data", 2))


def read_text(name: str, paths: Sequence[Path], n_classes: int) -> Dataset:
    """The data set in two text files: labels 1..10 mean 0..9, pixels lie in -1..1."""
    train, test = _read_text(paths[0], n_classes), _read_text(paths[1], n_classes)
    return from_arrays(*train, *test, name=name, n_classes=n_classes)


def read_h5(name: str, paths: Sequence[Path], n_classes: int) -> Dataset:
    """The data set in an HDF5 file with groups train and test of data, pixels in 0..1, and target."""
    path = paths[0]
    h5py = library("h5py", f"{path}: reading HDF5", "data")
    with reading(path, "an HDF5 file"), h5py.File(path, "r") as file:
        train, test = _read_group(path, file, "train", n_classes), _read_group(path, file, "test", n_classes)
    return from_arrays(*train, *test, name=name, n_classes=n_classes)


def _read_text(path: Path, n_classes: int) -> Samples:
    samples = [_sample(path, at, line) for at, line in _lines(path)]
    if not samples:
        raise DataError(f"{path}: has no samples; get the file again")
    numbers = np.stack(samples)
    labels = checked_labels(path, numbers[:, 0] - 1, len(numbers), n_classes)
    return _as_bytes(path, (numbers[:, 1:] + 1) / 2), labels


def _sample(path: Path, at: int, line: bytes) -> NDArray[np.float32]:
    """The label and the pixels of a line 'label 1:value 2:value ...'."""
    try:
        label, *pixels = map(float, line.replace(b":", b" ").split())
    except ValueError:
        label, pixels = 0.0, []
    if pixels[::2] != NUMBERS or len(pixels) != 2 * PIXELS or line.count(b":") != PIXELS:
        raise DataError(f"{path}: line {at} is not a label and the pixels 1:value ... {PIXELS}:value; is it USPS?")
    return np.array([label, *pixels[1::2]], dtype=np.float32)


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """The lines that are not blank, with their numbers, as many and as long as USPS can have."""
    with reading(path, "bzip2 text"), bz2.open(path) as file:
        for at in range(1, MOST_LINES + 2):
            line = file.readline(MOST_CHARACTERS)
            if not line:
                return
            if len(line) == MOST_CHARACTERS or at > MOST_LINES:
                raise DataError(f"{path}: line {at} is more than USPS can have; is it the right file?")
            if line.strip():
                yield at, line


def _read_group(path: Path, file: Any, split: str, n_classes: int) -> Samples:
    data, target = _stored(path, file, split, "data", 2), _stored(path, file, split, "target", 1)
    if data.shape[1] != PIXELS or data.dtype.kind not in "fu" or target.dtype.kind not in "ui":
        raise DataError(
            f"{path}: expected {split}/data (n, {PIXELS}) of floats in 0..1 and {split}/target of integers, got "
            f"{data.shape} of {data.dtype} and {target.dtype}"
        )
    pixels = data[:] / (255.0 if data.dtype == np.uint8 else 1.0)
    return _as_bytes(path, pixels), checked_labels(path, target[:], len(pixels), n_classes)


def _stored(path: Path, file: Any, split: str, name: str, n_dimensions: int) -> Any:
    """A data set inside the file itself: a link could lead to any other file."""
    h5py = library("h5py", f"{path}: reading HDF5", "data")
    for group, key in ((file, split), (file.get(split), name)):
        if not isinstance(group, h5py.Group) or not isinstance(group.get(key, getlink=True), h5py.HardLink):
            raise DataError(
                f"{path}: has no {split}/{name} of its own; expected groups train and test of data and target"
            )
    stored = file[split][name]
    if not isinstance(stored, h5py.Dataset) or stored.ndim != n_dimensions or stored.external or stored.is_virtual:
        raise DataError(f"{path}: {split}/{name} is not an array of {n_dimensions} dimensions inside the file")
    check_declared(path, stored.size * stored.dtype.itemsize, stored=stored.id.get_storage_size())
    return stored


def _as_bytes(path: Path, pixels: NDArray[Any]) -> NDArray[np.uint8]:
    """Pixels in 0..1 as images of bytes."""
    if not (pixels.size and pixels.min() >= 0 and pixels.max() <= 1):
        raise DataError(f"{path}: has pixels outside the range of USPS; is it the right file?")
    images: NDArray[np.uint8] = np.rint(pixels * 255).astype(np.uint8).reshape(-1, SIDE, SIDE)
    return images
