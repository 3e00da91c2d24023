"""How gradients go back through a convolution with its ReLU and pooling.

Only windows that were the largest of their pool, and that ReLU let through, take part. They are put on lists: for the
gradient of the weights one list for each output, for the gradient of the source one for each pool. Then for every
list some vectors of the gradient are summed up in registers.
"""

from dataclasses import dataclass

from pacfl.learning.native.emit import FLOATS, INTS, Array, Function, Module, Value, Variable
from pacfl.learning.native.geometry import Frame, RouteStrides, accumulators, parts
from pacfl.learning.native.kernels.blocks import clear
from pacfl.learning.native.packing import row_length
from pacfl.learning.native.plan import Convolve

NEAREST_CACHE = 8192  # floats of it that one kernel may fill


def write_weight_gradient(module: Module, name: str, stage: Convolve, strides: RouteStrides) -> Function:
    """Add to the gradient of weights and bias the part of one sample: for each window, value times source."""
    kinds = dict.fromkeys(("source", "gradient", "of_weights", "of_bias", "values"), FLOATS)
    size = stage.kernel[0] * row_length(stage, module.target)
    positions = stage.result.height * stage.result.width
    with module.function(name, **kinds, routes=INTS, places=INTS, counts=INTS) as f:
        _list_by_output(f, stage, strides)
        for number, piece in enumerate(_pieces(stage, module)):
            with f.loop("output", stage.result.channels) as o:
                lists = f.places.at(o * positions), f.values.at(o * positions), f.counts.number(o)
                bias = f.of_bias.at(o) if number == 0 and stage.weights.bias is not None else None
                _add_to_weights(f, piece, f.of_weights.at(o * size), lists, bias)
    return f


@dataclass(frozen=True)
class _Vector:
    """One vector of an output's weights: where among them, where in the window, and how many lanes are weights."""

    weight: int
    source: int
    lanes: int


def _pieces(stage: Convolve, module: Module) -> list[list[_Vector]]:
    """All vectors of an output's weights, as many at a time as fit in the registers."""
    lanes, row = module.target.lanes, row_length(stage, module.target)
    vectors = [
        _Vector(ky * row + t, ky * stage.source.row + t, min(lanes, stage.taps - t))
        for ky in range(stage.kernel[0])
        for t in range(0, stage.taps, lanes)
    ]
    return [vectors[a : a + n] for a, n in parts(len(vectors), accumulators(module.target))]


def _list_by_output(f: Function, stage: Convolve, strides: RouteStrides) -> None:
    """For every output: where its windows lie in the source, and the gradients there."""
    result = stage.result
    with f.loop("output", result.channels) as o:
        first = o * (result.height * result.width)
        end = f.variable("end", first)
        with f.loop("row", result.height) as y, f.loop("column", result.width) as x:
            place = f.routes.number(o * strides.output + (y * result.width + x) * strides.pixel)
            value = f.gradient.number(result.origin + y * result.row + x * result.channels + o)
            _append(f, end, (f.places, place), (f.values, value), takes_part=place)
        f.counts.put(o, end.get() - first)


def _append(
    f: Function, end: Variable, place: tuple[Array, Value], value: tuple[Array, Value], takes_part: Value
) -> None:
    """Write at the end of a list, and move the end only if the route is open: so there is no branch to mispredict."""
    at = end.get()
    for array, what in (place, value):
        array.put(at, what)
    end.set(f.choose(takes_part.less(0), at, at + 1))


def _add_to_weights(
    f: Function, piece: list[_Vector], of_weights: Array, lists: tuple[Array, Array, Value], of_bias: Array | None
) -> None:
    places, values, length = lists
    sums = [f.variable(f"sum{i}", of_weights.vector(v.weight)) for i, v in enumerate(piece)]
    total = f.variable("bias", f.number(0.0))
    with f.loop("listed", length) as i:
        window, value = f.source.at(places.number(i)), values.number(i)
        for v, sum_ in zip(piece, sums, strict=True):
            sum_.add_product(f.everywhere(value), window.vector(v.source))
        if of_bias is not None:
            total.set(total.get() + value)
    for v, sum_ in zip(piece, sums, strict=True):
        of_weights.put(v.weight, f.first_lanes(v.lanes, sum_.get()))
    if of_bias is not None:
        of_bias.put(0, of_bias.number(0) + total.get())


def write_framing(module: Module, name: str, stage: Convolve, frame: Frame) -> Function:
    """`weights` -> framed, which `write_source_gradient` reads; what is zero in the frame is never written."""
    row, lanes = row_length(stage, module.target), module.target.lanes
    with (
        module.function(name, weights=FLOATS, framed=FLOATS) as f,
        f.loop("output", stage.result.channels) as o,
        f.loop("kernel_row", stage.kernel[0]) as ky,
    ):
        weights = f.weights.at((o * stage.kernel[0] + ky) * row)
        for chunk, (start, vectors) in enumerate(frame.chunks):
            slot = f.framed.at((ky + frame.rows_before) * frame.row + (chunk * frame.outputs + o) * frame.slot)
            first = max(0, start * lanes - frame.floats_before)
            for t in range(first, min(row, (start + vectors) * lanes), lanes):
                slot.put(frame.floats_before + t - start * lanes, weights.vector(t))
    return f


