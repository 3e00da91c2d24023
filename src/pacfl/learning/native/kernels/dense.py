"""Kernels on vectors of many samples at once: the dense layer, and its gradients.

Arrays of samples have a distance from one sample to the next, `apart`; weights lie output by output, in full vectors.
"""

from collections.abc import Callable

from pacfl.learning.native.emit import FLOATS, LONG, Array, Function, Index, Module, Value
from pacfl.learning.native.packing import row_length
from pacfl.learning.native.plan import Dense

SAMPLES_AT_ONCE = 5
INPUTS_AT_ONCE = 1024  # of five samples, 20 kB: they stay in the nearest cache while all outputs pass


def write_dense(module: Module, name: str, stage: Dense, apart: int) -> Function:
    """`source` (samples, inputs) -> result (samples, outputs), for n samples."""
    with module.function(name, source=FLOATS, weights=FLOATS, bias=FLOATS, result=FLOATS, n=LONG) as f:
        in_blocks(f, f.n, lambda first, samples: _write_block(f, stage, apart, first, samples))
    return f


def _write_block(f: Function, stage: Dense, apart: int, first: Value, samples: int) -> None:
    """Some samples: the bias, then products with some inputs after the other, then ReLU."""
    source, result = f.source.at(first * apart), f.result.at(first * apart)
    row, outputs = row_length(stage, f.module.target), f.module.target.padded(stage.outputs)
    with f.loop("output", outputs, step=f.lanes) as o:
        for s in range(samples):
            result.put(o + s * apart, f.bias.vector(o))
    with f.loop("start", row, step=INPUTS_AT_ONCE) as start:
        inputs = start, (start * -1 + row).at_most(INPUTS_AT_ONCE)

        def some(first: Index, count: int) -> None:
            _add_products(f, stage, apart, inputs, (source, result, samples), (first, count))

        in_steps(f, "output", stage.outputs, f.module.target.registers // 8, some)
    if stage.relu:
        with f.loop("output", outputs, step=f.lanes) as o:
            for s in range(samples):
                y = result.vector(o + s * apart)
                result.put(o + s * apart, f.choose(y.below(f.zeros()), f.zeros(), y))


def in_steps(f: Function, name: str, n: int, at_once: int, some: Callable[[Index, int], None]) -> None:
    """Write some(first, count) for n things, at_once of them as long as there are so many, then the rest."""
    in_blocks = n - n % at_once
    with f.loop(name, in_blocks, step=at_once) as i:
        some(i, at_once)
    if in_blocks < n:
        some(in_blocks, n - in_blocks)


def in_blocks(f: Function, n: Value, block: Callable[[Value, int], None]) -> None:
    """Write block(first, samples) for n samples: SAMPLES_AT_ONCE of them, the last block overlapping the one before.

    Fewer than that go one by one. So a block may compute what another computed, the same way, but nothing is left over.
    """
    few = n.less(SAMPLES_AT_ONCE)
    with f.loop("block", f.choose(few, f.index(0), n), step=SAMPLES_AT_ONCE) as i:
        block(i.at_most(n - SAMPLES_AT_ONCE), SAMPLES_AT_ONCE)
    with f.loop("sample", f.choose(few, n, f.index(0))) as i:
        block(i, 1)


def _add_products(
    f: Function,
    stage: Dense,
    apart: int,
    inputs: tuple[Value, Value],
    block: tuple[Array, Array, int],
    some_outputs: tuple[Index, int],
) -> None:
    """Add scalar products of some inputs of a block of samples with the weights of some outputs."""
    (start, count), (source, result, samples), (first, outputs) = inputs, block, some_outputs
    row = row_length(stage, f.module.target)
    source, weights = source.at(start), f.weights.at(first * row + start)
    sums = [[f.variable(f"sum{s}_{o}", f.zeros()) for o in range(outputs)] for s in range(samples)]
    with f.loop("input", count, step=f.lanes) as i:
        w = [weights.vector(i + o * row) for o in range(outputs)]
        for s in range(samples):
            x = source.vector(i + s * apart)
            for o in range(outputs):
                sums[s][o].add_product(x, w[o])
    for s in range(samples):
        for o in range(outputs):
            at = first + (s * apart + o)
            result.put(at, result.number(at) + f.total(sums[s][o].get()))


def write_dense_source_gradient(module: Module, name: str, stage: Dense, apart: int, relu: bool) -> Function:
    """`gradient` (samples, outputs) -> of_source (samples, inputs), zero where the ReLU before the source is shut."""
    vectors = row_length(stage, module.target) // module.target.lanes
    kinds = dict.fromkeys(("source", "weights", "gradient", "of_source"), FLOATS)
    with module.function(name, **kinds, n=LONG) as f:

        def some(first: Index, count: int) -> None:
            in_blocks(f, f.n, lambda s, samples: _back(f, stage, apart, (s, samples), (first * f.lanes, count), relu))

        in_steps(f, "vector", vectors, module.target.registers // 8, some)
    return f


def _back(
    f: Function,
    stage: Dense,
    apart: int,
    some_samples: tuple[Value, int],
    some_vectors: tuple[Index, int],
    relu: bool,
) -> None:
    (sample, samples), (i, vectors) = some_samples, some_vectors
    source, gradient, of_source = (array.at(sample * apart) for array in (f.source, f.gradient, f.of_source))
    row = row_length(stage, f.module.target)
    sums = [[f.variable(f"sum{s}_{v}", f.zeros()) for v in range(vectors)] for s in range(samples)]
    with f.loop("output", stage.outputs) as o:
        w = [f.weights.vector(o * row + i + v * f.lanes) for v in range(vectors)]
        for s in range(samples):
            d = gradient.repeated(o + s * apart)
            for v in range(vectors):
                sums[s][v].add_product(d, w[v])
    for s in range(samples):
        for v in range(vectors):
            at, value = i + (s * apart + v * f.lanes), sums[s][v].get()
            if relu:
                value = f.choose(source.vector(at).is_at_most(f.zeros()), f.zeros(), value)
            of_source.put(at, value)
