"""What a module does to one sample, as a list of stages with literal shapes."""

from dataclasses import dataclass, replace
from math import prod
from typing import TypeAlias

Pair: TypeAlias = tuple[int, int]  # rows, columns


@dataclass(frozen=True)
class Map:
    """Features of one sample as they lie in memory: row by row, pixel by pixel, the channels of a pixel together.

    It has a border of zeros for the padding of the stage that reads it.
    """

    channels: int
    height: int
    width: int
    border: Pair = (0, 0)

    @property
    def row(self) -> int:
        """Floats from one row to the next."""
        return (self.width + 2 * self.border[1]) * self.channels

    @property
    def size(self) -> int:
        """Floats in all, the border included."""
        return (self.height + 2 * self.border[0]) * self.row

    @property
    def origin(self) -> int:
        """Where the first pixel lies."""
        return self.border[0] * self.row + self.border[1] * self.channels

    @property
    def features(self) -> int:
        """Numbers that are not border."""
        return self.channels * self.height * self.width

    def windows(self, kernel: Pair, stride: Pair) -> Pair:
        """How many windows fit, border included."""
        height, width = (n + 2 * b for n, b in zip((self.height, self.width), self.border, strict=True))
        return (height - kernel[0]) // stride[0] + 1, (width - kernel[1]) // stride[1] + 1


@dataclass(frozen=True)
class Window:
    """A pooling window."""

    kernel: Pair
    stride: Pair


NO_POOLING = Window((1, 1), (1, 1))


@dataclass(frozen=True)
class Weights:
    """Where a layer's weights begin in the model's vector; None for a layer without bias."""

    weight: int
    bias: int | None


@dataclass(frozen=True)
class Convolve:
    """A convolution, then ReLU if `relu`, then the largest of each window."""

    source: Map
    result: Map
    kernel: Pair
    stride: Pair
    relu: bool
    pool: Window
    weights: Weights

    @property
    def before_pooling(self) -> Pair:
        """Rows and columns of the convolution itself."""
        return self.source.windows(self.kernel, self.stride)

    @property
    def taps(self) -> int:
        """Inputs in one row of the kernel, which lie together."""
        return self.kernel[1] * self.source.channels

    @property
    def step(self) -> int:
        """Floats from one window to the next in its row."""
        return self.stride[1] * self.source.channels


@dataclass(frozen=True)
class MaxPool:
    """The largest of each window, where no convolution comes before."""

    source: Map
    result: Map
    pool: Window


@dataclass(frozen=True)
class AvgPool:
    """The mean of each window."""

    source: Map
    result: Map
    pool: Window


@dataclass(frozen=True)
class Rectify:
    """ReLU, where no convolution or dense layer comes before."""

    source: Map
    result: Map


@dataclass(frozen=True)
class Dense:
    """A linear layer, then ReLU if `relu`."""

    source: Map
    outputs: int
    relu: bool
    weights: Weights

    @property
    def result(self) -> Map:
        """What comes out, as a map of one pixel."""
        return Map(self.outputs, 1, 1)


OnMaps: TypeAlias = Convolve | MaxPool | AvgPool | Rectify


@dataclass(frozen=True)
class Plan:
    """Stages on maps, one sample at a time, then dense ones, many samples at a time."""

    shape: tuple[int, ...]  # of one sample as it comes: channels, height, width, or features alone
    on_maps: tuple[OnMaps, ...]
    dense: tuple[Dense, ...]
    n_weights: int
    frozen: tuple[Pair, ...] = ()  # first and one after the last of the weights that never change

    @property
    def source(self) -> Map:
        """One sample as the first stage reads it."""
        return (self.on_maps or self.dense)[0].source

    @property
    def n_outputs(self) -> int:
        """Classes."""
        return (self.dense or self.on_maps)[-1].result.features

    @property
    def sample_size(self) -> int:
        """Floats of one sample."""
        return prod(self.shape)


def with_borders(stages: tuple[OnMaps, ...], paddings: tuple[Pair, ...]) -> tuple[OnMaps, ...]:
    """Give the source of every stage the border for its padding, and the result of the stage before the same."""
    bordered: list[OnMaps] = []
    for i, stage in enumerate(stages):
        after = paddings[i + 1] if i + 1 < len(stages) else (0, 0)
        source, result = replace(stage.source, border=paddings[i]), replace(stage.result, border=after)
        bordered.append(replace(stage, source=source, result=result))
    return tuple(bordered)
