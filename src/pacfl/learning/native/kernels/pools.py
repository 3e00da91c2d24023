"""Kernels on maps for separate stages: largest and mean of windows, ReLU."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from pacfl.learning.native.emit import FLOATS, INTS, Function, Module, Value
from pacfl.learning.native.kernels.blocks import clear, largest_of
from pacfl.learning.native.plan import AvgPool, MaxPool, Rectify


@dataclass(frozen=True)
class _Spot:
    """A pixel of the result: where it lies, where its window begins in the source, and its number."""

    result: Value
    window: Value
    number: Value


@contextmanager
def _each_pixel(f: Function, stage: MaxPool | AvgPool) -> Iterator[_Spot]:
    source, result, stride = stage.source, stage.result, stage.pool.stride
    with f.loop("row", result.height) as y, f.loop("column", result.width) as x:
        yield _Spot(
            result=result.origin + y * result.row + x * result.channels,
            window=source.origin + y * (stride[0] * source.row) + x * (stride[1] * source.channels),
            number=y * result.width + x,
        )


def _window(stage: MaxPool | AvgPool) -> list[int]:
    """Where the pixels of a window lie, from its first."""
    rows, columns = stage.pool.kernel
    return [i * stage.source.row + j * stage.source.channels for i in range(rows) for j in range(columns)]


def write_max_pool(module: Module, name: str, stage: MaxPool) -> Function:
    """`source` -> result, and routes (rows, columns, channels): where in the source the largest lies."""
    channels = stage.result.channels
    padded = module.target.padded(channels)
    with module.function(name, source=FLOATS, result=FLOATS, routes=INTS) as f, _each_pixel(f, stage) as at:
        for c in range(0, channels, f.lanes):
            members = [
                (f.source.vector(at.window + (place + c)), f.everywhere_int(at.window + place))
                for place in _window(stage)
            ]
            largest, route = largest_of(f, members)
            f.result.put(at.result + c, largest, lanes=min(f.lanes, channels - c))
            f.routes.put(at.number * padded + c, route)
    return f


def write_max_pool_gradient(module: Module, name: str, stage: MaxPool) -> Function:
    """`gradient` of the result, routes -> of_source."""
    padded = module.target.padded(stage.result.channels)
    with module.function(name, gradient=FLOATS, routes=INTS, of_source=FLOATS) as f:
        clear(f, f.of_source, stage.source.size)
        with _each_pixel(f, stage) as at, f.loop("channel", stage.result.channels) as c:
            place = f.routes.number(at.number * padded + c) + c
            f.of_source.put(place, f.of_source.number(place) + f.gradient.number(at.result + c))
    return f


def write_mean_pool(module: Module, name: str, stage: AvgPool) -> Function:
    """`source` -> result."""
    channels, window = stage.result.channels, _window(stage)
    with module.function(name, source=FLOATS, result=FLOATS) as f, _each_pixel(f, stage) as at:
        for c in range(0, channels, f.lanes):
            total = f.zeros()
            for place in window:
                total = total + f.source.vector(at.window + (place + c))
            f.result.put(at.result + c, total * (1 / len(window)), lanes=min(f.lanes, channels - c))
    return f


def write_mean_pool_gradient(module: Module, name: str, stage: AvgPool) -> Function:
    """`gradient` of the result -> of_source: an equal share for every pixel of the window."""
    channels, window = stage.result.channels, _window(stage)
    with module.function(name, gradient=FLOATS, of_source=FLOATS) as f:
        clear(f, f.of_source, stage.source.size)
        with _each_pixel(f, stage) as at:
            for c in range(0, channels, f.lanes):
                share = f.gradient.vector(at.result + c) * (1 / len(window))
                for place in window:
                    to = at.window + (place + c)
                    f.of_source.put(to, f.of_source.vector(to) + share, lanes=min(f.lanes, channels - c))
    return f


def write_rectifier(module: Module, name: str, stage: Rectify) -> Function:
    """`source` -> result, which may have a border."""
    with module.function(name, source=FLOATS, result=FLOATS) as f, f.loop("row", stage.result.height) as y:
        _copy_row(f, stage, y, forward=True)
    return f


def write_rectifier_gradient(module: Module, name: str, stage: Rectify) -> Function:
    """source, gradient of the result -> of_source."""
    arguments = dict.fromkeys(("source", "gradient", "of_source"), FLOATS)
    with module.function(name, **arguments) as f, f.loop("row", stage.result.height) as y:
        _copy_row(f, stage, y, forward=False)
    return f


def _copy_row(f: Function, stage: Rectify, y: Value, forward: bool) -> None:
    """Row y, number by number."""
    source, result = stage.source, stage.result
    zero = f.number(0.0)
    with f.loop("number", result.width * result.channels) as i:
        here, there = source.origin + y * source.row + i, result.origin + y * result.row + i
        x = f.source.number(here)
        if forward:
            f.result.put(there, f.choose(x.below(zero), zero, x))
        else:
            f.of_source.put(here, f.choose(x.is_at_most(zero), zero, f.gradient.number(there)))
