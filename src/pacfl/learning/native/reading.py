"""nn.Module -> plan, by tracing it with torch.fx: which layers a sample passes, with which shapes."""

import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - its usual name
from torch import Tensor, fx, nn
from torch.nn.modules.dropout import _DropoutNd

from pacfl.learning.model import UnsupportedModelError
from pacfl.learning.native.plan import (
    NO_POOLING,
    AvgPool,
    Convolve,
    Dense,
    Map,
    MaxPool,
    OnMaps,
    Pair,
    Plan,
    Rectify,
    Weights,
    Window,
    with_borders,
)

N_TRACED = 3  # samples in the batch that is sent through


def read_plan(module: nn.Module, shape: tuple[int, ...]) -> Plan:
    """The plan of a module for samples of the given shape."""
    if fx.Tracer().is_leaf_module(module, ""):  # a layer alone: fx records layers only inside another module
        module = nn.Sequential(module)
    try:
        graph = fx.symbolic_trace(module)
    except Exception as error:  # whatever a forward function may raise when it is traced
        raise UnsupportedModelError(f"its forward function cannot be traced ({error})") from None
    reader = _Reader(graph, module, shape)
    with torch.no_grad():
        try:
            reader.run(torch.zeros(N_TRACED, *shape))
        except UnsupportedModelError as error:  # fx adds lines to the message
            raise UnsupportedModelError(str(error).splitlines()[0]) from None
        except Exception as error:  # whatever a forward function may raise
            reason = f"{type(error).__name__}: {error}".splitlines()[0]
            raise UnsupportedModelError(f"it does not take samples of shape {shape} ({reason})") from None
    return reader.plan()


@dataclass(frozen=True)
class _Step:
    """A stage on maps, and the padding of its source."""

    stage: OnMaps
    padding: Pair


