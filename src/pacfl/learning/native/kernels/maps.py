"""Kernels on maps of one sample: convolution, pooling, ReLU, and how gradients find their way back through them."""

from collections.abc import Sequence
from itertools import pairwise

from pacfl.learning.native.emit import FLOATS, INTS, Array, Function, Index, Module, Value
from pacfl.learning.native.layout import row_length
from pacfl.learning.native.plan import Convolve, Map


def parts(n: int, at_most: int) -> list[tuple[int, int]]:
    """Divide n into nearly equal parts: (start, length) of each."""
    count = -(-n // at_most)
    edges = [round(i * n / count) for i in range(count + 1)]
    return [(a, b - a) for a, b in pairwise(edges)]


def write_turn(module: Module, name: str, stage: Convolve) -> Function:
    """`weights` (outputs, kernel rows, taps) -> turned (kernel rows, taps, outputs), as the convolution reads them."""
    row, outputs = row_length(stage, module.target), module.target.padded(stage.result.channels)
    with (
        module.function(name, weights=FLOATS, turned=FLOATS) as f,
        f.loop("kernel_row", stage.kernel[0]) as y,
        f.loop("tap", stage.taps) as t,
    ):
        to = f.turned.at((y * stage.taps + t) * outputs)
        with f.loop("output", stage.result.channels) as o:
            to.put(o, f.weights.number((o * stage.kernel[0] + y) * row + t))
    return f


def write_convolution(module: Module, name: str, stage: Convolve) -> Function:
    """`source` (a map), turned weights, bias -> result (rows, columns, output channels in whole vectors)."""
    target = module.target
    channels = target.padded(stage.result.channels)
    rows, columns = stage.before_pooling
    with module.function(name, source=FLOATS, turned=FLOATS, bias=FLOATS, result=FLOATS) as f:
        for first, count in parts(channels // target.lanes, 2 if target.registers == 16 else 4):
            at_once = (target.registers - 1 - count) // count
            with f.loop("row", rows) as y:
                for start, pixels in parts(columns, at_once):
                    block = _Block(stage, first * target.lanes, count, pixels)
                    source = f.source.at(y * (stage.stride[0] * stage.source.row) + start * _step(stage))
                    _convolve_block(f, block, source, f.result.at((y * columns + start) * channels))
    return f


class _Block:
    """Neighbouring pixels of one row, and some vectors of output channels: what the registers hold at once."""

    def __init__(self, stage: Convolve, channel: int, vectors: int, pixels: int) -> None:
        self.stage, self.channel, self.vectors, self.pixels = stage, channel, vectors, pixels


def _step(stage: Convolve) -> int:
    """Floats from one window to the next in its row."""
    return stage.stride[1] * stage.source.channels


def _convolve_block(f: Function, block: _Block, source: Array, result: Array) -> None:
    stage, lanes = block.stage, f.lanes
    channels = f.module.target.padded(stage.result.channels)
    sums = [
        [f.variable(f"pixel{p}_{v}", f.bias.vector(block.channel + v * lanes)) for v in range(block.vectors)]
        for p in range(block.pixels)
    ]
    with f.loop("kernel_row", stage.kernel[0]) as ky:
        line = source.at(ky * stage.source.row)
        weights = f.turned.at(ky * (stage.taps * channels) + block.channel)
        with f.loop("tap", stage.taps) as t:
            w = [weights.vector(t * channels + v * lanes) for v in range(block.vectors)]
            for p in range(block.pixels):
                x = line.repeated(t + p * _step(stage))
                for v in range(block.vectors):
                    sums[p][v].add_product(x, w[v])
    for p in range(block.pixels):
        for v in range(block.vectors):
            result.put(p * channels + block.channel + v * lanes, sums[p][v].get())


def write_pooling(module: Module, name: str, stage: Convolve) -> Function:
    """Of a convolution (rows, columns, channels in whole vectors): ReLU, and the largest of each window.

    routes (rows, columns, channels) says where in the source map the window lies from which the largest came, -1 where
    ReLU lets nothing through: gradients go back this way.
    """
    target, pool, result = module.target, stage.pool, stage.result
    channels = target.padded(result.channels)
    columns = stage.before_pooling[1]
    with (
        module.function(name, before=FLOATS, result=FLOATS, routes=INTS) as f,
        f.loop("row", result.height) as y,
        f.loop("column", result.width) as x,
    ):
        corner = y * (pool.stride[0] * columns) + x * pool.stride[1]
        window = y * (pool.stride[0] * stage.stride[0] * stage.source.row) + x * (pool.stride[1] * _step(stage))
        for c in range(0, channels, target.lanes):
            members = []
            for i in range(pool.kernel[0]):
                for j in range(pool.kernel[1]):
                    value = f.before.vector((corner + (i * columns + j)) * channels + c)
                    place = window + (i * stage.stride[0] * stage.source.row + j * _step(stage))
                    members.append((value, f.everywhere_int(place)))
            largest, route = largest_of(f, members)
            if stage.relu:
                route = f.choose(largest.not_above(f.zeros()), f.everywhere_int(-1), route)
                route = f.choose(largest.is_no_number(), members[0][1], route)
                largest = f.choose(largest.below(f.zeros()), f.zeros(), largest)
            at = result.origin + y * result.row + x * result.channels + c
            f.result.put(at, largest, lanes=min(target.lanes, result.channels - c))
            f.routes.put((y * result.width + x) * channels + c, route)
    return f


def largest_of(f: Function, members: Sequence[tuple[Value, Value]]) -> tuple[Value, Value]:
    """The first of the largest and what goes with it; what is no number counts as largest of all, as in torch."""
    best, label = members[0]
    for value, its_label in members[1:]:
        better = value.above(best).either(value.is_no_number())
        best, label = f.choose(better, value, best), f.choose(better, its_label, label)
    return best, label


def write_convolution_gradient(module: Module, name: str, stage: Convolve, to_source: bool) -> Function:
    """Add to the gradient of weights and bias, and if asked to that of the source, what one sample's result wants.

    Only windows that were the largest and that ReLU let through take part. For one output after the other these are
    put on a list: where the window lies, and the gradient there.
    """
    kinds = dict.fromkeys(("source", "weights", "gradient", "of_weights", "of_bias"), FLOATS)
    more = {"routes": INTS, "places": INTS, "values": FLOATS}
    with module.function(name, **kinds, **more, **({"of_source": FLOATS} if to_source else {})) as f:
        if to_source:
            write_clearing(f, f.of_source, stage.source.size)
        row = row_length(stage, module.target)
        with f.loop("output", stage.result.channels) as o:
            length = _listed(f, stage, o)
            weights = o * (stage.kernel[0] * row)
            for piece in _pieces(stage, module):
                _add_to_weights(f, piece, weights, length)
                if to_source:
                    _add_to_source(f, piece, weights, length)
    return f


class _Vector:
    """One vector of an output's weights: where among them, where in the window, and how many lanes are weights."""

    def __init__(self, weight: int, source: int, lanes: int) -> None:
        self.weight, self.source, self.lanes = weight, source, lanes


def _pieces(stage: Convolve, module: Module) -> list[list[_Vector]]:
    """All vectors of an output's weights, as many at a time as registers hold."""
    lanes, row = module.target.lanes, row_length(stage, module.target)
    vectors = [
        _Vector(ky * row + t, ky * stage.source.row + t, min(lanes, stage.taps - t))
        for ky in range(stage.kernel[0])
        for t in range(0, stage.taps, lanes)
    ]
    return [vectors[a : a + n] for a, n in parts(len(vectors), module.target.registers - 4)]


def _listed(f: Function, stage: Convolve, o: Value) -> Value:
    """List the windows of output o that take part, add their gradients to the bias, and tell how many they are."""
    result = stage.result
    channels = f.module.target.padded(result.channels)
    length = f.variable("length", f.index(0))
    bias = f.variable("bias", f.of_bias.number(o))
    with f.loop("row", result.height) as y, f.loop("column", result.width) as x:
        place = f.routes.number((y * result.width + x) * channels + o)
        value = f.gradient.number(result.origin + y * result.row + x * result.channels + o)
        takes_part = place.less(0)
        f.places.put(length.get(), place)
        f.values.put(length.get(), value)
        bias.set(f.choose(takes_part, bias.get(), bias.get() + value))
        length.set(f.choose(takes_part, length.get(), length.get() + 1))
    if stage.weights.bias is not None:
        f.of_bias.put(o, bias.get())
    return length.get()


def _add_to_weights(f: Function, piece: list[_Vector], weights: Value, length: Value) -> None:
    sums = [f.variable(f"sum{i}", f.of_weights.vector(weights + v.weight)) for i, v in enumerate(piece)]
    with f.loop("listed", length) as i:
        window, value = f.source.at(f.places.number(i)), f.values.repeated(i)
        for v, total in zip(piece, sums, strict=True):
            total.add_product(value, window.vector(v.source))
    for v, total in zip(piece, sums, strict=True):
        f.of_weights.put(weights + v.weight, f.first_lanes(v.lanes, total.get()))


def _add_to_source(f: Function, piece: list[_Vector], weights: Value, length: Value) -> None:
    kept = [f.weights.vector(weights + v.weight) for v in piece]
    with f.loop("listed", length) as i:
        window, value = f.of_source.at(f.places.number(i)), f.values.repeated(i)
        for v, w in zip(piece, kept, strict=True):
            window.put(v.source, f.multiply_add(value, w, window.vector(v.source)))


def write_clearing(f: Function, array: Array, floats: Index) -> None:
    """Zeros in whole vectors."""
    with f.loop("cleared", floats, step=f.lanes) as i:
        array.put(i, f.zeros())


def write_intake(module: Module, name: str, source: Map) -> Function:
    """A sample as it comes (channels, height, width) -> the map that the first stage reads."""
    with module.function(name, sample=FLOATS, source=FLOATS) as f:
        if source.channels == 1 or source.height * source.width == 1:
            length = source.width * source.channels
            with f.loop("row", source.height) as y:
                _copy(f, f.sample.at(y * length), f.source.at(source.origin + y * source.row), length)
        else:
            with f.loop("row", source.height) as y, f.loop("column", source.width) as x:
                for c in range(source.channels):
                    value = f.sample.number(y * source.width + x + c * source.height * source.width)
                    f.source.put(source.origin + y * source.row + x * source.channels + c, value)
    return f


def _copy(f: Function, sample: Array, to: Array, floats: int) -> None:
    whole = floats - floats % f.lanes
    with f.loop("copied", whole, step=f.lanes) as i:
        to.put(i, sample.vector(i))
    for rest in range(whole, floats):
        to.put(rest, sample.number(rest))
