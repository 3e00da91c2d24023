"""Data files of any common kind -> samples and, where asked, their labels."""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, load_npz

from pacfl.errors import DataError, PacflError
from pacfl.features import encoders, text
from pacfl.features.arrays import array_file
from pacfl.features.images import images_in, read_images
from pacfl.features.schema import Schema, read_encoded
from pacfl.features.tables import CSV_KINDS, PARQUET_KINDS, kind_of, read_csv, read_parquet, refused_kind
from pacfl.npz import archive_shapes, array_shape
from pacfl.subspace.classes import FEWEST
from pacfl.subspace.sparse import as_dense, is_sparse, lengths_of_sparse, scaled
from pacfl.subspace.stored import LARGE, Progress, StoredSamples
from pacfl.subspace.units import blocks

Array = NDArray[Any]
Preprocess = Literal["raw", "normalise", "unit"]
PREPROCESSES: Final[tuple[Preprocess, ...]] = get_args(Preprocess)
SPARSE: Final = frozenset({"format", "shape", "data"})  # arrays of a file that scipy.sparse.save_npz wrote
MOST_CHANNELS: Final = 32  # of signals (n, T, c): a longer last axis is one of pixels
MOST_FEATURES: Final = 1 << 24  # of a sparse matrix, which may declare any number


@dataclass(frozen=True)
class Reading:
    """How a client's data are read. The fields are the options of the command line."""

    array: str | None = None  # of an .npz
    per_class: str | None = None  # where the labels are: array, column, .npy file, or 'folders' of images
    drop: tuple[str, ...] = ()  # columns that are not features
    header: bool | None = None  # whether the first row of a CSV names the columns; None: decided by its cells
    resize: tuple[int, int] | None = None  # images: width, height
    grey: bool = False
    preprocess: Preprocess = "raw"
    labels: str | None = None  # where the labels are whose classes are compared, as for per_class; "": nowhere
    hash_labels: Path | None = None  # file with the key that the names of classes are hashed with
    minimum_count: int | None = None  # samples of a class that is in the signature
    group: str | None = None  # where the groups are of samples that depend on each other, as for labels
    blocks: int | None = None  # so many consecutive samples are a group
    encoder: str | None = None  # of the samples: a built-in one, or package.module:function
    text: str | None = None  # column of a table, or field of JSON lines, that holds texts
    schema: Schema | None = None  # what the columns of a table are
    skip_unreadable: bool = False  # leave out images that cannot be read
    as_newcomers: bool = field(default=False, compare=False, repr=False)  # no option: prepared as a federation was
    on_progress: Progress | None = field(default=None, compare=False, repr=False)  # no option: what shows progress

    @property
    def labels_at(self) -> str | None:
        """Where the labels are, whatever they are read for: by default in the column that a schema says."""
        named = self.labels if self.per_class is None else self.per_class
        if named is None and self.schema is not None:
            return self.schema.classes_in
        return named or None

    def check(self) -> None:
        """Refuse options that do not go together."""
        if self.per_class is not None and self.labels is not None:
            raise DataError(
                "--labels compares the same classes, --per-class imitates the published code; give one of them"
            )
        for option in ("hash_labels", "minimum_count"):
            if getattr(self, option) is not None and (self.labels_at is None or self.per_class is not None):
                raise DataError(
                    f"--{option.replace('_', '-')} applies to classes; say where their labels are: --labels"
                )
        if self.minimum_count is not None and self.minimum_count < FEWEST:
            raise DataError(
                f"--minimum-count must be at least {FEWEST}, got {self.minimum_count}: "
                "the noise of a class is measured from halves of at least two samples"
            )

        if self.group is not None and self.blocks is not None:
            raise DataError("--group names groups of samples, --blocks makes them; give one of them")
        if self.blocks is not None and self.blocks < 1:
            raise DataError(f"--blocks is a number of consecutive samples, at least 1, got {self.blocks}")
        if self.group is not None and self.group == self.labels_at:
            raise DataError(
                f"--group and labels are both {self.group!r}: a class would be one group, and have no noise"
            )

        for option in ("drop", "preprocess", "encoder", "text") if self.schema is not None else ():
            if getattr(self, option) != getattr(Reading, option):
                raise DataError(
                    f"--{option}: a schema says which columns are features and how they are scaled; leave it out"
                )

    def identity(self) -> str:
        """What must be equal for two signatures to be compared."""
        steps = [f"resize {self.resize[0]}x{self.resize[1]}"] if self.resize else []
        return ", ".join([*steps, *(["grey"] if self.grey else []), self.preprocess])

    def prepared_as(self, identity: str) -> "Reading":
        """The same for samples that are prepared as signatures with this identity were."""
        given = [
            name
            for name in ("per_class", "resize", "grey", "preprocess")
            if getattr(self, name) != getattr(Reading, name)
        ]
        if given:
            raise DataError(
                f"--{given[0].replace('_', '-')}: newcomers are prepared as the federation was; leave it out"
            )
        found = re.fullmatch(rf"(?:resize (\d+)x(\d+), )?(grey, )?({'|'.join(PREPROCESSES)})", identity)
        if found is None:
            raise DataError(f"data cannot be prepared as {identity!r}; sign them first, and give the signature files")
        width, height, grey, preprocess = found.groups()
        size = None if width is None else (int(width), int(height))
        known = PREPROCESSES[PREPROCESSES.index(preprocess)]
        return replace(self, resize=size, grey=grey is not None, preprocess=known, as_newcomers=True)


