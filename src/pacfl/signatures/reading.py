"""Data files of any common kind -> samples and, where asked, their labels."""

import csv
import io
import math
import warnings
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final, Literal, get_args

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from pacfl.errors import DataError

Array = NDArray[Any]
Preprocess = Literal["raw", "normalise", "unit"]
PREPROCESSES: Final[tuple[Preprocess, ...]] = get_args(Preprocess)
MOST_HEADER_BYTES: Final = 10_000  # of an array: what numpy takes
MOST_PIXELS: Final = 1 << 26  # of an image: more than any camera's, and 200 MB once it is read
MOST_SHRUNK: Final = 1032  # deflate makes nothing smaller than one part in so many
IMAGE_SUFFIXES: Final = frozenset({".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm"})


@dataclass(frozen=True)
class Reading:
    """How a party's data are to be read. The words are those of the command line."""

    array: str | None = None  # of an .npz
    per_class: str | None = None  # array, column, .npy file, or 'folders' of images: where labels are
    drop: tuple[str, ...] = ()  # columns that are not features
    resize: tuple[int, int] | None = None  # images: width, height
    grey: bool = False
    preprocess: Preprocess = "raw"

    def identity(self) -> str:
        """What must be equal for two signatures to be compared."""
        steps = [f"resize {self.resize[0]}x{self.resize[1]}"] if self.resize else []
        return ", ".join([*steps, *(["grey"] if self.grey else []), self.preprocess])


def read(path: Path, how: Reading) -> tuple[Array, Array | None]:
    """Samples (n, ...) and labels (n,), or None if signatures are not per class."""
    if not path.exists():
        raise DataError(f"{path}: there is no such file or folder")
    kind = "folder" if path.is_dir() else path.suffix.lower()
    if kind not in _READERS:
        known = ", ".join(sorted(k for k in _READERS if k != "folder"))
        raise DataError(f"{path}: wanted a file of kind {known}, or a folder of images; got {kind or 'no suffix'}")
    try:
        x, labels = _READERS[kind](path, how)
    except DataError:
        raise
    except Exception as error:  # a damaged file can make a decoder fail in any way, and each library has its own
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise DataError(f"{path}: cannot be read as {kind}: {reason}") from None
    if how.per_class is not None and labels is None:
        raise DataError(f"{path}: found no labels {how.per_class!r} for a signature per class")
    return _PREPROCESSES[how.preprocess](x), labels


def _read_npy(path: Path, how: Reading) -> tuple[Array, Array | None]:
    with path.open("rb") as file:
        _check_declared(path, file, path.stat().st_size)
    x = np.load(path, allow_pickle=False)
    if how.per_class is None:
        return x, None
    labels = Path(how.per_class)
    if not labels.exists():
        raise DataError(f"{path}: labels for a .npy file are wanted in another .npy file, found no {how.per_class}")
    return x, np.load(labels, allow_pickle=False)


_HEADERS: Final = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}


def _check_declared(path: Path, file: IO[bytes], stored: int) -> None:
    """Refuse an array whose header declares more than the file holds, before memory is taken for it."""
    version = npy.read_magic(file)
    start = file.tell()
    length = int.from_bytes(file.read(2 if version == (1, 0) else 4), "little")
    if version not in _HEADERS or length > MOST_HEADER_BYTES:
        raise DataError(f"{path}: holds an array of another format than .npy 1.0 or 2.0; save it again with numpy")
    file.seek(start)
    shape, _, dtype = _HEADERS[version](file)
    if math.prod(shape) * dtype.itemsize > stored:
        raise DataError(f"{path}: declares an array of shape {shape}, which its {stored} bytes cannot hold")


def _read_npz(path: Path, how: Reading) -> tuple[Array, Array | None]:
    with zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            with archive.open(member) as file:
                _check_declared(path, file, min(member.file_size, MOST_SHRUNK * max(member.compress_size, 1)))
    with np.load(path, allow_pickle=False) as arrays:
        candidates = [how.array] if how.array else ["x", "x_train", "X", "data", "images"]
        name = next((c for c in candidates if c in arrays), None)
        if name is None and how.array is None and len(arrays.files) == 1:
            name = arrays.files[0]
        if name is None:
            raise DataError(f"{path}: holds the arrays {', '.join(arrays.files)}; name one with --array")
        if how.per_class is not None and how.per_class not in arrays:
            raise DataError(f"{path}: has no array {how.per_class!r} of labels, only {', '.join(arrays.files)}")
        return arrays[name], None if how.per_class is None else arrays[how.per_class]