def write_source_gradient(module: Module, name: str, stage: Convolve, strides: RouteStrides, frame: Frame) -> Function:
    """The gradient of the source: for each pool, the weights of every window that was its largest, times its value.

    Weights lie in a frame of zeros, so that a window that lies elsewhere in its pool is read from elsewhere in the
    frame, and the sums in the registers are those of one region: all that the pool's windows cover.
    """
    kinds = dict.fromkeys(("framed", "gradient", "values", "of_source"), FLOATS)
    result, pool = stage.result, stage.pool
    down, right = pool.stride[0] * stage.stride[0] * stage.source.row, pool.stride[1] * stage.step
    with module.function(name, **kinds, routes=INTS, places=INTS, counts=INTS) as f:
        clear(f, f.of_source, stage.source.size)
        at_once = _outputs_at_once(frame)
        with f.loop("first_output", result.channels, step=at_once) as first:
            outputs = first, (first * -1 + result.channels).at_most(at_once)
            _list_by_pool(f, stage, strides, frame, outputs)
            for piece in _framed_pieces(stage, module, frame):
                with f.loop("row", result.height) as y, f.loop("column", result.width) as x:
                    number = y * result.width + x
                    places, values = (array.at(number * result.channels) for array in (f.places, f.values))
                    region = f.of_source.at(y * down + x * right)
                    _add_to_source(f, piece, region, (places, values, f.counts.number(number)))
    return f


def _outputs_at_once(frame: Frame) -> int:
    """So few that what is read of the frame for one piece of the region stays in the nearest cache."""
    rows = frame.rows_before + 2
    return max(4, min(frame.outputs, NEAREST_CACHE // (rows * frame.slot)))


def _list_by_pool(
    f: Function, stage: Convolve, strides: RouteStrides, frame: Frame, outputs: tuple[Value, Value]
) -> None:
    """For every pool and some outputs: where in the frame the weights of its windows are read, and gradients."""
    result, pool = stage.result, stage.pool
    down, right = stage.stride[0] * stage.source.row, stage.step
    with f.loop("row", result.height) as y, f.loop("column", result.width) as x:
        number = y * result.width + x
        corner = y * (pool.stride[0] * down) + x * (pool.stride[1] * right)
        first = number * result.channels
        end = f.variable("end", first)
        with f.loop("output", outputs[1]) as i:
            o = outputs[0] + i
            route = f.routes.number(o * strides.output + number * strides.pixel)
            value = f.gradient.number(result.origin + y * result.row + x * result.channels + o)
            away = route - corner  # rows times `down`, and columns times `right`
            place = frame.origin + o * frame.slot - away
            for row in range(1, pool.kernel[0]):
                jump = stage.stride[0] * frame.row - down
                place = f.choose(away.less(row * down), place, place - jump)
            _append(f, end, (f.places, place), (f.values, value), takes_part=route)
        f.counts.put(number, end.get() - first)


@dataclass(frozen=True)
class _FramedVector:
    """One vector of the region that a pool's windows cover: where in the frame, and where in the source."""

    frame: int
    source: int


def _framed_pieces(stage: Convolve, module: Module, frame: Frame) -> list[list[_FramedVector]]:
    """All vectors of the region, as many at a time as fit in the registers."""
    lanes, most = module.target.lanes, accumulators(module.target)
    by_row = [
        [
            _FramedVector(y * frame.row + chunk * frame.outputs * frame.slot + v * lanes,
                          y * stage.source.row + (start + v) * lanes)
            for v in range(vectors)
        ]
        for y in range(frame.region_rows)
        for chunk, (start, vectors) in enumerate(frame.chunks)
    ]  # fmt: skip
    together = max(1, most // max(len(row) for row in by_row))
    return [[vector for row in by_row[a : a + n] for vector in row] for a, n in parts(len(by_row), together)]


def _add_to_source(
    f: Function, piece: list[_FramedVector], of_source: Array, lists: tuple[Array, Array, Value]
) -> None:
    places, values, length = lists
    sums = [f.variable(f"sum{i}", f.zeros()) for i in range(len(piece))]
    with f.loop("listed", length) as i:
        weights, value = f.framed.at(places.number(i)), values.repeated(i)
        for v, sum_ in zip(piece, sums, strict=True):
            sum_.add_product(value, weights.vector(v.frame))
    for v, sum_ in zip(piece, sums, strict=True):
        of_source.put(v.source, of_source.vector(v.source) + sum_.get())
