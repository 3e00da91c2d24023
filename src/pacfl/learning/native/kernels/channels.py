"""Convolution with output channels in the lanes of a vector, and the pooling after it."""

from dataclasses import dataclass

from pacfl.learning.native.emit import FLOATS, INTS, Array, Function, Module
from pacfl.learning.native.geometry import accumulators, parts
from pacfl.learning.native.kernels.blocks import largest_of, rectified
from pacfl.learning.native.packing import row_length
from pacfl.learning.native.plan import Convolve

VECTORS = 2  # of channels that are computed at once: fewer leave room for more pixels


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
    """`source` (a map), turned weights, bias -> result (rows, columns, output channels in full vectors)."""
    target = module.target
    channels = target.padded(stage.result.channels)
    rows, columns = stage.before_pooling
    with module.function(name, source=FLOATS, turned=FLOATS, bias=FLOATS, result=FLOATS) as f:
        for first, vectors in parts(channels // target.lanes, VECTORS):
            with f.loop("row", rows) as y:
                for start, pixels in parts(columns, accumulators(target) // vectors):
                    block = _Block(stage, first * target.lanes, vectors, pixels)
                    source = f.source.at(y * (stage.stride[0] * stage.source.row) + start * stage.step)
                    _convolve(f, block, source, f.result.at((y * columns + start) * channels))
    return f


@dataclass(frozen=True)
class _Block:
    """Neighbouring pixels of one row, and some vectors of output channels: what fits in the registers at once."""

    stage: Convolve
    channel: int
    vectors: int
    pixels: int


def _convolve(f: Function, block: _Block, source: Array, result: Array) -> None:
    stage, lanes = block.stage, f.lanes
    channels = f.module.target.padded(stage.result.channels)
    sums = [
        [f.variable(f"sum{p}_{v}", f.bias.vector(block.channel + v * lanes)) for v in range(block.vectors)]
        for p in range(block.pixels)
    ]
    with f.loop("kernel_row", stage.kernel[0]) as ky:
        line = source.at(ky * stage.source.row)
        weights = f.turned.at(ky * (stage.taps * channels) + block.channel)
        with f.loop("tap", stage.taps) as t:
            w = [weights.vector(t * channels + v * lanes) for v in range(block.vectors)]
            for p in range(block.pixels):
                x = line.repeated(t + p * stage.step)
                for v in range(block.vectors):
                    sums[p][v].add_product(x, w[v])
    for p in range(block.pixels):
        for v in range(block.vectors):
            result.put(p * channels + block.channel + v * lanes, sums[p][v].get())


def write_pooling(module: Module, name: str, stage: Convolve) -> Function:
    """Of a convolution (rows, columns, channels in full vectors): ReLU, and the largest of each window.

    routes (rows, columns, channels) says where in the source the window lies from which the largest came, -1 where
    ReLU lets nothing through: gradients go back this way.
    """
    target, pool, result = module.target, stage.pool, stage.result
    channels = target.padded(result.channels)
    columns = stage.before_pooling[1]
    down = stage.stride[0] * stage.source.row
    with (
        module.function(name, before=FLOATS, result=FLOATS, routes=INTS) as f,
        f.loop("row", result.height) as y,
        f.loop("column", result.width) as x,
    ):
        corner = y * (pool.stride[0] * columns) + x * pool.stride[1]
        window = y * (pool.stride[0] * down) + x * (pool.stride[1] * stage.step)
        for c in range(0, channels, target.lanes):
            members = [
                (
                    f.before.vector((corner + (i * columns + j)) * channels + c),
                    f.everywhere_int(window + (i * down + j * stage.step)),
                )
                for i in range(pool.kernel[0])
                for j in range(pool.kernel[1])
            ]
            largest, route = rectified(f, *largest_of(f, members), stage.relu)
            at = result.origin + y * result.row + x * result.channels + c
            f.result.put(at, largest, lanes=min(target.lanes, result.channels - c))
            f.routes.put((y * result.width + x) * channels + c, route)
    return f
