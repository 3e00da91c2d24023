"""Headers of .npy and .npz files, checked before memory is taken for their arrays."""

import math
import zipfile
from collections.abc import Container
from pathlib import Path
from typing import IO, Final

from numpy.lib import format as npy

from pacfl.errors import DataError

MOST_HEADER_BYTES: Final = 10_000  # of an array: numpy accepts no more
MOST_SHRUNK: Final = 1032  # deflate, the compression of zip, gzip and MATLAB files, shrinks nothing by a larger factor

Shape = tuple[int, ...]
_HEADERS: Final = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}


def array_shape(path: Path) -> Shape:
    """The shape that the header of an .npy file declares."""
    with path.open("rb") as file:
        return _declared(path, file, path.stat().st_size)


def archive_shapes(path: Path, names: Container[str] | None = None) -> dict[str, Shape]:
    """The shapes that the headers of an .npz file declare, by the arrays' names; of those named, or of all."""
    shapes = {}
    with zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            name = member.filename.removesuffix(".npy")
            if name != member.filename and (names is None or name in names):
                with archive.open(member) as file:
                    stored = min(member.file_size, MOST_SHRUNK * max(member.compress_size, 1))
                    shapes[name] = _declared(path, file, stored)
    return shapes


def _declared(path: Path, file: IO[bytes], stored: int) -> Shape:
    """The declared shape, refused where the array would take more than the stored bytes."""
    version = npy.read_magic(file)
    start = file.tell()
    length = int.from_bytes(file.read(2 if version == (1, 0) else 4), "little")
    if version not in _HEADERS or length > MOST_HEADER_BYTES:
        raise DataError(f"{path}: holds an array of another format than .npy 1.0 or 2.0; save it again with numpy")
    file.seek(start)
    shape, _, dtype = _HEADERS[version](file)
    if math.prod(shape) * dtype.itemsize > stored:
        raise DataError(
            f"{path}: declares an array of shape {shape}, its {stored} bytes cannot hold that; it is damaged"
        )
    return tuple(shape)
