"""A small language of vectors in which kernels are written; it is translated to the text of LLVM.

Kernels are Python functions that write machine functions. What is known when they write (shapes, strides) are plain
Python numbers; what is known only when the machine runs (a position in a loop, a loaded vector) is a `Value`.
"""

from pacfl.learning.native.emit.functions import Function, Module
from pacfl.learning.native.emit.values import (
    FLOAT,
    FLOATS,
    INT,
    INTS,
    LONG,
    LONGS,
    Array,
    Index,
    Value,
    Variable,
)

__all__ = [
    "FLOAT", "FLOATS", "INT", "INTS", "LONG", "LONGS", "Array", "Function", "Index", "Module", "Value", "Variable",
]  # fmt: skip
