"""Settings are checked when they are given: the annotation of a field says all that it may be."""

import math
from dataclasses import dataclass, fields
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin, get_type_hints


@dataclass(frozen=True)
class Within:
    """The least and the greatest that a number may be."""

    low: float
    high: float = math.inf

    def __str__(self) -> str:
        return f"of at least {self.low}" if self.high == math.inf else f"from {self.low} to {self.high}"


Whole = Annotated[int, Within(0)]
Count = Annotated[int, Within(1)]
NotNegative = Annotated[float, Within(0)]
Share = Annotated[float, Within(0, 1)]

_WORDS: Final = {int: "a whole number", float: "a number", bool: "true or false", NoneType: "left out"}


def check(settings: Any) -> None:
    """Refuse the first field of a dataclass that is not what its annotation says."""
    kinds = get_type_hints(type(settings), include_extras=True)
    for name in (field.name for field in fields(settings)):
        value = getattr(settings, name)
        if not _fits(value, kinds[name]):
            raise ValueError(f"{type(settings).__name__}.{name} must be {_wanted(kinds[name])}, got {value!r}")


def _fits(value: Any, kind: Any) -> bool:
    origin, parts = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _fits(value, parts[0]) and bool(parts[1].low <= value <= parts[1].high)
    if origin in (Union, UnionType):
        return any(_fits(value, part) for part in parts)
    if origin is Literal:
        return value in parts
    if kind in (int, float):
        number = isinstance(value, Integral if kind is int else Real) and not isinstance(value, bool)
        return number and math.isfinite(value)
    return isinstance(value, origin or kind)


def _wanted(kind: Any) -> str:
    origin, parts = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return f"{_wanted(parts[0])} {parts[1]}"
    if origin in (Union, UnionType):
        return " or ".join(map(_wanted, parts))
    if origin is Literal:
        return f"{'one of ' if len(parts) > 1 else ''}{', '.join(map(repr, parts))}"
    return _WORDS.get(kind, f"a {(origin or kind).__name__}")