class Samples(NamedTuple):
    """What is in a data file."""

    x: Any  # (n, ...) array, sparse matrix, or StoredSamples where they are large
    labels: Array | None = None  # (n,)
    columns: tuple[str, ...] | None = None  # names of the features of a table
    groups: Array | None = None  # (n,) of samples that depend on each other


def read(path: Path, how: Reading) -> tuple[Array, Array | None]:
    """Samples (n, ...) and labels (n,), or None if no labels are asked for."""
    samples = read_samples(path, how)
    return samples.x, samples.labels


def read_samples(path: Path, how: Reading) -> Samples:
    """Samples with labels and groups, if they are asked for, and the names of a table's columns, if it has some."""
    how.check()
    if not path.exists():
        raise DataError(f"{path}: there is no such file or folder")
    kind = "folder" if path.is_dir() else kind_of(path)
    refused_kind(path)
    if kind not in _READERS:
        known = ", ".join(sorted(k for k in _READERS if k.count(".") == 1))
        raise DataError(
            f"{path}: wanted a file of kind {known}, or a folder of images or texts; got {kind or 'no suffix'}"
        )
    for option, kinds in _APPLIES_TO.items():
        if getattr(how, option) != getattr(Reading, option) and kind not in kinds:
            plain = [kind for kind in kinds if kind.count(".") == 1]  # compressed ones are named by what they hold
            what = "folders of images" if kinds == ("folder",) else f"{', '.join(plain)} files"
            raise DataError(f"{path}: --{option.replace('_', '-')} applies to {what} only; leave it out")
    try:
        found = Samples(*(_READERS[kind](path, how) if how.schema is None else read_encoded(path, how, how.schema)))
    except PacflError:
        raise
    except Exception as error:  # a damaged file can make a decoder fail in any way, and each library has its own
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise DataError(f"{path}: cannot be read as {kind}: {reason}") from None
    groups = found.groups if how.blocks is None else blocks(found.x.shape[0], how.blocks)
    try:
        found = encoded(found._replace(groups=groups), how.encoder)
        return found._replace(x=preprocessed(found.x, how.preprocess))
    except PacflError:
        raise
    except (ValueError, TypeError) as error:
        raise DataError(f"{path}: {error}") from None


def encoded(samples: Samples, encoder: str | None) -> Samples:
    """Samples in the feature space of an encoder, with the names of its features; without one, unchanged."""
    x = samples.x
    if encoder is None:
        if not is_sparse(x) and x.dtype.kind in "UO":
            raise TypeError("texts have no angles; say how they become numbers: --encoder ngrams, or module:function")
        return samples
    columns = encoders.feature_names(encoder, x.shape)
    if isinstance(x, StoredSamples):
        encoders.encode(encoder, x.take(slice(0, 2)))  # before much is read
        return samples._replace(x=x.mapped(lambda block: as_dense(encoders.encode(encoder, block))), columns=columns)
    return samples._replace(x=encoders.encode(encoder, x), columns=columns)


def preprocessed(x: Any, how: Preprocess) -> Any:
    """Samples (n, ...) after one of the preprocessings."""
    if isinstance(x, StoredSamples) and how != "raw":
        return x.mapped(_unit if how == "unit" else _normaliser(x))
    return _PREPROCESSES[how](x)


def _read_npy(path: Path, how: Reading, load: Callable[[Path], Array] | None = None) -> Samples:
    found: list[Array | None] = []
    for at, what in ((how.labels_at, "labels"), (how.group, "groups")):
        if at is not None and not Path(at).exists():
            raise DataError(f"{path}: {what} for a {path.suffix} file are wanted in another .npy file, found no {at}")
        found.append(None if at is None else _load_npy(Path(at)))
    large = load is None and math.prod(array_shape(path)) > LARGE
    x = StoredSamples(array_file(path), on_progress=how.on_progress) if large else (load or _load_npy)(path)
    return Samples(x, found[0], groups=found[1])


def _load_sparse(path: Path) -> Any:
    """A matrix that scipy.sparse.save_npz wrote, checked: scipy follows positions in it wherever they lead."""
    matrix = load_npz(path)
    if matrix.ndim != 2 or matrix.shape[1] > MOST_FEATURES:
        raise DataError(f"{path}: declares a sparse matrix of shape {matrix.shape}, at most {MOST_FEATURES:,} columns")
    if hasattr(matrix, "check_format"):
        matrix.check_format(full_check=True)
    return csr_array(matrix)


