"""Where everything lies in memory: weights in whole vectors, and one workspace with a slab for every sample."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pacfl.learning.native.plan import Convolve, Dense, Map, OnMaps, Plan
from pacfl.learning.native.target import Target


@dataclass(frozen=True)
class Place:
    """Where a layer's weights and bias begin among the packed ones."""

    weight: int
    bias: int


@dataclass(frozen=True)
class Packing:
    """The model's vector with every row of weights filled up with zeros to whole vectors.

    Rows are those of one output: in the order (kernel row, kernel column, channel) for a convolution, and in the order
    in which a map lies in memory for the dense layer that reads one.
    """

    places: tuple[Place, ...]  # of the layers with weights, in the order of the plan
    positions: NDArray[np.int64]  # (d,) where each weight of the model's vector lies
    size: int


def packing(plan: Plan, target: Target) -> Packing:
    """How the weights of a plan are packed for a target."""
    positions = np.full(plan.n_weights, -1, dtype=np.int64)
    places: list[Place] = []
    end = 0
    for stage in layers(plan):
        of_weight = _rows(stage, target)
        place = Place(end, end + target.padded(int(of_weight.max()) + 1))
        outputs = _outputs(stage)
        end = place.bias + target.padded(outputs)
        start = stage.weights.weight
        positions[start : start + of_weight.size] = place.weight + of_weight.ravel()
        if stage.weights.bias is not None:
            positions[stage.weights.bias : stage.weights.bias + outputs] = place.bias + np.arange(outputs)
        places.append(place)
    return Packing(tuple(places), positions, end)


def layers(plan: Plan) -> tuple[Convolve | Dense, ...]:
    """The stages that have weights."""
    return (*(s for s in plan.on_maps if isinstance(s, Convolve)), *plan.dense)


def row_length(stage: Convolve | Dense, target: Target) -> int:
    """Floats of one packed row: of a kernel's row for a convolution, of an output for a dense layer."""
    return target.padded(stage.taps if isinstance(stage, Convolve) else stage.source.features)


def _outputs(stage: Convolve | Dense) -> int:
    return stage.result.channels if isinstance(stage, Convolve) else stage.outputs


def _rows(stage: Convolve | Dense, target: Target) -> NDArray[np.int64]:
    """For every weight as torch orders them, its place among the layer's packed ones."""
    row = row_length(stage, target)
    if isinstance(stage, Convolve):
        (height, width), channels = stage.kernel, stage.source.channels
        o, c, y, x = np.ogrid[: stage.result.channels, :channels, :height, :width]
        return np.asarray((o * height + y) * row + x * channels + c)
    source = stage.source
    o, c, y, x = np.ogrid[: stage.outputs, : source.channels, : source.height, : source.width]
    return np.asarray(o * row + (y * source.width + x) * source.channels + c)


@dataclass
class Region:
    """Memory given out piece by piece, in floats."""

    target: Target
    size: int = 0

    def take(self, floats: int) -> int:
        """Room for so many; a vector more is free behind it, for reading beyond the end."""
        start = self.size
        self.size += self.target.padded(floats) + self.target.lanes
        return start


@dataclass(frozen=True)
class OnMapsPlaces:
    """Of one stage on maps: its result and routes in a sample's slab, the gradient of its result in the scratch."""

    result: int
    gradient: int
    routes: int


@dataclass(frozen=True)
class DensePlaces:
    """Of one dense stage, in a sample's slab."""

    result: int
    gradient: int


@dataclass(frozen=True)
class Layout:
    """The workspace: scratch that samples share one after the other, then a slab for every sample of a batch."""

    source: int  # in the slab
    on_maps: tuple[OnMapsPlaces, ...]
    features_gradient: int  # in the slab: of what the last stage on maps gives
    dense: tuple[DensePlaces, ...]
    slab: int  # floats from one sample to the next
    before_pooling: int  # in the scratch
    list_places: int
    list_values: int
    turned: tuple[int, ...]  # in the scratch: weights of convolutions, output channels innermost
    scratch: int

    def floats(self, samples: int) -> int:
        """Size of a workspace for so many samples at once."""
        return self.scratch + samples * self.slab


def layout(plan: Plan, target: Target) -> Layout:
    """Give everything its place."""
    slab, scratch = Region(target), Region(target)
    source = slab.take(plan.source.size)
    on_maps = tuple(_of_maps(stage, target, slab, scratch) for stage in plan.on_maps)
    features = slab.take(plan.on_maps[-1].result.features) if plan.on_maps else 0
    dense = tuple(DensePlaces(slab.take(s.outputs), slab.take(s.outputs)) for s in plan.dense)
    convolutions = [stage for stage in plan.on_maps if isinstance(stage, Convolve)]
    before = max((_pixels(s) * target.padded(s.result.channels) for s in convolutions), default=0)
    positions = max((s.result.height * s.result.width for s in convolutions), default=0)
    turned = tuple(scratch.take(s.kernel[0] * s.taps * target.padded(s.result.channels)) for s in convolutions)
    return Layout(
        source, on_maps, features, dense, _spread(slab.size, target),
        scratch.take(before), scratch.take(positions), scratch.take(positions), turned, scratch.size,
    )  # fmt: skip


def _of_maps(stage: OnMaps, target: Target, slab: Region, scratch: Region) -> OnMapsPlaces:
    result: Map = stage.result
    pixels = result.height * result.width
    return OnMapsPlaces(
        result=slab.take(result.size),
        gradient=scratch.take(result.size),
        routes=slab.take(pixels * target.padded(result.channels)),
    )


def _pixels(stage: Convolve) -> int:
    rows, columns = stage.before_pooling
    return rows * columns


def _spread(floats: int, target: Target) -> int:
    """A distance between slabs that is no multiple of a power of two, so that they do not fight for cache lines."""
    lines = -(-floats // (2 * target.lanes))
    return (lines + 1 - lines % 2) * 2 * target.lanes