def _read_csv(path: Path, how: Reading) -> tuple[Array, Array | None]:
    with path.open(newline="", encoding="utf-8-sig") as file:
        first = file.readline()
        if not first.strip():
            raise DataError(f"{path}: is empty")
        delimiter = max(",;\t", key=first.count)
        names = next(csv.reader([first], delimiter=delimiter))
    has_header = not all(_is_number(name) for name in names)
    columns = [name.strip() for name in names] if has_header else [str(i) for i in range(len(names))]
    labels_at, features_at = _columns(path, columns, how)
    skip = int(has_header)
    labels = None
    if labels_at is not None:
        labels = np.loadtxt(path, str, delimiter=delimiter, skiprows=skip, usecols=labels_at, quotechar='"', ndmin=1)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # a file without rows is told of by who needs rows
            x = np.loadtxt(path, delimiter=delimiter, skiprows=skip, usecols=features_at, quotechar='"', ndmin=2)
    except ValueError as error:
        remedy = "fill empty cells, and leave out columns that are not numbers with --drop"
        raise DataError(f"{path}: {str(error).rstrip('.')} (after the header); {remedy}") from None
    return x, labels


def _read_parquet(path: Path, how: Reading) -> tuple[Array, Array | None]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise DataError(f"{path}: reading Parquet needs pyarrow: pip install 'pacfl[parquet]'") from None
    try:
        table = parquet.read_table(path)
    except pyarrow.ArrowException as error:
        raise DataError(f"{path}: cannot be read as Parquet: {error}") from None
    labels_at, features_at = _columns(path, table.column_names, how)
    features = []
    for i in features_at:
        column = table.column(i).to_numpy()
        if column.dtype.kind not in "uifb":
            raise DataError(f"{path}: column {table.column_names[i]!r} is not numbers; leave it out with --drop")
        features.append(column)
    return np.stack(features, axis=1), None if labels_at is None else table.column(labels_at).to_numpy()


def _read_folder(path: Path, how: Reading) -> tuple[Array, Array | None]:
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError:
        raise DataError(f"{path}: reading images needs Pillow: pip install 'pacfl[images]'") from None
    files = sorted(f for f in path.rglob("*") if f.suffix.lower() in IMAGE_SUFFIXES and f.is_file())
    if not files:
        raise DataError(f"{path}: has no images ({', '.join(sorted(IMAGE_SUFFIXES))})")
    images = []
    for file in files:
        try:
            # From memory: asked for what a damaged file declares, a file takes that much at once
            with Image.open(io.BytesIO(file.read_bytes())) as image:
                if math.prod(image.size) > MOST_PIXELS:
                    raise DataError(f"{file}: is {image.width}x{image.height}, at most {MOST_PIXELS:,} pixels are read")
                pixels = image.convert("L" if how.grey else "RGB")
                images.append(np.asarray(pixels.resize(how.resize) if how.resize else pixels))
        except (UnidentifiedImageError, OSError, SyntaxError, Image.DecompressionBombError) as error:
            raise DataError(f"{file}: is not an image that can be read: {error}") from None
        if images[-1].shape != images[0].shape:
            raise DataError(
                f"{file}: is {_size(images[-1])}, {files[0].name} is {_size(images[0])}; "
                "make them equal with --resize WxH"
            )
    if how.per_class is not None and how.per_class != "folders":
        raise DataError(f"{path}: labels of images are the names of their folders; use --per-class folders")
    labels = None if how.per_class is None else np.array([str(f.parent.relative_to(path)) for f in files])
    return np.stack(images), labels


_READERS: Final[Mapping[str, Callable[[Path, Reading], tuple[Array, Array | None]]]] = {
    ".npy": _read_npy,
    ".npz": _read_npz,
    ".csv": _read_csv,
    ".tsv": _read_csv,
    ".parquet": _read_parquet,
    ".pq": _read_parquet,
    "folder": _read_folder,
}


def _normalise(x: Array) -> Array:
    """Mean 0 and deviation 1 over all samples and pixels, for each colour channel of images (n, h, w, c)."""
    axes = tuple(range(x.ndim - 1)) if x.ndim == 4 else None
    floats = x.astype(np.float64)
    deviation = floats.std(axis=axes)
    if not np.all(deviation > 0):
        raise DataError("the data do not vary, so that they cannot be normalised; use --preprocess raw")
    return np.asarray((floats - floats.mean(axis=axes)) / deviation)


def _unit(x: Array) -> Array:
    """Every sample scaled to length 1; blank samples stay blank."""
    floats = x.astype(np.float64)
    lengths = np.sqrt((floats.reshape(len(floats), -1) ** 2).sum(axis=1))
    lengths[lengths == 0] = 1.0
    return np.asarray(floats / lengths.reshape(-1, *[1] * (x.ndim - 1)))


_PREPROCESSES: Final[Mapping[Preprocess, Callable[[Array], Array]]] = {
    "raw": lambda x: x,
    "normalise": _normalise,
    "unit": _unit,
}


def _columns(path: Path, names: list[str], how: Reading) -> tuple[int | None, list[int]]:
    """Where the labels are, and where the features."""
    for name in (*how.drop, *([how.per_class] if how.per_class else [])):
        if name not in names:
            raise DataError(f"{path}: has no column {name!r}; its columns are {', '.join(names[:20])}")
    features = [i for i, name in enumerate(names) if name not in how.drop and name != how.per_class]
    if not features:
        raise DataError(f"{path}: has no columns left to be features")
    return (names.index(how.per_class) if how.per_class else None), features


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _size(image: Array) -> str:
    return f"{image.shape[1]}x{image.shape[0]}"
