"""States as plain values and arrays, so that they can be written without pickling and read without trust."""

import dataclasses
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from pacfl.algorithms.cfl import CFLState
from pacfl.algorithms.scaffold import ScaffoldState
from pacfl.federation.algorithm import State
from pacfl.federation.membership import PACFLState
from pacfl.subspace import Clustering

Arrays = dict[str, NDArray[Any]]

# What may be built from a file, by name: nothing else ever is.
KINDS: Final[Mapping[str, type[Any]]] = {
    kind.__name__: kind for kind in (State, ScaffoldState, CFLState, PACFLState, Clustering)
}


def encode(value: Any, arrays: Arrays) -> Any:
    """A tree that JSON can hold, its arrays put into `arrays` by name."""
    if isinstance(value, np.ndarray):
        name = f"a{len(arrays)}"
        arrays[name] = value
        return {"array": name}
    if dataclasses.is_dataclass(value) and type(value).__name__ in KINDS:
        fields = {f.name: encode(getattr(value, f.name), arrays) for f in dataclasses.fields(value)}
        return {"kind": type(value).__name__, "fields": fields}
    if isinstance(value, Mapping):
        return {"map": [[encode(k, arrays), encode(v, arrays)] for k, v in value.items()]}
    if isinstance(value, tuple | list):
        return {type(value).__name__: [encode(v, arrays) for v in value]}
    if value is None or isinstance(value, str | int | float | bool):
        return value
    raise TypeError(f"a state may hold arrays, numbers, words and containers of them, got {type(value).__name__}")


def decode(tree: Any, arrays: Mapping[str, NDArray[Any]]) -> Any:
    """The value again."""
    if not isinstance(tree, dict):
        return tree
    (tag, content), *rest = tree.items()
    match tag:
        case "array":
            return arrays[content]
        case "kind":
            return KINDS[content](**{k: decode(v, arrays) for k, v in rest[0][1].items()})
        case "map":
            return {decode(k, arrays): decode(v, arrays) for k, v in content}
        case "tuple":
            return tuple(decode(v, arrays) for v in content)
        case "list":
            return [decode(v, arrays) for v in content]
    raise ValueError(f"unknown part {tag!r}")