class _Reader(fx.Interpreter):
    """Run a batch through the module, node by node, and record what each node does."""

    def __init__(self, graph: fx.GraphModule, module: nn.Module, shape: tuple[int, ...]) -> None:
        super().__init__(graph)
        self._shape = shape
        self._offsets = _offsets(module)
        self._parameters = list(module.parameters())
        self._steps: list[_Step] = []
        self._dense: list[Dense] = []
        self._now = Map(*shape) if len(shape) == 3 else Map(int(torch.tensor(shape).prod()), 1, 1)
        self._current: fx.Node | None = None
        self._before: torch.Size = torch.Size((N_TRACED, *shape))
        self._used: set[str] = set()

    def plan(self) -> Plan:
        """The plan, from what was recorded."""
        maps = with_borders(tuple(s.stage for s in self._steps), tuple(s.padding for s in self._steps))
        if not maps and not self._dense:
            raise UnsupportedModelError("it has no layers")
        if not self._dense and self._now.height * self._now.width != 1:
            raise UnsupportedModelError("its output is not a vector")
        if self._used != set(self._offsets):
            raise UnsupportedModelError(f"weights {sorted(set(self._offsets) - self._used)} are not used")
        n_weights = sum(p.numel() for p in self._parameters)
        return Plan(self._shape, maps, tuple(self._dense), n_weights, _frozen(self._parameters))

    def run_node(self, n: fx.Node) -> Any:
        """Record what the node does, if it is on the path of the samples."""
        value = super().run_node(n)
        if n.op == "placeholder":
            if self._current is not None:
                raise UnsupportedModelError("it takes more than one input")
            self._current = n
        elif n.op == "output":
            if n.args[0] is not self._current:
                raise UnsupportedModelError("it does not return the output of its last layer")
        elif isinstance(value, Tensor):
            self._record(n, value)
        elif not _measures(n):
            raise UnsupportedModelError(f"{_name(n)} is not supported")
        return value

    def _record(self, n: fx.Node, value: Tensor) -> None:
        if n.args[:1] != (self._current,) or any(isinstance(a, fx.Node) and self._is_tensor(a) for a in n.args[1:]):
            raise UnsupportedModelError(f"{_name(n)} is not a step of a sequential stack")
        if value.shape[0] != N_TRACED:
            raise UnsupportedModelError(f"{_name(n)} mixes samples")
        module = self.fetch_attr(str(n.target)) if n.op == "call_module" else None
        layer = _layer(n, module)
        if layer is None:
            raise UnsupportedModelError(f"{_name(n, module)} is not supported")
        if layer is _flatten:
            self._reshape(n, value)
        elif isinstance(layer, nn.Conv2d):
            self._convolve(layer, str(n.target), value)
        elif isinstance(layer, nn.Linear):
            self._linear(layer, str(n.target))
        elif isinstance(layer, nn.ReLU):
            self._rectify()
        elif isinstance(layer, nn.MaxPool2d | nn.AvgPool2d):
            self._pool(layer, value)
        self._current, self._before = n, value.shape

    def _is_tensor(self, n: fx.Node) -> bool:
        return isinstance(self.env.get(n), Tensor)

    def _reshape(self, n: fx.Node, value: Tensor) -> None:
        if value.shape == self._before:
            return
        if value.ndim != 2 or value.shape[1] != self._now.features:
            raise UnsupportedModelError(f"{_name(n)} makes shape {tuple(value.shape[1:])}")

    def _weights(self, layer: nn.Conv2d | nn.Linear, name: str) -> Weights:
        names = [f"{name}.weight"] + ([f"{name}.bias"] if layer.bias is not None else [])
        if self._used & set(names) or not set(names) <= set(self._offsets):
            raise UnsupportedModelError(f"layer {name} shares its weights")
        self._used.update(names)
        return Weights(self._offsets[names[0]], self._offsets[names[1]] if layer.bias is not None else None)

    def _convolve(self, layer: nn.Conv2d, name: str, value: Tensor) -> None:
        if layer.groups != 1 or _pair(layer.dilation) != (1, 1) or layer.padding_mode != "zeros" or value.ndim != 4:
            raise UnsupportedModelError(
                f"layer {name} is a convolution with groups, dilation or other padding than zeros"
            )
        if self._dense or self._now.channels != layer.in_channels:
            raise UnsupportedModelError(f"layer {name} is a convolution of a vector")
        kernel, stride = _pair(layer.kernel_size), _pair(layer.stride)
        padding = _padding(layer, kernel, name)
        result = Map(*value.shape[1:])
        stage = Convolve(self._now, result, kernel, stride, False, NO_POOLING, self._weights(layer, name))
        self._add(stage, padding)

    def _linear(self, layer: nn.Linear, name: str) -> None:
        if self._now.features != layer.in_features:
            raise UnsupportedModelError(f"layer {name} is not applied to the vector of a sample")
        stage = Dense(self._now, layer.out_features, False, self._weights(layer, name))
        self._dense.append(stage)
        self._now = stage.result

    def _rectify(self) -> None:
        if self._dense:
            self._dense[-1] = replace(self._dense[-1], relu=True)
        elif isinstance(last := self._last(), Convolve):
            self._steps[-1] = replace(self._steps[-1], stage=replace(last, relu=True))
        else:
            self._add(Rectify(self._now, self._now), (0, 0))

    def _pool(self, layer: nn.MaxPool2d | nn.AvgPool2d, value: Tensor) -> None:
        kernel, stride = _pair(layer.kernel_size), _pair(layer.stride or layer.kernel_size)
        if self._dense or _pair(layer.padding) != (0, 0) or layer.ceil_mode or value.ndim != 4:
            raise UnsupportedModelError("pooling of a vector, with padding, or with incomplete windows")
        window, result = Window(kernel, stride), Map(*value.shape[1:])
        if isinstance(layer, nn.AvgPool2d):
            if layer.divisor_override is not None:
                raise UnsupportedModelError("average pooling with another divisor")
            self._add(AvgPool(self._now, result, window), (0, 0))
            return
        if _pair(layer.dilation) != (1, 1):
            raise UnsupportedModelError("pooling with dilation")
        last = self._last()
        if isinstance(last, Convolve) and last.pool == NO_POOLING:
            self._steps[-1] = replace(self._steps[-1], stage=replace(last, pool=window, result=result))
            self._now = result
        else:
            self._add(MaxPool(self._now, result, window), (0, 0))

    def _last(self) -> OnMaps | None:
        return self._steps[-1].stage if self._steps else None

    def _add(self, stage: OnMaps, padding: Pair) -> None:
        self._steps.append(_Step(stage, padding))
        self._now = stage.result


