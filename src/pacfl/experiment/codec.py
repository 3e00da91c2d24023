"""States as plain values and arrays, so that they can be written without pickling and read without trust."""

import dataclasses
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Arrays = dict[str, NDArray[Any]]


def encode(value: Any, arrays: Arrays) -> Any:
    """A tree that JSON can hold, its arrays put into `arrays` by name."""
    if isinstance(value, np.ndarray):
        key = f"a{len(arrays)}"
        arrays[key] = value
        return {"array": key}
    kind = f"{type(value).__module__}.{type(value).__qualname__}"
    if _imported(kind) is type(value):
        fields = {f.name: encode(getattr(value, f.name), arrays) for f in dataclasses.fields(value)}
        return {"kind": kind, "fields": fields}
    if isinstance(value, Mapping):
        return {"map": [[encode(k, arrays), encode(v, arrays)] for k, v in value.items()]}
    if isinstance(value, tuple | list):
        return {type(value).__name__: [encode(v, arrays) for v in value]}
    if value is None or isinstance(value, str | int | float | bool):
        return value
    raise TypeError(
        "a state may hold arrays, numbers, strings, containers of them, and frozen dataclasses of a module, "
        f"got {type(value).__name__}"
    )


def decode(tree: Any, arrays: Mapping[str, NDArray[Any]]) -> Any:
    """The value again."""
    if not isinstance(tree, dict):
        return tree
    (tag, content), *rest = tree.items()
    match tag:
        case "array":
            return arrays[content]
        case "kind":
            return _rebuilt(content, {k: decode(v, arrays) for k, v in rest[0][1].items()})
        case "map":
            return {decode(k, arrays): decode(v, arrays) for k, v in content}
        case "tuple":
            return tuple(decode(v, arrays) for v in content)
        case "list":
            return [decode(v, arrays) for v in content]
    raise ValueError(f"unknown part {tag!r}")


def _rebuilt(kind: str, values: Mapping[str, Any]) -> Any:
    """A dataclass with these values, set as they are: no code of the class runs."""
    found = _imported(kind)
    if found is None:
        raise ValueError(f"unknown state {kind!r}")
    fields = {f.name: f.default for f in dataclasses.fields(found)}
    values = {**fields, **values}  # a field that a later version added has its default
    if values.keys() != fields.keys() or any(value is dataclasses.MISSING for value in values.values()):
        raise ValueError(f"{kind!r} has other fields than {sorted(values)}")
    built = object.__new__(found)
    for name, value in values.items():
        object.__setattr__(built, name, value)
    return built


def _imported(kind: str) -> Any:
    """The frozen dataclass of a full name if its module is imported already, else None: a file causes no import."""
    words = kind.split(".")
    for cut in range(len(words) - 1, 0, -1):
        found: Any = sys.modules.get(".".join(words[:cut]))
        for word in words[cut:]:
            found = getattr(found, "__dict__", {}).get(word)  # not getattr: a module may import what it is asked for
        if isinstance(found, type) and "__dataclass_params__" in vars(found):
            own = f"{found.__module__}.{found.__qualname__}" == kind
            return found if own and found.__dataclass_params__.frozen else None  # type: ignore[attr-defined]
    return None
