"""R's data files (.rda): vectors, lists and data frames in the XDR format, and nothing else.

Libraries for it bring pandas and xarray, and build any R object; data sets need five types of its thirty.
"""

import struct
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from pacfl.data.readers.packages import decompressed
from pacfl.errors import DataError

NIL, REFERENCE, SYMBOL, PAIRS, TEXT, LIST, STRINGS = 254, 255, 1, 2, 9, 19, 16
NUMBERS: Final[Mapping[int, str]] = {10: ">i4", 13: ">i4", 14: ">f8"}  # yes and no, integers, doubles
DEEPEST: Final = 20


def read_rda(content: bytes) -> dict[str, Any]:
    """The objects of a file by name: arrays, and dicts of them for lists and data frames; factors as their words."""
    stream = _Stream(decompressed(content))
    if stream.take(7) not in (b"RDX2\nX\n", b"RDX3\nX\n"):
        raise DataError("is not an R data file in binary XDR format")
    version, _, _ = stream.integers(3)
    if version == 3:
        stream.take(*stream.integers(1))  # the name of the encoding
    objects = stream.item(0)
    if not isinstance(objects, dict):
        raise DataError("has no named objects")
    return objects


class _Stream:
    def __init__(self, content: bytes) -> None:
        self.content, self.at, self.symbols = content, 0, list[str]()

    def take(self, n: int) -> bytes:
        if n < 0 or self.at + n > len(self.content):
            raise DataError("ends too early")
        self.at += n
        return self.content[self.at - n : self.at]

    def integers(self, n: int) -> tuple[int, ...]:
        return struct.unpack(f">{n}i", self.take(4 * n))

    def item(self, depth: int) -> Any:
        (flags,) = self.integers(1)
        kind, has_attributes, has_tag = flags & 0xFF, bool(flags & 0x200), bool(flags & 0x400)
        if depth > DEEPEST:
            raise DataError("has lists in lists in lists; expected a data set")
        if kind == NIL:
            return None
        if kind == REFERENCE:
            return self.symbols[(flags >> 8) - 1]
        if kind == SYMBOL:
            self.symbols.append(self.item(depth + 1))
            return self.symbols[-1]
        if kind == PAIRS:
            return self._pairs(has_attributes, has_tag, depth)
        (n,) = self.integers(1)
        if kind == TEXT:
            return self.take(n).decode("utf-8", "replace") if n >= 0 else ""  # -1: missing
        if kind in NUMBERS:
            dtype = np.dtype(NUMBERS[kind])
            value: Any = np.frombuffer(self.take(n * dtype.itemsize), dtype)
        elif kind in (LIST, STRINGS):
            value = [self.item(depth + 1) for _ in range(n)]
        else:
            raise DataError(f"has an R object of type {kind}; expected vectors, lists and data frames")
        return _with_attributes(value, self.item(depth + 1) if has_attributes else None)

    def _pairs(self, has_attributes: bool, has_tag: bool, depth: int) -> dict[str, Any]:
        """A linked list of names and values, without recursion along it."""
        pairs: dict[str, Any] = {}
        while True:
            if has_attributes:
                self.item(depth + 1)
            tag = self.item(depth + 1) if has_tag else None
            pairs[str(tag)] = self.item(depth + 1)
            (flags,) = self.integers(1)
            if flags & 0xFF != PAIRS:
                return pairs
            has_attributes, has_tag = bool(flags & 0x200), bool(flags & 0x400)


def _with_attributes(value: Any, attributes: dict[str, Any] | None) -> Any:
    given = attributes or {}
    if isinstance(value, np.ndarray):
        if "levels" in given:  # a factor: numbers from 1, and what they stand for; NA is the least integer
            words = np.array(["", *given["levels"]])
            return words[np.clip(value, 0, len(words) - 1)]
        return value.astype(np.int64 if value.dtype.kind == "i" else np.float64)
    if "names" in given:
        return dict(zip(given["names"], value, strict=True))
    return value
