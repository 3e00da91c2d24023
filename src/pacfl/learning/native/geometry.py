"""How the arrays around one convolution are shaped for a target."""

from dataclasses import dataclass

from pacfl.learning.native.plan import Convolve, Map
from pacfl.learning.native.target import Target


def accumulators(target: Target) -> int:
    """How many sums kernels have in registers; the other registers are for factors."""
    return target.registers - 4


def parts(n: int, at_most: int) -> list[tuple[int, int]]:
    """Divide n into nearly equal parts: (start, length) of each.

    >>> parts(28, 12)
    [(0, 9), (9, 10), (19, 9)]
    """
    count = -(-n // at_most)
    edges = [round(i * n / count) for i in range(count + 1)]
    return [(edges[i], edges[i + 1] - edges[i]) for i in range(count)]


def block(vectors: int, scalars: int, registers: int) -> tuple[int, int]:
    """How many vectors to multiply at once with how many scalars, of so many: the products are summed in registers.

    A vector is loaded for all scalars, a scalar for all vectors; a processor adds two products in a step or loads two
    operands, and needs eight sums that do not wait for each other.
    """

    def steps(v: int) -> float:
        s = min(scalars, (registers - 1 - v) // v)
        loads, waiting = (v + s) / (v * s), 8 / (v * s)
        waste = len(parts(vectors, v)) * v / vectors * len(parts(scalars, s)) * s / scalars
        return waste * max(1.0, loads, waiting) + 0.1 * loads

    best = min(range(1, min(vectors, registers // 2 - 1) + 1), key=steps)
    return best, min(scalars, (registers - 1 - best) // best)


def plane_row(source: Map) -> int:
    """Floats from one row of a plane to the next, if channels lie apart, each with its border."""
    return source.width + 2 * source.border[1]


def plane_size(source: Map) -> int:
    """Floats of one such plane."""
    return (source.height + 2 * source.border[0]) * plane_row(source)


def suits_rows(stage: Convolve, target: Target) -> bool:
    """Whether fewer operations are needed with pixels of a row in the lanes than with output channels."""
    rows, columns = stage.before_pooling
    with_pixels = stage.result.channels * rows * target.padded(columns)
    with_channels = target.padded(stage.result.channels) * rows * columns
    return stage.stride[1] == 1 and stage.pool.stride[1] in (1, 2) and with_pixels < with_channels


@dataclass(frozen=True)
class RouteStrides:
    """How routes of a convolution lie: int32 from one output to the next, and from one pixel to the next."""

    output: int
    pixel: int


def route_strides(stage: Convolve, target: Target, by_rows: bool) -> RouteStrides:
    """Outputs apart where pixels are in the lanes, and together where channels are."""
    if by_rows:
        return RouteStrides(output=stage.result.height * stage.result.width, pixel=1)
    return RouteStrides(output=1, pixel=target.padded(stage.result.channels))


def route_size(stage: Convolve, target: Target) -> int:
    """Room for routes, whichever way they lie."""
    return stage.result.height * stage.result.width * target.padded(stage.result.channels)


def size_before_pooling(stage: Convolve, target: Target) -> int:
    """Room for the convolution itself, whichever way it lies."""
    rows, columns = stage.before_pooling
    channels = stage.result.channels
    return rows * max(columns * target.padded(channels), target.padded(columns) * channels)


@dataclass(frozen=True)
class Frame:
    """Weights of a convolution in a frame of zeros, as wide as a window can be away from the corner of its pool.

    The region that all windows of a pool cover is cut into chunks of a few vectors of one row. For every row of the
    frame and every chunk, the weights of all outputs lie together, in slots.
    """

    outputs: int
    region_rows: int
    rows_before: int  # of zeros before the first of the kernel, and after the last
    floats_before: int  # zeros at least before the first weight of a slot
    chunks: tuple[tuple[int, int], ...]  # vectors: (start, length)
    slot: int  # floats

    @property
    def row(self) -> int:
        """Floats from one row to the next."""
        return len(self.chunks) * self.outputs * self.slot

    @property
    def origin(self) -> int:
        """Where a window is read that lies in the corner of its pool, first chunk and first output."""
        return self.rows_before * self.row + self.floats_before

    @property
    def size(self) -> int:
        """Floats of all."""
        return (self.rows_before + self.region_rows) * self.row


def frame_of(stage: Convolve, target: Target) -> Frame:
    """The frame of a convolution's weights."""
    pool = stage.pool.kernel
    rows, floats = (pool[0] - 1) * stage.stride[0], (pool[1] - 1) * stage.step
    chunks = parts(target.padded(stage.taps + floats) // target.lanes, accumulators(target))
    before = target.padded(floats)
    slot = before + max(length for _, length in chunks) * target.lanes
    return Frame(stage.result.channels, stage.kernel[0] + rows, rows, before, tuple(chunks), slot)