def _load_npy(path: Path) -> Array:
    array_shape(path)
    return np.asarray(np.load(path, allow_pickle=False))


def _read_npz(path: Path, how: Reading) -> Samples:
    names = list(archive_shapes(path))
    if set(names) >= SPARSE and how.array is None:
        return _read_npy(path, how, _load_sparse)
    candidates = [how.array] if how.array else ["x", "x_train", "X", "data", "images"]
    name = next((c for c in candidates if c in names), None)
    if name is None and how.array is None and len(names) == 1:
        name = names[0]
    if name is None:
        raise DataError(f"{path}: holds the arrays {', '.join(names)}; name one with --array")
    for at, what in ((how.labels_at, "labels"), (how.group, "groups")):
        if at is not None and at not in names:
            raise DataError(f"{path}: has no array {at!r} of {what}, only {', '.join(names)}")
    with np.load(path, allow_pickle=False) as arrays:
        labels, groups = (None if at is None else arrays[at] for at in (how.labels_at, how.group))
        return Samples(arrays[name], labels, groups=groups)


def _read_tables(path: Path, how: Reading) -> tuple[Any, ...]:
    if how.text is not None:
        return text.read_column(path, how)
    return read_parquet(path, how) if kind_of(path) in PARQUET_KINDS else read_csv(path, how)


def _read_folder(path: Path, how: Reading) -> tuple[Any, ...]:
    is_text = not images_in(path) and text.documents_in(path)
    return text.read_documents(path, how) if is_text else read_images(path, how)


_READERS: Final[Mapping[str, Callable[[Path, Reading], tuple[Any, ...]]]] = {  # the fields of Samples
    ".npy": _read_npy,
    ".npz": _read_npz,
    **dict.fromkeys((*CSV_KINDS, *PARQUET_KINDS), _read_tables),
    ".txt": text.read_lines,
    ".jsonl": text.read_column,
    "folder": _read_folder,
}

_APPLIES_TO: Final[Mapping[str, tuple[str, ...]]] = {
    "array": (".npz",),
    "drop": (*CSV_KINDS, *PARQUET_KINDS),
    "header": CSV_KINDS,
    "schema": (*CSV_KINDS, *PARQUET_KINDS),
    "resize": ("folder",),
    "grey": ("folder",),
    "skip_unreadable": ("folder",),
    "text": (*CSV_KINDS, *PARQUET_KINDS, ".jsonl"),
}


def _normalise(x: Array) -> Array:
    """Mean 0 and standard deviation 1 over all samples, in each channel of signals (n, T, c) or images (n, h, w, c)."""
    if is_sparse(x):
        raise ValueError("a sparse matrix less its mean would be dense; use --preprocess unit, or leave it raw")
    axes = tuple(range(x.ndim - 1)) if has_channels(x.shape) else None
    floats = x.astype(np.float64)
    deviation = floats.std(axis=axes)
    if not np.all(deviation > 0):
        raise ValueError("the data do not vary and cannot be normalised; leave them raw")
    return np.asarray((floats - floats.mean(axis=axes)) / deviation)


def _normaliser(x: StoredSamples) -> Callable[[Array], Array]:
    """What normalises samples that are not in memory at once, by their mean and standard deviation."""
    axes = tuple(range(x.ndim - 1)) if has_channels(x.shape) else None
    numbers = math.prod(x.shape) // (x.shape[-1] if axes else 1)
    mean = sum(block.sum(axis=axes, dtype=np.float64) for block in x.blocks("measuring the mean")) / numbers
    squares = (((block - mean) ** 2).sum(axis=axes) for block in x.blocks("measuring the standard deviation"))
    deviation = np.sqrt(sum(squares) / numbers)
    if not np.all(deviation > 0):
        raise ValueError("the data do not vary and cannot be normalised; leave them raw")
    return lambda block: np.asarray((block - mean) / deviation)


def has_channels(shape: tuple[int, ...]) -> bool:
    """Whether the last axis is one of channels: of images (n, h, w, c), or of signals (n, T, c), longer than it."""
    return len(shape) == 4 or (len(shape) == 3 and shape[2] <= MOST_CHANNELS and shape[2] < shape[1])


def _unit(x: Array) -> Array:
    """Every sample scaled to length 1; samples of zeros stay zeros."""
    if is_sparse(x):
        sizes = lengths_of_sparse(x)
        return scaled(x, 1 / np.where(sizes > 0, sizes, 1.0))  # type: ignore[no-any-return]  # scipy has no types
    floats = x.astype(np.float64)
    lengths = np.sqrt((floats.reshape(len(floats), -1) ** 2).sum(axis=1))
    lengths[lengths == 0] = 1.0
    return np.asarray(floats / lengths.reshape(-1, *[1] * (x.ndim - 1)))


_PREPROCESSES: Final[Mapping[Preprocess, Callable[[Array], Array]]] = {
    "raw": lambda x: x,
    "normalise": _normalise,
    "unit": _unit,
}
