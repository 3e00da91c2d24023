"""Pickles of numbers, text, containers and numpy arrays, without anything that can be executed.

A pickle is a program: loading one can run anything. Here the only names it can call are the few that numpy's arrays
are built with, and even those are replaced by functions of this module that check their arguments.
"""

import io
import pickle
import pickletools
import re
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from pacfl.errors import DataError

_NUMBERS: Final = re.compile(r"[|<>=]?[uif][1248]")
_MEMO: Final = frozenset({"PUT", "BINPUT", "LONG_BINPUT"})


class PickledArray:
    """An array out of a pickle; `value` is the array, or `objects` what an array of objects contains."""

    value: NDArray[Any] | None = None
    objects: tuple[object, ...] = ()

    def __setstate__(self, state: object) -> None:
        if not isinstance(state, tuple) or len(state) != 5:
            raise DataError("contains an array in an unknown form")
        _, shape, kind, is_fortran, raw = state
        if isinstance(kind, _Type) and kind.code == "O8" and isinstance(raw, list):
            self.objects = tuple(raw)
            return
        self.value = _array(raw, kind, shape, "F" if is_fortran else "C")


class _Type:
    """A dtype out of a pickle: its code, and its byte order once the state is set."""

    def __init__(self, code: object) -> None:
        self.code = code
        self.order: object = "|"

    def __setstate__(self, state: object) -> None:
        if isinstance(state, tuple) and len(state) > 1:
            self.order = state[1]


class _Constructors:
    """What a pickle may call. Bound methods, because a pickle cannot set attributes of these."""

    def blank(self, *_: object) -> PickledArray:
        return PickledArray()

    def filled(self, raw: object, kind: object, shape: object, order: object) -> PickledArray:
        array = PickledArray()
        array.value = _array(raw, kind, shape, "F" if order == "F" else "C")
        return array

    def kind(self, code: object, *_: object) -> _Type:
        return _Type(code)

    def encoded(self, text: object, *_: object) -> bytes:
        return _as_bytes(text)


_CONSTRUCTORS: Final = _Constructors()
_ALLOWED: Final[Mapping[tuple[str, str], object]] = {
    ("numpy.core.multiarray", "_reconstruct"): _CONSTRUCTORS.blank,
    ("numpy._core.multiarray", "_reconstruct"): _CONSTRUCTORS.blank,
    ("numpy.core.numeric", "_frombuffer"): _CONSTRUCTORS.filled,
    ("numpy._core.numeric", "_frombuffer"): _CONSTRUCTORS.filled,
    ("numpy", "ndarray"): object(),  # only ever an argument of _reconstruct
    ("numpy", "dtype"): _CONSTRUCTORS.kind,
    ("_codecs", "encode"): _CONSTRUCTORS.encoded,
}


def load_plain(data: bytes) -> object:
    """What is pickled in data: numbers, text, lists, tuples, dicts, and arrays as PickledArray. All else is refused."""
    _check_memo(data)
    return _Plain(io.BytesIO(data), encoding="latin1").load()


class _Plain(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> object:
        try:
            return _ALLOWED[module, name]
        except KeyError:
            raise DataError(f"needs {module}.{name}, which plain data do not; it was not executed") from None


def _check_memo(data: bytes) -> None:
    """Refuse memo positions beyond the number of pickled objects: the table up to them would be allocated."""
    for n_steps, (step, argument, _) in enumerate(pickletools.genops(data)):
        if step.name in _MEMO and isinstance(argument, int) and argument > n_steps:
            raise DataError("has a memo of impossible size")


def _array(raw: object, kind: object, shape: object, order: Any) -> NDArray[Any]:
    if not isinstance(kind, _Type) or not isinstance(shape, tuple) or not all(type(n) is int for n in shape):
        raise DataError("contains an array in an unknown form")
    code = f"{kind.order}{kind.code}" if isinstance(kind.code, str) and isinstance(kind.order, str) else ""
    if not _NUMBERS.fullmatch(code):
        raise DataError("contains an array of something other than numbers")
    return np.frombuffer(_as_bytes(raw), dtype=np.dtype(code)).reshape(shape, order=order)


def _as_bytes(raw: object) -> bytes:
    if isinstance(raw, str):
        return raw.encode("latin1")
    if isinstance(raw, bytes | bytearray):
        return bytes(raw)
    raise DataError("contains an array in an unknown form")
