"""The gradient of a dense layer's weights, stored or used for a step of SGD at once.

For an output, only samples take part whose gradient there is not zero: ReLU shuts about half of them out. They are put
on a list, one entry in the slab of a sample.
"""

from collections.abc import Callable

from pacfl.learning.native.emit import FLOATS, LONG, Function, Index, Module, Value
from pacfl.learning.native.geometry import accumulators, parts
from pacfl.learning.native.kernels.blocks import vectors_of
from pacfl.learning.native.kernels.dense import in_steps
from pacfl.learning.native.kernels.step import RATES, Step
from pacfl.learning.native.packing import row_length
from pacfl.learning.native.plan import Dense

INPUTS_AT_ONCE = 1024  # of ten samples, 40 kB: they stay in a near cache while all outputs pass

Use = Callable[[Index, Value], None]  # of the gradient of the weights from an index on


def write_dense_weight_gradient(module: Module, name: str, stage: Dense, apart: int) -> Function:
    """`source` (n, inputs), gradient (n, outputs) -> of_weights: those of (outputs, inputs), then the bias."""
    arguments = dict.fromkeys(("source", "gradient", "entries", "of_weights"), FLOATS)
    with module.function(name, **arguments, n=LONG) as f:
        _write_sums(f, stage, apart, f.of_weights.put)
    return f


def write_dense_step(module: Module, name: str, stage: Dense, apart: int) -> Function:
    """`source`, gradient -> a step of weights (outputs, inputs), then the bias, and of their velocity."""
    arguments = dict.fromkeys(("source", "gradient", "entries", "weights", "velocity"), FLOATS)
    with module.function(name, **arguments, n=LONG, **RATES) as f:
        step = Step.of(f)
        _write_sums(f, stage, apart, lambda i, g: step.take(f, i, g))
    return f


def _write_sums(f: Function, stage: Dense, apart: int, use: Use) -> None:
    """Sums over samples, piece by piece of a row: as many vectors as fit in the registers."""
    row = row_length(stage, f.module.target)
    for start, vectors in parts(row // f.lanes, INPUTS_AT_ONCE // f.lanes):
        with f.loop("output", stage.outputs) as o:
            length = _listed(f, apart, o)

            def piece(first: Index, count: int) -> None:
                at = (first + start) * f.lanes  # noqa: B023 - called before the loop continues
                _sum_piece(f, apart, (at, count), length, lambda i, g: use(o * row + i, g))  # noqa: B023

            in_steps(f, "piece", vectors, _even(vectors, accumulators(f.module.target)), piece)
    if stage.weights.bias is not None:
        _sum_bias(f, stage, apart, lambda at, g: use(at + stage.outputs * row, g))


def _even(n: int, at_most: int) -> int:
    """A size of nearly equal pieces."""
    return -(-n // -(-n // at_most))


def _listed(f: Function, apart: int, o: Value) -> Value:
    """List the samples with a gradient at output o, and return their number."""
    end = f.variable("end", f.index(0))
    with f.loop("sample", f.n) as s:
        place = s * apart
        value = f.gradient.number(place + o)
        entry = f.entries.at(end.get() * apart)
        entry.ints().put(0, place)
        entry.put(1, value)
        end.set(f.choose(value.is_zero(), end.get(), end.get() + 1))
    return end.get()


def _sum_piece(f: Function, apart: int, inputs: tuple[Index, int], length: Value, use: Use) -> None:
    first, vectors = inputs
    sums = [f.variable(f"sum{v}", f.zeros()) for v in range(vectors)]
    with f.loop("listed", length) as i:
        entry = f.entries.at(i * apart)
        source, value = f.source.at(entry.ints().number(0) + first), entry.repeated(1)
        for v, total in enumerate(sums):
            total.add_product(value, source.vector(v * f.lanes))
    for v, total in enumerate(sums):
        use(first + v * f.lanes, total.get())


def _sum_bias(f: Function, stage: Dense, apart: int, use: Use) -> None:
    for start, lanes in vectors_of(stage.outputs, f.lanes):
        total = f.variable("bias", f.zeros())
        with f.loop("sample", f.n) as s:
            total.set(total.get() + f.gradient.vector(s * apart + start))
        use(start, f.first_lanes(lanes, total.get()))