def _flatten() -> None:
    """Marks operations that only change the shape of a sample."""


def _of_relu(*_: Any, **__: Any) -> nn.Module:
    return nn.ReLU()


def _of_max_pool(_: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1,
                 ceil_mode: bool = False, return_indices: bool = False) -> nn.Module:  # fmt: skip
    return nn.MaxPool2d(kernel_size, stride, padding, dilation, return_indices, ceil_mode)


def _of_avg_pool(_: Tensor, *args: Any, **kwargs: Any) -> nn.Module:
    return nn.AvgPool2d(*args, **kwargs)


_FUNCTIONS: Mapping[Any, Callable[..., nn.Module]] = {
    F.relu: _of_relu,
    torch.relu: _of_relu,
    torch.relu_: _of_relu,
    F.max_pool2d: _of_max_pool,
    torch.max_pool2d: _of_max_pool,
    F.avg_pool2d: _of_avg_pool,
    "relu": _of_relu,
    "relu_": _of_relu,
}
_RESHAPING = (torch.flatten, torch.reshape, "view", "reshape", "flatten", "contiguous")
_LAYERS = (nn.Conv2d, nn.Linear, nn.ReLU, nn.MaxPool2d, nn.AvgPool2d)


def _layer(n: fx.Node, module: nn.Module | None) -> Any:
    """The layer that a node is, whichever way it was written."""
    if module is not None:
        if isinstance(module, nn.Flatten | nn.Identity) or (isinstance(module, _DropoutNd) and module.p == 0):
            return _flatten
        return module if type(module) in _LAYERS else None
    if n.target in _RESHAPING:
        return _flatten
    made = _FUNCTIONS.get(n.target)
    return made(*n.args, **n.kwargs) if made else None


def _measures(n: fx.Node) -> bool:
    """Whether a node only asks for a shape, or reckons with one."""
    return n.target in ("size", getattr, operator.getitem, operator.mul, operator.floordiv, operator.add, "dim")


def _offsets(module: nn.Module) -> dict[str, int]:
    """Where every parameter begins in the model's vector."""
    offsets: dict[str, int] = {}
    start = 0
    for name, p in module.named_parameters():
        offsets[name] = start
        start += p.numel()
    return offsets


def _frozen(parameters: Iterable[nn.Parameter]) -> tuple[Pair, ...]:
    """Where parameters that are not trained lie in the model's vector."""
    frozen, start = [], 0
    for p in parameters:
        if not p.requires_grad:
            frozen.append((start, start + p.numel()))
        start += p.numel()
    return tuple(frozen)


def _padding(layer: nn.Conv2d, kernel: Pair, name: str) -> Pair:
    if layer.padding == "valid":
        return (0, 0)
    if layer.padding == "same":
        if kernel[0] % 2 == 0 or kernel[1] % 2 == 0:
            raise UnsupportedModelError(f"layer {name} pads one side more than the other")
        return kernel[0] // 2, kernel[1] // 2
    return _pair(layer.padding)


def _pair(x: Any) -> Pair:
    return (x[0], x[1]) if isinstance(x, tuple | list) else (x, x)


def _name(n: fx.Node, module: nn.Module | None = None) -> str:
    if module is not None:
        return f"layer {n.target} ({type(module).__name__})"
    return str(getattr(n.target, "__name__", n.target))
