"""An nn.Module as a function of one vector."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from pacfl.errors import ModelError

if TYPE_CHECKING:  # algorithms and settings use these classes where torch is not installed
    from torch import Tensor, nn

Vector = NDArray[np.float32]  # (d,)
STATISTICS: Final = ("running_mean", "running_var")  # buffers of normalisation layers


class UnsupportedModelError(ModelError):
    """A model that the native engine cannot compile, and why."""


BatchNorm = Literal["averaged", "local"]


@dataclass(frozen=True, eq=False)
class Model:
    """The architecture, the initial weights, and the slice of each layer in the vector of weights.

    Running statistics of normalisation layers are in the vector too, after the weights of their layer.
    """

    architecture: Callable[[], "nn.Module"]
    seed: int
    initial: Vector
    layers: Mapping[str, slice]  # in order; normalisation belongs to the layer before it
    statistics: NDArray[np.bool_]  # (d,) running statistics, which no gradient changes
    normalisation: NDArray[np.bool_]  # (d,) all of the layers with running statistics: their weights too
    local: NDArray[np.bool_]  # (d,) what stays at every client, whatever the algorithm: these layers, or nothing
    least_batch: int = 1  # samples in a batch of training: a single one has no batch statistics
    output_bias: slice | None = None  # of the last nn.Linear, if it has one of its own: a shift of all its outputs

    def build(self) -> "nn.Module":
        """The module; what it draws at random is the same every time."""
        return _seeded(self.architecture, self.seed)

    def module(self, w: Vector) -> "nn.Module":
        """The module with the weights of a vector, for inference."""
        import torch

        if w.shape != self.initial.shape:
            raise ModelError(f"the model has {len(self.initial)} weights, got an array of shape {w.shape}")
        module = self.build()
        start = 0
        with torch.no_grad():
            for _, _, tensor in slots(module):
                part = np.array(w[start : start + tensor.numel()], dtype=np.float32)
                tensor.copy_(torch.from_numpy(part).view_as(tensor))
                start += len(part)
        return module.eval()

    def fresh(self, seed: int) -> Vector:
        """Other initial weights, drawn as the module draws its own."""
        return _vector(_seeded(self.architecture, seed))

    def tail(self, n_layers: int) -> slice:
        """The slice of the last n layers."""
        if not 1 <= n_layers <= len(self.layers):
            raise ModelError(f"the model has {len(self.layers)} layers with weights, got {n_layers}")
        return slice(list(self.layers.values())[-n_layers].start, len(self.initial))

    def body_size(self, head_layers: int) -> int:
        """How many weights are before the last `head_layers` layers; one layer at least must be."""
        if head_layers >= len(self.layers):
            raise ModelError(
                f"the model has {len(self.layers)} layers with weights, so its head can have {len(self.layers) - 1} of "
                f"them at most, got {head_layers}; then nothing would be shared"
            )
        return self.tail(head_layers).start if head_layers else len(self.initial)


def as_model(architecture: Callable[[], "nn.Module"], seed: int, batch_norm: BatchNorm = "averaged") -> Model:
    """A model from any function that builds an nn.Module; the seed decides the initial weights.

    batch_norm: whether layers that normalise with running statistics are averaged as all others, or stay at clients.
    """
    from torch.nn.modules.batchnorm import _BatchNorm

    module = _seeded(architecture, seed)
    _check_layers(module)
    layers = _layers(module)
    if not layers:
        raise ModelError(f"the model must have weights to train, {type(module).__name__} has none")
    if not any(p.requires_grad for p in module.parameters()):
        raise ModelError(f"the model must have weights to train, those of {type(module).__name__} are all frozen")
    statistics = _marked(module, lambda layer, name: has_statistics(layer) and name in STATISTICS)
    if batch_norm == "local" and not statistics.any():
        raise ModelError(
            "batch-norm = local is for models with normalisation layers that have running statistics; this one has "
            "none: leave it out"
        )
    normalisation = _marked(module, lambda layer, _: has_statistics(layer))
    local = normalisation if batch_norm == "local" else np.zeros_like(normalisation)
    batches = any(isinstance(layer, _BatchNorm) and has_statistics(layer) for layer in module.modules())
    bias = _output_bias(module)
    places = statistics, normalisation, local
    return Model(architecture, seed, _vector(module), layers, *places, 2 if batches else 1, bias)


def slots(module: "nn.Module") -> "Iterator[tuple[nn.Module, str, Tensor]]":
    """What the vector holds, in its order: layer, name and tensor of its parameters, then of its statistics.

    Weights that two layers share are in the vector once, with the first of them.
    """
    seen: set[Tensor] = set()
    for layer in module.modules():
        for name, p in layer.named_parameters(recurse=False):
            if p not in seen:
                seen.add(p)
                yield layer, name, p
        if has_statistics(layer):
            yield from ((layer, name, layer.get_buffer(name)) for name in STATISTICS)


def ends_in_linear(module: "nn.Module", x: NDArray[Any]) -> bool:
    """Whether the outputs are those of the last nn.Linear as it is: nothing follows it, and it is used only once.

    x: samples, of which one is sent through.
    """
    import torch

    last = _last_linear(module)
    returned: list[Any] = []
    hook = last.register_forward_hook(lambda *call: returned.append(call[-1])) if last is not None else None
    try:
        with torch.no_grad():
            outputs = module.eval()(torch.tensor(x[:1]))
    finally:
        if hook is not None:
            hook.remove()
    return len(returned) == 1 and returned[0] is outputs


def has_statistics(layer: "nn.Module") -> bool:
    """Whether a layer normalises with running statistics."""
    from torch.nn.modules.batchnorm import _NormBase

    return isinstance(layer, _NormBase) and bool(layer.track_running_stats)


def _seeded(architecture: Callable[[], "nn.Module"], seed: int) -> "nn.Module":
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return architecture()


def _vector(module: "nn.Module") -> Vector:
    arrays: list[NDArray[Any]] = [tensor.detach().cpu().numpy().ravel() for _, _, tensor in slots(module)]
    return np.concatenate(arrays).astype(np.float32) if arrays else np.empty(0, dtype=np.float32)


def _marked(module: "nn.Module", chosen: Callable[["nn.Module", str], bool]) -> NDArray[np.bool_]:
    """Which places of the vector are those of chosen slots: (d,)."""
    return np.concatenate([np.full(tensor.numel(), chosen(layer, name)) for layer, name, tensor in slots(module)])


def _last_linear(module: "nn.Module") -> "nn.Linear | None":
    from torch.nn import Linear

    return next((layer for layer in reversed(list(module.modules())) if isinstance(layer, Linear)), None)


def _output_bias(module: "nn.Module") -> slice | None:
    """Where the vector has the bias of the last nn.Linear; None if it has none, or shares it with another layer."""
    last, start = _last_linear(module), 0
    for layer, name, tensor in slots(module):
        if layer is last and name == "bias":
            owners = [own for own in module.modules() for p in own.parameters(recurse=False) if p is tensor]
            return slice(start, start + tensor.numel()) if len(owners) == 1 else None
        start += tensor.numel()
    return None


def _layers(module: "nn.Module") -> dict[str, slice]:
    from torch.nn import GroupNorm, LayerNorm
    from torch.nn.modules.batchnorm import _NormBase

    sizes: dict[nn.Module, int] = {}
    for layer, _, tensor in slots(module):
        sizes[layer] = sizes.get(layer, 0) + tensor.numel()
    layers: dict[str, slice] = {}
    start = 0
    for name, layer in module.named_modules():
        size = sizes.get(layer, 0)
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
    from torch.nn.parameter import is_lazy

    for name, layer in module.named_modules():
        kind = type(layer).__name__
        if any(is_lazy(tensor) for tensor in (*layer.parameters(recurse=False), *layer.buffers(recurse=False))):
            raise ModelError(f"layer {name!r} ({kind}) has no size yet; use a layer that is built with its sizes")
        if has_statistics(layer) and layer.momentum is None:
            raise ModelError(
                f"layer {name!r} ({kind}) has momentum=None: its running statistics depend on the number of all "
                "batches it has seen, which is not part of the model; give it a momentum such as 0.1"
            )
