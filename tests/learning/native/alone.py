"""One kernel compiled alone and called with arrays, and maps as kernels see them."""

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from pacfl.learning.native.compiling import Machine
from pacfl.learning.native.emit import Function, Module
from pacfl.learning.native.plan import Map
from pacfl.learning.native.target import Target, machine

Array = NDArray[Any]
GUARD = 64  # numbers behind an array that kernels may read and must not change

# Code that every 64-bit processor of the kind can run, whatever more it can do
AVX2 = Target("haswell", "", lanes=8, registers=16)
SSE = Target("x86-64", "", lanes=4, registers=16)
AVX512 = Target("skylake-avx512", "", lanes=16, registers=32)
TARGETS = [SSE] + ([AVX2] if machine().lanes >= AVX2.lanes else []) + ([machine()] if machine().lanes > 8 else [])
targets = pytest.mark.parametrize("target", TARGETS, ids=lambda t: f"{t.lanes} lanes")


def drawn(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def tensor(x: Array, grad: bool = False) -> torch.Tensor:
    return torch.tensor(np.array(x, dtype=np.float32), requires_grad=grad)


def call(target: Target, write: Callable[[Module], Function], *arguments: Array | int | float) -> None:
    """Compile what is written for a target, and call it; arrays are changed in place."""
    module = Module("alone", target)
    function = write(module)
    function.ir.linkage = "external"
    kinds = [_kind(a) for a in arguments]
    machine = Machine(str(module.ir), target)
    machine.function(function.ir.name, kinds)(*(a.ctypes.data if isinstance(a, np.ndarray) else a for a in arguments))
    for array in arguments:
        if isinstance(array, np.ndarray) and isinstance(array.base, np.ndarray):
            assert np.array_equal(array.base[len(array) :], np.full(GUARD, 7, array.dtype)), "written beyond the end"


def room(values: Array | int, dtype: type = np.float32) -> Array:
    """A flat array of values, or of so many zeros, with a guard behind it."""
    flat = np.zeros(values) if isinstance(values, int) else np.asarray(values).ravel()
    guarded = np.concatenate([flat, np.full(GUARD, 7)]).astype(dtype)
    return guarded[: len(flat)]


def laid_out(x: Array, place: Map) -> Array:
    """(channels, height, width) as it lies in a map, with the map's border of zeros."""
    (above, beside), (c, h, w) = place.border, x.shape
    padded = np.zeros((h + 2 * above, w + 2 * beside, c))
    padded[above : above + h, beside : beside + w] = x.transpose(1, 2, 0)
    return room(padded)


def taken_out(flat: Array, place: Map) -> Array:
    """The inverse of `laid_out`."""
    above, beside = place.border
    full = flat[: place.size].reshape(place.height + 2 * above, place.width + 2 * beside, place.channels)
    return full[above : above + place.height, beside : beside + place.width].transpose(2, 0, 1)


def _kind(argument: Array | int | float) -> Any:
    if isinstance(argument, np.ndarray):
        return ctypes.c_void_p
    return ctypes.c_float if isinstance(argument, float) else ctypes.c_int64
