"""CIFAR-10 and CIFAR-100: pickled batches, in their folder or in the archive as it is downloaded."""

import gzip
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from pacfl.data.dataset import Dataset, Labels, from_arrays
from pacfl.data.readers.pickles import PickledArray, load_plain
from pacfl.data.readers.search import Search, check_declared, checked_labels, reading, search
from pacfl.errors import DataError

SIDE: Final = 32
PIXELS: Final = 3 * SIDE * SIDE

# The largest batch, CIFAR-100's training set, has 155 million bytes. Nothing larger is taken into memory at once.
MOST_BYTES: Final = 1 << 28
MOST_PADDING: Final = 1 << 20  # after the last member of an archive


@dataclass(frozen=True)
class Layout:
    """Names of the files of one of the two sets."""

    folder: str
    archive: str
    train: tuple[str, ...]
    test: str
    labels: str

    @property
    def files(self) -> tuple[str, ...]:
        """Training batches, then the test batch."""
        return (*self.train, self.test)


LAYOUTS: Final = {
    "cifar10": Layout(
        folder="cifar-10-batches-py",
        archive="cifar-10-python.tar.gz",
        train=tuple(f"data_batch_{i}" for i in range(1, 6)),
        test="test_batch",
        labels="labels",
    ),
    "cifar100": Layout(
        folder="cifar-100-python",
        archive="cifar-100-python.tar.gz",
        train=("train",),
        test="test",
        labels="fine_labels",
    ),
}


def find_folder(name: str, folder: Path) -> Search:
    """The batches in their folder."""
    layout = LAYOUTS[name]
    return search(folder, layout.files, (layout.folder, f"{name}/{layout.folder}", f"{name.upper()}/{layout.folder}"))


def find_archive(name: str, folder: Path) -> Search:
    """The archive as it is downloaded."""
    return search(folder, (LAYOUTS[name].archive,), ("", name, name.upper()))


def count_folder(paths: Sequence[Path]) -> tuple[int, int]:
    """Numbers of training and test samples."""
    lengths = [len(_contents(path, _bytes(path))["data"]) for path in paths]
    return sum(lengths[:-1]), lengths[-1]


def count_archive(paths: Sequence[Path]) -> tuple[int, int]:
    """Numbers of training and test samples."""
    layout = next(layout for layout in LAYOUTS.values() if layout.archive == paths[0].name)
    lengths = {name: len(_contents(where, data)["data"]) for name, where, data in _members(paths[0], layout)}
    return sum(lengths[name] for name in layout.train), lengths[layout.test]


def read_folder(name: str, paths: Sequence[Path], n_classes: int) -> Dataset:
    """The data set in the batches of a folder."""
    batches = [_batch(path, _bytes(path), LAYOUTS[name].labels, n_classes) for path in paths]
    return _joined(name, batches[:-1], batches[-1], n_classes)


def read_archive(name: str, paths: Sequence[Path], n_classes: int) -> Dataset:
    """The data set in an archive, of which nothing is written to disk."""
    layout = LAYOUTS[name]
    batches = {file: _batch(where, data, layout.labels, n_classes) for file, where, data in _members(paths[0], layout)}
    return _joined(name, [batches[file] for file in layout.train], batches[layout.test], n_classes)


Batch = tuple[NDArray[np.uint8], Labels]


def _joined(name: str, train: Sequence[Batch], test: Batch, n_classes: int) -> Dataset:
    x_train = np.concatenate([x for x, _ in train])
    y_train = np.concatenate([y for _, y in train])
    return from_arrays(x_train, y_train, *test, name=name, n_classes=n_classes)


def _batch(where: Path | str, data: bytes, labels: str, n_classes: int) -> Batch:
    contents = _contents(where, data)
    pixels = contents["data"]
    if labels not in contents:
        raise DataError(f"{where}: has no {labels!r}, only {', '.join(sorted(contents))}; is it a batch of the set?")
    y = checked_labels(where, contents[labels], len(pixels), n_classes)
    channels_first = pixels.reshape(-1, 3, SIDE, SIDE)
    return np.ascontiguousarray(channels_first.transpose(0, 2, 3, 1)), y


def _contents(where: Path | str, data: bytes) -> Mapping[str, NDArray[Any]]:
    """The arrays and the lists of numbers of a batch."""
    with reading(where, "a CIFAR batch"):
        try:
            pickled = load_plain(data)
        except DataError as error:
            raise DataError(f"{where}: {error}") from None
        if not isinstance(pickled, dict):
            raise DataError(f"{where}: contains no dictionary; is it a CIFAR batch?")
        arrays = {_text(key): _numbers(value) for key, value in pickled.items()}
        numeric = {key: value for key, value in arrays.items() if value is not None}
        pixels = numeric.get("data")
        if pixels is None or pixels.ndim != 2 or pixels.shape[1] != PIXELS or pixels.dtype != np.uint8:
            found = "no array" if pixels is None else f"shape {pixels.shape} of {pixels.dtype}"
            raise DataError(
                f"{where}: expected 'data' of shape (n, {PIXELS}) of uint8, got {found}; is it a CIFAR batch?"
            )
        return numeric


def _numbers(value: object) -> NDArray[Any] | None:
    if isinstance(value, PickledArray):
        return value.value
    if isinstance(value, list) and all(type(number) is int for number in value):
        return np.array(value, dtype=np.int64)
    return None


def _text(key: object) -> str:
    return key.decode("latin1") if isinstance(key, bytes) else str(key) if isinstance(key, str | int) else ""


def _bytes(path: Path) -> bytes:
    with reading(path, "a CIFAR batch"):
        if path.stat().st_size > MOST_BYTES:
            raise DataError(
                f"{path}: has {path.stat().st_size} bytes, more than any CIFAR batch; is it the right file?"
            )
        return path.read_bytes()


def _members(path: Path, layout: Layout) -> Iterator[tuple[str, str, bytes]]:
    """File name, place and contents of every batch in an archive, in one pass over it."""
    expected = {f"{layout.folder}/{name}": name for name in layout.files}
    with (
        reading(path, "a gzipped tar archive"),
        _Careful(path) as unzipped,
        tarfile.open(fileobj=unzipped, mode="r:") as archive,
    ):
        for member in archive:
            name = expected.pop(member.name.removeprefix("./"), None)
            if name is None:
                continue
            file = archive.extractfile(member) if member.isreg() else None
            if file is None:
                raise DataError(f"{path}: {member.name} is not a file in the archive; get the archive again")
            check_declared(path, member.size)
            yield name, f"{path} ({member.name})", file.read(member.size)
        unzipped.read(MOST_PADDING)  # the checksum is at the end
    if expected:
        raise DataError(f"{path}: lacks {', '.join(expected)}; get the archive again")


class _Careful(gzip.GzipFile):
    """A gzip file that never reads more than a batch at once, whatever the headers of an archive say."""

    def read(self, size: int | None = -1) -> bytes:
        if size is None or not 0 <= size <= MOST_BYTES:
            raise DataError(f"{self.name}: declares {size} bytes in one piece, more than any CIFAR batch")
        return super().read(size)
