"""What kernels have in common: clearing, the largest of some vectors, ReLU."""

from collections.abc import Sequence

from pacfl.learning.native.emit import Array, Function, Index, Value


def vectors_of(n: int, lanes: int) -> list[tuple[int, int]]:
    """Vectors of n floats: (start, lanes that count) of each."""
    return [(start, min(lanes, n - start)) for start in range(0, n, lanes)]


def clear(f: Function, array: Array, floats: Index) -> None:
    """Write zeros, in full vectors."""
    with f.loop("cleared", floats, step=f.lanes) as i:
        array.put(i, f.zeros())


def largest_of(f: Function, members: Sequence[tuple[Value, Value]]) -> tuple[Value, Value]:
    """The first of the largest and what goes with it; NaN counts as the largest, as in torch."""
    best, label = members[0]
    for value, its_label in members[1:]:
        better = value.above(best).either(value.is_nan())
        best, label = f.choose(better, value, best), f.choose(better, its_label, label)
    return best, label


def rectified(f: Function, value: Value, route: Value, relu: bool) -> tuple[Value, Value]:
    """ReLU on request; the route is -1 where it passes no gradient back. NaN stays, and so does its route."""
    if not relu:
        return value, route
    shut = value.is_at_most(f.zeros())
    return f.choose(shut, f.zeros(), value), f.choose(shut, f.everywhere_int(-1), route)
