"""States as plain values and arrays, so that they can be written without pickling and read without trust."""

import dataclasses
from collections.abc import Mapping
from importlib import import_module
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Arrays = dict[str, NDArray[Any]]

# What may be built from a file, by its full name: nothing else ever is.
KINDS: Final = frozenset(
    {
        "pacfl.algorithms.cfl.CFLState",
        "pacfl.algorithms.scaffold.ScaffoldState",
        "pacfl.federation.algorithm.State",
        "pacfl.federation.membership.PACFLState",
        "pacfl.subspace.clustering.Clustering",
    }
)


def encode(value: Any, arrays: Arrays) -> Any:
    """A tree that JSON can hold, its arrays put into `arrays` by name."""
    if isinstance(value, np.ndarray):
        key = f"a{len(arrays)}"
        arrays[key] = value
        return {"array": key}
    name = f"{type(value).__module__}.{type(value).__qualname__}"
    if name in KINDS:
        fields = {f.name: encode(getattr(value, f.name), arrays) for f in dataclasses.fields(value)}
        return {"kind": name, "fields": fields}
    if isinstance(value, Mapping):
        return {"map": [[encode(k, arrays), encode(v, arrays)] for k, v in value.items()]}
    if isinstance(value, tuple | list):
        return {type(value).__name__: [encode(v, arrays) for v in value]}
    if value is None or isinstance(value, str | int | float | bool):
        return value
    raise TypeError(f"a state may hold arrays, numbers, strings and containers of them, got {type(value).__name__}")


def decode(tree: Any, arrays: Mapping[str, NDArray[Any]]) -> Any:
    """The value again."""
    if not isinstance(tree, dict):
        return tree
    (tag, content), *rest = tree.items()
    match tag:
        case "array":
            return arrays[content]
        case "kind":
            return _kind(content)(**{k: decode(v, arrays) for k, v in rest[0][1].items()})
        case "map":
            return {decode(k, arrays): decode(v, arrays) for k, v in content}
        case "tuple":
            return tuple(decode(v, arrays) for v in content)
        case "list":
            return [decode(v, arrays) for v in content]
    raise ValueError(f"unknown part {tag!r}")


def _kind(name: str) -> Any:
    if name not in KINDS:
        raise ValueError(f"unknown state {name!r}")
    module, _, kind = name.rpartition(".")
    return getattr(import_module(module), kind)
