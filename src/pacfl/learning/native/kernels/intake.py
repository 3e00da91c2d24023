"""A sample as it comes, channel by channel -> the map that the first stage reads, pixel by pixel."""

from pacfl.learning.native.emit import FLOATS, Array, Function, Module, Value
from pacfl.learning.native.geometry import plane_row, plane_size
from pacfl.learning.native.plan import Map

WOVEN = 4  # channels that are woven together in registers; more are moved number by number


def write_intake(module: Module, name: str, source: Map) -> Function:
    """`sample` (channels, height, width) -> source, a map with its border."""
    with module.function(name, sample=FLOATS, source=FLOATS) as f:
        if source.channels == 1 or source.height * source.width == 1:
            length = source.width * source.channels
            with f.loop("row", source.height) as y:
                copy(f, f.sample.at(y * length), f.source.at(source.origin + y * source.row), length)
        else:
            with f.loop("row", source.height) as y:
                _weave(f, source, f.sample.at(y * source.width), f.source.at(source.origin + y * source.row))
    return f


def write_planes(module: Module, name: str, source: Map) -> Function:
    """`sample` (channels, height, width) -> planes, the same with a border around each channel."""
    plane, row = plane_size(source), plane_row(source)
    start = source.border[0] * row + source.border[1]
    with (
        module.function(name, sample=FLOATS, planes=FLOATS) as f,
        f.loop("channel", source.channels) as c,
        f.loop("row", source.height) as y,
    ):
        line = f.sample.at((c * source.height + y) * source.width)
        copy(f, line, f.planes.at(c * plane + y * row + start), source.width)
    return f


def copy(f: Function, given: Array, to: Array, floats: int) -> None:
    """Copy floats, in vectors as far as possible."""
    in_vectors = floats - floats % f.lanes
    with f.loop("copied", in_vectors, step=f.lanes) as i:
        to.put(i, given.vector(i))
    for rest in range(in_vectors, floats):
        to.put(rest, given.number(rest))


def _weave(f: Function, source: Map, line: Array, to: Array) -> None:
    """One row of all channels."""
    n, plane = source.channels, source.height * source.width
    in_vectors = source.width - source.width % f.lanes if n <= WOVEN else 0
    with f.loop("column", in_vectors, step=f.lanes) as x:
        for i, vector in enumerate(woven(f, [line.vector(x + c * plane) for c in range(n)])):
            to.put(x * n + i * f.lanes, vector)
    with f.loop("column", source.width - in_vectors) as rest:
        for c in range(n):
            to.put((rest + in_vectors) * n + c, line.number(rest + (in_vectors + c * plane)))


def woven(f: Function, vectors: list[Value]) -> list[Value]:
    """The first lanes of all vectors, then their second lanes, and so on, in as many vectors."""
    n = len(vectors)
    side_by_side = vectors[0]
    for i, vector in enumerate(vectors[1:], start=1):
        widened = f.shuffled(vector, vector, [min(j, f.lanes - 1) for j in range(i * f.lanes)])
        side_by_side = f.shuffled(side_by_side, widened, list(range((i + 1) * f.lanes)))
    order = [c * f.lanes + lane for lane in range(f.lanes) for c in range(n)]
    return [f.shuffled(side_by_side, side_by_side, order[i * f.lanes : (i + 1) * f.lanes]) for i in range(n)]
