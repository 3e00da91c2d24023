"""The model's vector <-> packed weights, by a list of where each number comes from."""

from pacfl.learning.native.emit import FLOATS, INTS, LONG, Function, Module


def write_reordering(module: Module, name: str) -> Function:
    """`to[i]` <- given[origins[i]], or zero where that is negative, for n numbers."""
    with (
        module.function(name, public=True, given=FLOATS, origins=INTS, to=FLOATS, n=LONG) as f,
        f.loop("number", f.n) as i,
    ):
        origin = f.origins.number(i)
        value = f.given.number(origin.at_least(0))
        f.to.put(i, f.choose(origin.less(0), f.number(0.0), value))
    return f
