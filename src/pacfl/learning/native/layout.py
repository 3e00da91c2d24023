"""Where everything lies in the workspace of one thread."""

from dataclasses import dataclass

from pacfl.learning.native.geometry import (
    Frame,
    RouteStrides,
    frame_of,
    plane_size,
    route_size,
    route_strides,
    size_before_pooling,
    suits_rows,
)
from pacfl.learning.native.plan import Convolve, MaxPool, OnMaps, Plan
from pacfl.learning.native.target import Target

ENTRY = 2  # floats of an entry in a list of samples: where the sample is (an int32), and a value


@dataclass
class Region:
    """Memory allocated piece by piece, in floats."""

    target: Target
    size: int = 0

    def take(self, floats: int) -> int:
        """Room for so many; a vector more is free behind it, for reading beyond the end."""
        start = self.size
        self.size += self.target.padded(floats) + self.target.lanes
        return start


@dataclass(frozen=True)
class ConvolvePlaces:
    """Of one convolution, in the scratch: weights in the two orders in which kernels read them."""

    by_rows: bool
    routes: RouteStrides
    frame: Frame
    turned: int  # unless by rows
    framed: int  # unless it is the first stage


@dataclass(frozen=True)
class OnMapsPlaces:
    """Of one stage on maps: its result and routes in a sample's slab, the gradient of its result in the scratch."""

    result: int
    gradient: int
    routes: int
    convolve: ConvolvePlaces | None


@dataclass(frozen=True)
class DensePlaces:
    """Of one dense stage, in a sample's slab."""

    result: int
    gradient: int


@dataclass(frozen=True)
class ListPlaces:
    """Lists of windows that a gradient passes, in the scratch."""

    places: int
    values: int
    counts: int


@dataclass(frozen=True)
class Layout:
    """Scratch that samples share one after the other, then a slab for every sample of a batch."""

    source: int  # in the slab
    on_maps: tuple[OnMapsPlaces, ...]
    features_gradient: int  # in the slab: of what the last stage on maps gives
    dense: tuple[DensePlaces, ...]
    entry: int  # in the slab: of a list of samples
    slab: int  # floats from one sample to the next
    planes: int  # in the scratch: one sample with its channels apart
    before_pooling: int
    lists: ListPlaces
    scratch: int

    def floats(self, samples: int) -> int:
        """Size of a workspace for so many samples at once."""
        return self.scratch + samples * self.slab


def layout(plan: Plan, target: Target) -> Layout:
    """Allocate everything."""
    slab, scratch = Region(target), Region(target)
    convolutions = [stage for stage in plan.on_maps if isinstance(stage, Convolve)]
    source = slab.take(plan.source.size)
    on_maps = tuple(_of_maps(stage, i, slab, scratch) for i, stage in enumerate(plan.on_maps))
    features = slab.take(plan.on_maps[-1].result.features) if plan.on_maps else 0
    dense = tuple(DensePlaces(slab.take(s.outputs), slab.take(s.outputs)) for s in plan.dense)
    planes = scratch.take(plan.source.channels * plane_size(plan.source))
    before = scratch.take(max((size_before_pooling(s, target) for s in convolutions), default=0))
    listed = max((route_size(s, target) for s in convolutions), default=0)
    lists = ListPlaces(scratch.take(listed), scratch.take(listed), scratch.take(listed))
    entry = slab.take(ENTRY)
    return Layout(
        source, on_maps, features, dense, entry, _spread(slab.size, target), planes, before, lists, scratch.size
    )


def _of_maps(stage: OnMaps, i: int, slab: Region, scratch: Region) -> OnMapsPlaces:
    target, result = slab.target, stage.result
    routed = isinstance(stage, Convolve | MaxPool)
    return OnMapsPlaces(
        result=slab.take(result.size),
        gradient=scratch.take(result.size),
        routes=slab.take(result.height * result.width * target.padded(result.channels) if routed else 0),
        convolve=_of_convolution(stage, i, scratch) if isinstance(stage, Convolve) else None,
    )


def _of_convolution(stage: Convolve, i: int, scratch: Region) -> ConvolvePlaces:
    target = scratch.target
    by_rows = i == 0 and suits_rows(stage, target)
    frame = frame_of(stage, target)
    turned = stage.kernel[0] * stage.taps * target.padded(stage.result.channels)
    return ConvolvePlaces(
        by_rows=by_rows,
        routes=route_strides(stage, target, by_rows),
        frame=frame,
        turned=scratch.take(0 if by_rows else turned),
        framed=scratch.take(frame.size if i else 0),
    )


def _spread(floats: int, target: Target) -> int:
    """A distance between slabs that is no multiple of a power of two, so that they do not compete for cache lines."""
    lines = -(-floats // (2 * target.lanes))
    return (lines + 1 - lines % 2) * 2 * target.lanes
