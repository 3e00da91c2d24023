"""An nn.Module as a function of one vector."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pacfl.errors import ModelError

if TYPE_CHECKING:  # algorithms and settings use these classes where torch is not installed
    from torch import nn

Vector = NDArray[np.float32]  # (d,)


class UnsupportedModelError(ModelError):
    """A model that the native engine cannot compile, and why."""


@dataclass(frozen=True, eq=False)
class Model:
    """The architecture, the initial weights, and the slice of each layer in the vector of weights."""

    architecture: Callable[[], "nn.Module"]
    seed: int
    initial: Vector
    layers: Mapping[str, slice]  # in order; normalisation belongs to the layer before it

    def build(self) -> "nn.Module":
        """The module; what it draws at random is the same every time."""
        return _seeded(self.architecture, self.seed)

    def module(self, w: Vector) -> "nn.Module":
        """The module with the weights of a vector, for inference."""
        import torch

        if w.shape != self.initial.shape:
            raise ModelError(f"the model has {len(self.initial)} weights, got an array of shape {w.shape}")
        module = self.build()
        parameters = list(module.parameters())
        with torch.no_grad():
            parts = np.split(np.array(w, dtype=np.float32), np.cumsum([p.numel() for p in parameters])[:-1])
            for p, part in zip(parameters, parts, strict=True):
                p.copy_(torch.from_numpy(part).view_as(p))
        return module.eval()

    def fresh(self, seed: int) -> Vector:
        """Other initial weights, drawn as the module draws its own."""
        return _vector(_seeded(self.architecture, seed))

    def tail(self, n_layers: int) -> slice:
        """The slice of the last n layers."""
        if not 1 <= n_layers <= len(self.layers):
            raise ModelError(f"the model has {len(self.layers)} layers with weights, got {n_layers}")
        return slice(list(self.layers.values())[-n_layers].start, len(self.initial))


def as_model(architecture: Callable[[], "nn.Module"], seed: int) -> Model:
    """A model from any function that builds an nn.Module; the seed decides the initial weights."""
    module = _seeded(architecture, seed)
    _check_layers(module)
    layers = _layers(module)
    if not layers:
        raise ModelError(f"the model must have weights to train, {type(module).__name__} has none")
    if not any(p.requires_grad for p in module.parameters()):
        raise ModelError(f"the model must have weights to train, those of {type(module).__name__} are all frozen")
    return Model(architecture, seed, _vector(module), layers)


def _seeded(architecture: Callable[[], "nn.Module"], seed: int) -> "nn.Module":
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return architecture()


def _vector(module: "nn.Module") -> Vector:
    arrays: list[NDArray[Any]] = [p.detach().cpu().numpy().ravel() for p in module.parameters()]
    return np.concatenate(arrays).astype(np.float32) if arrays else np.empty(0, dtype=np.float32)


def _layers(module: "nn.Module") -> dict[str, slice]:
    from torch.nn import GroupNorm, LayerNorm
    from torch.nn.modules.batchnorm import _NormBase

    layers: dict[str, slice] = {}
    start = 0
    seen: set[nn.Parameter] = set()  # weights that two layers share are in the vector once, with the first of them
    for name, layer in module.named_modules():
        own = [p for p in layer.parameters(recurse=False) if p not in seen]
        seen.update(own)
        size = sum(p.numel() for p in own)
        if size == 0:
            continue
        if isinstance(layer, GroupNorm | LayerNorm | _NormBase) and layers:
            last = next(reversed(layers))
            layers[last] = slice(layers[last].start, start + size)
        else:
            layers[name] = slice(start, start + size)
        start += size
    return layers


def _check_layers(module: "nn.Module") -> None:
    """Refuse layers whose state is not all in the vector of weights."""
    from torch.nn.modules.batchnorm import _BatchNorm, _NormBase
    from torch.nn.parameter import UninitializedParameter

    for name, layer in module.named_modules():
        kind = type(layer).__name__
        if any(isinstance(p, UninitializedParameter) for p in layer.parameters(recurse=False)):
            raise ModelError(f"layer {name!r} ({kind}) has no size yet; use a layer that is built with its sizes")
        if isinstance(layer, _NormBase) and layer.track_running_stats:
            # GroupNorm of one group also normalises a batch of one sample, which batch statistics cannot
            instead = (
                f"GroupNorm(1, {layer.num_features})"
                if isinstance(layer, _BatchNorm)
                else f"{kind}({layer.num_features}, affine={layer.affine}, track_running_stats=False)"
            )
            raise ModelError(
                f"layer {name!r} is a {kind}: its running statistics are not weights, and averaging models would "
                f"ignore them; use nn.{instead}"
            )
