"""CelebA: aligned faces with forty attributes."""

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pacfl.data.dataset import Dataset, Flags
from pacfl.data.readers.search import Search, reading, search
from pacfl.errors import DataError, library
from pacfl.settings import suggestion

FILES: Final = ("list_attr_celeba.txt", "list_eval_partition.txt")
SUBFOLDERS: Final = ("celeba", "CelebA", "")
IMAGES: Final = "img_align_celeba"
TRAIN, TEST = "0", "2"  # of the official split; 1 is for validation and is left out

# The largest side an image may have; the true ones are 178 × 218.
MOST_SIDE: Final = 4096


def find(folder: Path) -> Search:
    """The two lists, and the folder of images beside them."""
    found = search(folder, FILES, SUBFOLDERS)
    if found.complete and not (found.paths[0].parent / IMAGES).is_dir():
        place = found.paths[0].parent.relative_to(folder) / IMAGES
        return Search(found.paths, (f"{place}/",))
    return found


def count(paths: Sequence[Path]) -> tuple[int, int]:
    """Numbers of training and test samples, from the official split."""
    splits = list(_official_split(paths[1]).values())
    return splits.count(TRAIN), splits.count(TEST)


def read(
    name: str,
    paths: Sequence[Path],
    n_classes: int,
    *,
    label: str = "Smiling",
    size: int = 32,
    n_train: int | None = None,
    n_test: int | None = None,
) -> Dataset:
    """Faces cut to the central square and resized; the label is one attribute, the data set has all attributes.

    n_train and n_test: how many images at most, the first ones.
    """
    if size < 1:
        raise DataError(f"size must be at least 1 pixel, got {size}")
    names, row_of, flags = _attributes(paths[0])
    if label not in names:
        raise DataError(f"{paths[0]}: has no attribute {label!r} for labels{suggestion(label, names)}")
    split_of = _official_split(paths[1])
    train = _chosen(split_of, TRAIN, n_train, row_of, paths[1])
    test = _chosen(split_of, TEST, n_test, row_of, paths[1])
    images = paths[0].parent / IMAGES
    at_train, at_test = ([row_of[file] for file in files] for files in (train, test))
    column = names.index(label)
    return Dataset(
        name=name,
        x_train=_faces(images, train, size),
        y_train=flags[at_train, column].astype(np.int64),
        x_test=_faces(images, test, size),
        y_test=flags[at_test, column].astype(np.int64),
        n_classes=n_classes,
        source_train=np.zeros(len(train), dtype=np.intp),
        source_test=np.zeros(len(test), dtype=np.intp),
        source_names=(name,),
        attributes_train={attribute: flags[at_train, i] for i, attribute in enumerate(names)},
        attributes_test={attribute: flags[at_test, i] for i, attribute in enumerate(names)},
    )


class _Table(NamedTuple):
    """The list of attributes: their names, the row of each image, and yes or no (images, attributes)."""

    names: list[str]
    row_of: dict[str, int]
    flags: Flags


def _attributes(path: Path) -> _Table:
    with reading(path, "CelebA's list of attributes"):
        lines = path.read_text(encoding="ascii").splitlines()
        names = lines[1].split()
        rows = [line.split() for line in lines[2:] if line.strip()]
        if len(rows) != int(lines[0]):
            raise DataError(f"{path}: declares {lines[0].strip()} images and lists {len(rows)}; get the file again")
        for at, row in enumerate(rows, start=3):
            if len(row) != len(names) + 1 or not set(row[1:]) <= {"1", "-1"}:
                raise DataError(f"{path}: line {at} is not an image and {len(names)} values 1 or -1")
        flags = np.array([[value == "1" for value in row[1:]] for row in rows], dtype=np.bool_)
        return _Table(names, {row[0]: i for i, row in enumerate(rows)}, flags.reshape(len(rows), len(names)))


def _official_split(path: Path) -> dict[str, str]:
    """The split of each image: 0, 1 or 2."""
    with reading(path, "CelebA's list of splits"):
        rows = [line.split() for line in path.read_text(encoding="ascii").splitlines() if line.strip()]
        for at, row in enumerate(rows, start=1):
            if len(row) != 2 or row[1] not in ("0", "1", "2") or Path(row[0]).name != row[0]:
                raise DataError(f"{path}: line {at} is not the name of an image and 0, 1 or 2")
        return {file: split for file, split in rows}  # noqa: C416 - rows are lists, checked to be pairs


def _chosen(split_of: dict[str, str], split: str, most: int | None, row_of: dict[str, int], path: Path) -> list[str]:
    files = [file for file, own in split_of.items() if own == split][:most]
    unknown = next((file for file in files if file not in row_of), None)
    if unknown is not None or not files:
        what = f"lists {unknown}, which has no attributes" if unknown else f"has no images of split {split}"
        raise DataError(f"{path}: {what}; get the file again")
    return files


def _faces(folder: Path, files: Sequence[str], size: int) -> NDArray[np.uint8]:
    pil = library("PIL.Image", f"{folder}: reading images", "data")
    images = np.empty((len(files), size, size, 3), dtype=np.uint8)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about images so large that they might exhaust memory: refused below
        for at, file in enumerate(files):
            with reading(folder / file, "a JPEG image"), pil.open(folder / file, formats=("JPEG",)) as image:
                images[at] = _face(folder / file, image, size)
    return images


def _face(path: Path, image: Any, size: int) -> NDArray[np.uint8]:
    if max(image.size) > MOST_SIDE:
        raise DataError(f"{path}: is {image.size[0]}x{image.size[1]}, far larger than a face of CelebA")
    image.draft("RGB", (2 * size, 2 * size))  # lets the decoder skip detail that resizing would throw away
    width, height = image.size
    side = min(width, height)
    left, top = (width - side) // 2, (height - side) // 2
    square = image.convert("RGB").crop((left, top, left + side, top + side))
    return np.asarray(square.resize((size, size)))
