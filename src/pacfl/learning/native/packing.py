"""Where the weights of a model lie: row by row, each row in full vectors."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pacfl.learning.native.plan import Convolve, Dense, Plan
from pacfl.learning.native.target import Target


@dataclass(frozen=True)
class Place:
    """Where a layer's weights and bias begin among the packed ones."""

    weight: int
    bias: int


@dataclass(frozen=True)
class Packing:
    """The model's vector with every row of weights padded with zeros to full vectors.

    Rows are those of one output: in the order (kernel row, kernel column, channel) for a convolution, and in the order
    in which a map lies in memory for the dense layer that reads one.
    """

    places: tuple[Place, ...]  # of the layers with weights, in the order of the plan
    positions: NDArray[np.int32]  # (d,) where each weight of the model's vector lies
    origins: NDArray[np.int32]  # (size,) which weight lies there; -1 where none does

    @property
    def size(self) -> int:
        """Floats in all."""
        return len(self.origins)


def packing(plan: Plan, target: Target) -> Packing:
    """How the weights of a plan are packed for a target."""
    positions = np.full(plan.n_weights, -1, dtype=np.int32)
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
    origins = np.full(end, -1, dtype=np.int32)
    origins[positions] = np.arange(plan.n_weights)
    return Packing(tuple(places), positions, origins)


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
