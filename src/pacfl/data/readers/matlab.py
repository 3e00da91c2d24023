"""Arrays of numbers in MATLAB files of version 5, the form in which SVHN is published.

Scipy reads these files too, but a damaged one can crash the process. This reader supports less and checks
everything it reads.
"""

import math
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pacfl.data.readers.search import check_declared, reading
from pacfl.errors import DataError

HEADER: Final = 128  # bytes before the first element
BEFORE_DATA: Final = 512  # of a matrix: its class, dimensions and name take no more
COMPLEX: Final = 0x0800

_MATRIX, _COMPRESSED = 14, 15
_INT8, _INT32, _UINT32 = 1, 5, 6
_TYPES: Final = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
_CLASSES: Final = range(6, 16)  # of matrices: numbers of any kind; the others are text, cells, structures and so on


class Element(NamedTuple):
    """A piece of a file: its type, where its data start, and their number of bytes."""

    kind: int
    start: int
    size: int


@dataclass(frozen=True)
class Matrix:
    """An array of numbers in a file, not read yet."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    path: Path
    element: Element  # of the file
    start: int  # of the numbers, within the element once it is decompressed

    def read(self) -> NDArray[Any]:
        """The numbers; the first index runs fastest, as MATLAB has it."""
        n_bytes = math.prod(self.shape) * self.dtype.itemsize
        with reading(self.path, "a MATLAB file"):
            data = _contents(self.path, self.element, self.start + n_bytes)[self.start :]
            return np.frombuffer(data, dtype=self.dtype).reshape(self.shape, order="F")


def matrices(path: Path) -> dict[str, Matrix]:
    """The arrays of numbers of a file by name. Only their beginnings are read."""
    found: dict[str, Matrix] = {}
    with reading(path, "a MATLAB file"):
        order = _byte_order(path)
        for element in _elements(path, order):
            matrix = _matrix(path, element, order)
            if matrix is not None and matrix.name in found:
                raise DataError(f"{path}: has {matrix.name} twice; get the file again")
            if matrix is not None:
                found[matrix.name] = matrix
    return found


def _byte_order(path: Path) -> str:
    with path.open("rb") as file:
        header = file.read(HEADER)
    orders = {b"\x00\x01IM": "<", b"\x01\x00MI": ">"}
    if header[124:] not in orders:
        raise DataError(f"{path}: is not a MATLAB file of version 5; get the file again")
    return orders[header[124:]]


def _elements(path: Path, order: str) -> Iterator[Element]:
    size = path.stat().st_size
    start = HEADER
    with path.open("rb") as file:
        while start < size:
            file.seek(start)
            kind, n_bytes = struct.unpack(f"{order}2I", file.read(8))
            if start + 8 + n_bytes > size:
                raise DataError(f"{path}: ends in the middle of an array; get the file again")
            yield Element(kind, start + 8, n_bytes)
            start += 8 + n_bytes


def _matrix(path: Path, element: Element, order: str) -> Matrix | None:
    """The matrix that an element of the file is, if it is one of numbers."""
    head = _beginning(path, element)
    inside = Element(element.kind, 0, element.size)
    if element.kind == _COMPRESSED:
        kind, n_bytes = struct.unpack_from(f"{order}2I", head)
        check_declared(path, n_bytes, stored=element.size)
        inside = Element(kind, 8, n_bytes)
    if inside.kind != _MATRIX:
        return None
    flags, offset = _subelement(head, inside.start, order)
    dimensions, offset = _subelement(head, offset, order)
    name, offset = _subelement(head, offset, order)
    numbers, _ = _subelement(head, offset, order)
    described = (flags.kind, flags.size, dimensions.kind, dimensions.size % 4, name.kind)
    if described != (_UINT32, 8, _INT32, 0, _INT8) or dimensions.size > 128 or name.start + name.size > len(head):
        raise DataError(f"{path}: has an array without class, dimensions or name; get the file again")
    (word,) = struct.unpack_from(f"{order}I", head, flags.start)
    if word & 0xFF not in _CLASSES or word & COMPLEX:
        return None
    shape = struct.unpack_from(f"{order}{dimensions.size // 4}i", head, dimensions.start)
    text = head[name.start : name.start + name.size].decode("ascii")
    dtype = np.dtype(order + _TYPES[numbers.kind])
    is_inside = numbers.start + numbers.size <= inside.start + inside.size
    if min(shape) < 0 or math.prod(shape) * dtype.itemsize != numbers.size or not is_inside:
        raise DataError(f"{path}: declares {text} as {shape} in {numbers.size} bytes; get the file again")
    return Matrix(text, shape, dtype, path, element, numbers.start)


def _subelement(head: bytes, offset: int, order: str) -> tuple[Element, int]:
    """The subelement of a matrix at an offset, and the offset of the next. Up to four bytes have a short form."""
    (word,) = struct.unpack_from(f"{order}I", head, offset)
    if word >> 16:
        return Element(word & 0xFFFF, offset + 4, word >> 16), offset + 8
    (size,) = struct.unpack_from(f"{order}I", head, offset + 4)
    return Element(word, offset + 8, size), offset + 8 + (size + 7) // 8 * 8


def _beginning(path: Path, element: Element) -> bytes:
    """Enough of an element to know what it is, decompressed."""
    with path.open("rb") as file:
        file.seek(element.start)
        data = file.read(min(element.size, BEFORE_DATA))
    return zlib.decompressobj().decompress(data, BEFORE_DATA) if element.kind == _COMPRESSED else data


def _contents(path: Path, element: Element, n_bytes: int) -> bytes:
    """The first n_bytes bytes of an element, decompressed and checked by its checksum."""
    with path.open("rb") as file:
        file.seek(element.start)
        if element.kind != _COMPRESSED:
            return file.read(n_bytes)
        decompressor = zlib.decompressobj()
        data = decompressor.decompress(file.read(element.size), n_bytes)
    decompressor.decompress(decompressor.unconsumed_tail, BEFORE_DATA)  # what fills the last eight bytes
    if not decompressor.eof:
        raise DataError(f"{path}: the array in it does not end where it should; get the file again")
    return data
