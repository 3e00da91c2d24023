"""Where the files of a data set are, and which are missing."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pacfl.data.dataset import Dataset, Labels
from pacfl.errors import DataError
from pacfl.npz import MOST_SHRUNK


@dataclass(frozen=True)
class Search:
    """The files that were found, and the names of those that were not."""

    paths: tuple[Path, ...]
    missing: tuple[str, ...]

    @property
    def complete(self) -> bool:
        """Nothing is missing."""
        return not self.missing


@dataclass(frozen=True)
class Format:
    """One way in which a data set is stored.

    search(folder) finds the files, count(paths) gives the numbers of training and test samples, without reading
    the samples if the format allows it; read(name, paths, n_classes) gives the data set.
    """

    title: str
    search: Callable[[Path], Search]
    count: Callable[[Sequence[Path]], tuple[int, int]]
    read: Callable[..., Dataset]


def search(folder: Path, names: Sequence[str], subfolders: Sequence[str] = ("",), suffix: str = "") -> Search:
    """The files in the first subfolder that has all of them, each with or without the suffix."""
    best = Search((), tuple(names))
    for subfolder in subfolders:
        place = folder / subfolder
        hits = {name: _existing(place / name, place / (name + suffix)) for name in names}
        paths = tuple(path for path in hits.values() if path is not None)
        here = Search(paths, tuple(str(Path(subfolder) / name) for name, path in hits.items() if path is None))
        if here.complete:
            return here
        if len(here.paths) > len(best.paths):
            best = here
    return best


@contextmanager
def reading(path: Path | str, kind: str) -> Iterator[None]:
    """Turn any error while reading a file into a DataError that names the file."""
    try:
        yield
    except DataError:
        raise
    except Exception as error:  # a damaged file can make a decoder fail in any way, and each library has its own
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise DataError(f"{path}: cannot be read as {kind}: {reason}; get the file again") from error


def check_declared(path: Path, declared: int, stored: int | None = None, compressed: bool = True) -> None:
    """Refuse a header that declares more bytes than the file can contain, before memory is allocated for them."""
    size = path.stat().st_size if stored is None else stored
    most = size * MOST_SHRUNK if compressed else size
    if declared > most:
        raise DataError(
            f"{path}: declares {declared} bytes of data, its {size} bytes cannot contain them; it is damaged"
        )


def checked_labels(path: Path | str, labels: NDArray[Any], n: int, n_classes: int) -> Labels:
    """Labels of a file: one for each of n samples, in 0..n_classes-1."""
    if labels.shape != (n,):
        raise DataError(f"{path}: has labels of shape {labels.shape} for {n} samples; is it the right file?")
    if not np.array_equal(labels, np.rint(labels)):
        raise DataError(f"{path}: labels must be integers; is it the right file?")
    if n and not (labels.min() >= 0 and labels.max() < n_classes):
        raise DataError(
            f"{path}: labels must lie in 0..{n_classes - 1}, got {labels.min():g}..{labels.max():g}; "
            "is it the right file?"
        )
    return labels.astype(np.int64)


def _existing(*candidates: Path) -> Path | None:
    return next((path for path in candidates if path.is_file()), None)
