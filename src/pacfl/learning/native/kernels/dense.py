"""Kernels on vectors of many samples at once: the dense layer, and its gradients.

Arrays of samples have a distance from one sample to the next, `apart`; weights lie output by output, in whole vectors.
"""

from collections.abc import Callable

from pacfl.learning.native.emit import FLOATS, LONG, Array, Function, Index, Module, Value
from pacfl.learning.native.kernels.blocks import vectors_of
from pacfl.learning.native.packing import row_length
from pacfl.learning.native.plan import Dense

SAMPLES_AT_ONCE = 5


def write_dense(module: Module, name: str, stage: Dense, apart: int) -> Function:
    """`source` (samples, inputs) -> result (samples, outputs), for n samples."""
    at_once = module.target.registers // 8
    with module.function(name, source=FLOATS, weights=FLOATS, bias=FLOATS, result=FLOATS, n=LONG) as f:

        def block(first: Value, samples: int) -> None:
            source, result = f.source.at(first * apart), f.result.at(first * apart)
            whole = stage.outputs - stage.outputs % at_once
            with f.loop("output", whole, step=at_once) as o:
                _products(f, stage, (source, result, apart), samples, o, at_once)
            if whole < stage.outputs:
                _products(f, stage, (source, result, apart), samples, whole, stage.outputs - whole)

        in_blocks(f, f.n, block)
    return f


def in_blocks(f: Function, n: Value, block: Callable[[Value, int], None]) -> None:
    """Write block(first, samples) for n samples: SAMPLES_AT_ONCE of them, the last block overlapping the one before.

    Fewer than that go one by one. So a block may compute what another computed, the same way, but nothing is left over.
    """
    few = n.less(SAMPLES_AT_ONCE)
    with f.loop("block", f.choose(few, f.index(0), n), step=SAMPLES_AT_ONCE) as i:
        block(i.at_most(n - SAMPLES_AT_ONCE), SAMPLES_AT_ONCE)
    with f.loop("sample", f.choose(few, n, f.index(0))) as i:
        block(i, 1)


def _products(
    f: Function, stage: Dense, arrays: tuple[Array, Array, int], samples: int, first: Index, outputs: int
) -> None:
    """Scalar products of some samples with the weights of some outputs."""
    source, result, apart = arrays
    row = row_length(stage, f.module.target)
    weights = f.weights.at(first * row)
    sums = [[f.variable(f"sum{s}_{o}", f.zeros()) for o in range(outputs)] for s in range(samples)]
    with f.loop("input", row, step=f.lanes) as i:
        w = [weights.vector(i + o * row) for o in range(outputs)]
        for s in range(samples):
            x = source.vector(i + s * apart)
            for o in range(outputs):
                sums[s][o].add_product(x, w[o])
    for s in range(samples):
        for o in range(outputs):
            y = f.total(sums[s][o].get()) + f.bias.number(first + o)
            if stage.relu:
                y = f.choose(y.below(f.number(0.0)), f.number(0.0), y)
            result.put(first + (s * apart + o), y)


def write_dense_source_gradient(module: Module, name: str, stage: Dense, apart: int, relu: bool) -> Function:
    """`gradient` (samples, outputs) -> of_source (samples, inputs), zero where the ReLU before the source is shut."""
    row = row_length(stage, module.target)
    vectors = row // module.target.lanes
    at_once = module.target.registers // 8
    kinds = dict.fromkeys(("source", "weights", "gradient", "of_source"), FLOATS)
    with module.function(name, **kinds, n=LONG) as f:

        def block(first: Value, samples: int) -> None:
            moved = [array.at(first * apart) for array in (f.source, f.gradient, f.of_source)]
            whole = vectors - vectors % at_once
            with f.loop("input", whole * f.lanes, step=at_once * f.lanes) as i:
                _back(f, stage, moved, (apart, samples, at_once), i, relu)
            if whole < vectors:
                _back(f, stage, moved, (apart, samples, vectors - whole), whole * f.lanes, relu)

        in_blocks(f, f.n, block)
    return f


def _back(f: Function, stage: Dense, arrays: list[Array], size: tuple[int, int, int], i: Index, relu: bool) -> None:
    source, gradient, of_source = arrays
    apart, samples, vectors = size
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


def write_dense_weight_gradient(module: Module, name: str, stage: Dense, apart: int) -> Function:
    """source, gradient -> of_weights (outputs, inputs), of_bias (outputs): sums over n samples."""
    row = row_length(stage, module.target)
    outputs = 4
    whole = stage.outputs - stage.outputs % outputs
    kinds = dict.fromkeys(("source", "gradient", "of_weights", "of_bias"), FLOATS)
    with module.function(name, **kinds, n=LONG) as f:
        with f.loop("output", whole, step=outputs) as o:
            _outer_products(f, apart, o, outputs, row)
        if whole < stage.outputs:
            _outer_products(f, apart, whole, stage.outputs - whole, row)
        if stage.weights.bias is not None:
            _sum_of_samples(f, stage, apart)
    return f


def _outer_products(f: Function, apart: int, first: Index, outputs: int, row: int) -> None:
    at_once = (f.module.target.registers - 1) // 5
    vectors = row // f.lanes
    whole = vectors - vectors % at_once
    with f.loop("input", whole * f.lanes, step=at_once * f.lanes) as i:
        _outer_block(f, apart, (first, outputs), (i, at_once), row)
    if whole < vectors:
        _outer_block(f, apart, (first, outputs), (whole * f.lanes, vectors - whole), row)


def _outer_block(f: Function, apart: int, some: tuple[Index, int], inputs: tuple[Index, int], row: int) -> None:
    (first, outputs), (i, vectors) = some, inputs
    sums = [[f.variable(f"sum{o}_{v}", f.zeros()) for v in range(vectors)] for o in range(outputs)]
    with f.loop("sample", f.n) as s:
        source, gradient = f.source.at(s * apart + i), f.gradient.at(s * apart + first)
        x = [source.vector(v * f.lanes) for v in range(vectors)]
        for o in range(outputs):
            d = gradient.repeated(o)
            for v in range(vectors):
                sums[o][v].add_product(d, x[v])
    for o in range(outputs):
        for v in range(vectors):
            f.of_weights.put(first * row + i + (o * row + v * f.lanes), sums[o][v].get())


def _sum_of_samples(f: Function, stage: Dense, apart: int) -> None:
    for start, lanes in vectors_of(stage.outputs, f.lanes):
        total = f.variable("bias", f.zeros())
        with f.loop("sample", f.n) as s:
            total.set(total.get() + f.gradient.vector(s * apart + start))
        f.of_bias.put(start, f.first_lanes(lanes, total.get()))
