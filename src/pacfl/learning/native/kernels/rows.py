"""Convolution with pixels of a row in the lanes of a vector, for a first layer of few channels."""

from dataclasses import dataclass

from pacfl.learning.native.emit import FLOATS, INTS, Array, Function, Index, Module, Value
from pacfl.learning.native.geometry import block, parts, plane_row, plane_size
from pacfl.learning.native.kernels.blocks import largest_of, rectified
from pacfl.learning.native.packing import row_length
from pacfl.learning.native.plan import Convolve


def write_row_convolution(module: Module, name: str, stage: Convolve) -> Function:
    """`planes` (channels, height, width), weights, bias -> result (outputs, rows, columns in full vectors)."""
    target = module.target
    rows, columns = stage.before_pooling
    wide = target.padded(columns)
    arguments = dict.fromkeys(("planes", "weights", "bias", "result"), FLOATS)
    with module.function(name, **arguments) as f, f.loop("row", rows) as y:
        most_vectors, most_outputs = block(wide // target.lanes, stage.result.channels, target.registers)
        for start, vectors in parts(wide // target.lanes, most_vectors):
            for first, outputs in parts(stage.result.channels, most_outputs):
                planes = f.planes.at(y * (stage.stride[0] * plane_row(stage.source)) + start * target.lanes)
                _convolve(
                    f,
                    _Block(stage, first, outputs, vectors),
                    planes,
                    f.result.at((first * rows + y) * wide + start * target.lanes),
                )
    return f


@dataclass(frozen=True)
class _Block:
    """Some outputs, and some vectors of one row: what fits in the registers at once."""

    stage: Convolve
    first: int
    outputs: int
    vectors: int


def _convolve(f: Function, some: _Block, planes: Array, result: Array) -> None:
    stage, lanes = some.stage, f.lanes
    (height, width), channels, source = stage.kernel, stage.source.channels, stage.source
    row = row_length(stage, f.module.target)
    sums = [
        [f.variable(f"sum{o}_{v}", f.bias.repeated(some.first + o)) for v in range(some.vectors)]
        for o in range(some.outputs)
    ]
    with f.loop("channel", channels) as c, f.loop("kernel_row", height) as ky, f.loop("kernel_column", width) as kx:
        line = planes.at(c * plane_size(source) + ky * plane_row(source) + kx)
        weights = f.weights.at(ky * row + kx * channels + c)
        x = [line.vector(v * lanes) for v in range(some.vectors)]
        for o in range(some.outputs):
            w = weights.repeated((some.first + o) * height * row)
            for v in range(some.vectors):
                sums[o][v].add_product(w, x[v])
    rows, columns = stage.before_pooling
    for o in range(some.outputs):
        for v in range(some.vectors):
            result.put(o * rows * f.module.target.padded(columns) + v * lanes, sums[o][v].get())


def write_row_pooling(module: Module, name: str, stage: Convolve) -> Function:
    """As the pooling of `channels`, of a convolution (outputs, rows, columns); routes (outputs, rows, columns)."""
    result, pool, lanes = stage.result, stage.pool, module.target.lanes
    rows, columns = stage.before_pooling
    wide = module.target.padded(columns)
    with module.function(name, before=FLOATS, result=FLOATS, routes=INTS) as f, f.loop("row", result.height) as y:
        for x in range(0, result.width, lanes):
            n = min(lanes, result.width - x)
            with f.loop("output", result.channels) as o:
                corner = (o * rows + y * pool.stride[0]) * wide + x * pool.stride[1]
                largest, route = _pooled(f, stage, corner, y * pool.stride[0], x * pool.stride[1])
                to = f.result.at(result.origin + y * result.row + x * result.channels + o)
                for lane in range(n):
                    to.put(lane * result.channels, f.lane(largest, lane))
                f.routes.put((o * result.height + y) * result.width + x, route, lanes=n)
    return f


def _pooled(f: Function, stage: Convolve, corner: Value, y: Value, x: int) -> tuple[Value, Value]:
    """The largest of neighbouring windows, and where in the source it came from."""
    pool, wide, source = stage.pool, f.module.target.padded(stage.before_pooling[1]), stage.source
    members = []
    for i in range(pool.kernel[0]):
        for j in range(pool.kernel[1]):
            value = _every(f, f.before, corner + (i * wide + j), pool.stride[1])
            place = (y + i) * (stage.stride[0] * source.row) + (x + j) * source.channels
            members.append((value, f.counting(place, pool.stride[1] * source.channels)))
    return rectified(f, *largest_of(f, members), stage.relu)


def _every(f: Function, array: Array, at: Index, stride: int) -> Value:
    """A vector of every element, or of every second."""
    near = array.vector(at)
    if stride == 1:
        return near
    return f.shuffled(near, array.vector(at + f.lanes), list(range(0, 2 * f.lanes, 2)))
