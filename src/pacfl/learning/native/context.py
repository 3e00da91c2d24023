"""What all functions of a program are written with."""

from dataclasses import dataclass

from pacfl.learning.native.emit import Array, Function, Module
from pacfl.learning.native.layout import ConvolvePlaces, Layout
from pacfl.learning.native.packing import Packing, Place
from pacfl.learning.native.plan import Convolve, Plan


@dataclass(frozen=True)
class Context:
    """A plan, the module that is written for it, and where everything lies."""

    plan: Plan
    module: Module
    packing: Packing
    layout: Layout

    @property
    def features(self) -> int:
        """Where in a slab lies what the first dense stage reads."""
        return self.layout.on_maps[-1].result if self.plan.on_maps else self.layout.source

    @property
    def outputs(self) -> int:
        """Where in a slab the logits lie."""
        return self.layout.dense[-1].result if self.plan.dense else self.features

    @property
    def outputs_gradient(self) -> int:
        """Where in a slab their gradient lies."""
        return self.layout.dense[-1].gradient if self.plan.dense else self.layout.features_gradient

    @property
    def dense_places(self) -> tuple[Place, ...]:
        """Packed weights of the dense stages."""
        return self.packing.places[len(self.packing.places) - len(self.plan.dense) :]

    @property
    def n_of_maps(self) -> int:
        """Packed weights of the stages on maps, which come first."""
        return self.dense_places[0].weight if self.plan.dense else self.packing.size

    def source_of(self, i: int) -> int:
        """Where in a slab lies what stage i on maps reads."""
        return self.layout.on_maps[i - 1].result if i else self.layout.source

    def place_of(self, i: int) -> Place:
        """Packed weights of stage i on maps, a convolution."""
        return self.packing.places[sum(isinstance(stage, Convolve) for stage in self.plan.on_maps[:i])]

    def convolve_places(self, i: int) -> ConvolvePlaces:
        """Where and how stage i on maps, a convolution, stores what it needs."""
        places = self.layout.on_maps[i].convolve
        assert places is not None, "asked of a stage that is no convolution"
        return places

    def gradient_of(self, f: Function, i: int) -> Array:
        """The gradient of the result of stage i on maps: in the slab for the last, in the shared scratch else."""
        if i == len(self.plan.on_maps) - 1:
            place: Array = f.slab.at(self.layout.features_gradient)
        else:
            place = f.workspace.at(self.layout.on_maps[i].gradient)
        return place
