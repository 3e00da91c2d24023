"""The networks of the paper, and an MLP; those of other packages by name."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Final

import torch
from torch import Tensor, nn

from pacfl import plugins
from pacfl.errors import ConfigError, ModelError
from pacfl.settings import PositiveInt, check_value, convert, hyphened, suggestion

InputShape = tuple[int, int, int]  # channels, height, width
Architecture = Callable[[InputShape, int], nn.Module]  # shape of a sample, number of outputs


def lenet5(shape: InputShape, n_classes: int) -> nn.Module:
    """LeNet-5 of the paper's table: 62,006 weights for 3 × 32 × 32 and 10 classes, 44,426 for 1 × 28 × 28."""
    channels, height, width = shape
    rows, columns = _after_two_stages(height), _after_two_stages(width)
    if min(rows, columns) < 1:
        raise ModelError(f"LeNet-5 needs images of at least 16x16 pixels, got {height}x{width}; use the mlp")
    return nn.Sequential(
        nn.Conv2d(channels, 6, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(16 * rows * columns, 120), nn.ReLU(),
        nn.Linear(120, 84), nn.ReLU(),
        nn.Linear(84, n_classes),
    )  # fmt: skip


class ResNet9(nn.Module):
    """ResNet-9 of the paper's table, GroupNorm of 32 groups: 6,621,540 weights for 100 classes.

    The table feeds "block 4 + block 5" to the classifier; their shapes differ, and blocks 5 and 6 are meant.
    """

    def __init__(self, shape: InputShape, n_classes: int) -> None:
        """Build the blocks."""
        super().__init__()
        channels, height, width = shape
        if (height, width) != (32, 32):
            raise ModelError(f"ResNet-9 needs images of 32x32 pixels, got {height}x{width}; pad them")
        self.block1 = _block(channels, 64)
        self.block2 = nn.Sequential(_block(64, 128), nn.MaxPool2d(2))
        self.block3 = nn.Sequential(_block(128, 128), _block(128, 128))
        self.block4 = nn.Sequential(_block(128, 256), nn.MaxPool2d(2))
        self.block5 = nn.Sequential(_block(256, 512), nn.MaxPool2d(2))
        self.block6 = nn.Sequential(_block(512, 512), _block(512, 512))
        self.classifier = nn.Sequential(nn.MaxPool2d(4), nn.Flatten(), nn.Linear(512, n_classes))

    def forward(self, x: Tensor) -> Tensor:
        """Logits of images (n, channels, 32, 32)."""
        x = self.block2(self.block1(x))
        x = self.block5(self.block4(x + self.block3(x)))
        logits: Tensor = self.classifier(x + self.block6(x))
        return logits


def mlp(shape: InputShape, n_classes: int, hidden: PositiveInt = 200) -> nn.Module:
    """One hidden layer."""
    features = int(torch.tensor(shape).prod())
    return nn.Sequential(nn.Flatten(), nn.Linear(features, hidden), nn.ReLU(), nn.Linear(hidden, n_classes))


def logistic(shape: InputShape, n_classes: int) -> nn.Module:
    """Multinomial logistic regression."""
    return nn.Sequential(nn.Flatten(), nn.Linear(int(torch.tensor(shape).prod()), n_classes))


NETS: Final[Mapping[str, Callable[..., nn.Module]]] = {
    "lenet5": lenet5,
    "resnet9": ResNet9,
    "mlp": mlp,
    "logistic": logistic,
}


def architecture(name: str, options: Mapping[str, Any]) -> Architecture:
    """The net of a name, with its options as keyword arguments: one of ours, of an entry point, or of an import path.

    It is called with the shape and the number of outputs if it takes two positional arguments, else without.
    """
    net = plugins.find("models", name, NETS)
    if not callable(net):
        raise ConfigError(f"model {name!r} is {net!r}, expected a class or a function that returns a torch module")
    shaped, given = _arguments(name, net, options)

    def build(shape: InputShape, n_outputs: int) -> nn.Module:
        module = net(shape, n_outputs, **given) if shaped else net(**given)
        if not isinstance(module, nn.Module):
            raise ModelError(f"model {name!r} returned {type(module).__name__}, expected a torch module")
        return module

    return build


def _arguments(name: str, net: Callable[..., Any], options: Mapping[str, Any]) -> tuple[bool, dict[str, Any]]:
    """Whether a net takes the shape and the number of outputs, and its options, each checked by its annotation."""
    parameters = list(inspect.signature(net, eval_str=True).parameters.values())
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    shaped = len(positional) >= 2 and all(p.default is p.empty for p in positional[:2])
    known = {p.name for p in positional[2 if shaped else 0 :]} | {
        p.name for p in parameters if p.kind is p.KEYWORD_ONLY
    }
    given = {key.replace("-", "_"): value for key, value in options.items()}
    if not any(p.kind is p.VAR_KEYWORD for p in parameters):
        for key in given:
            if key not in known:
                raise ConfigError(f"{name} has no setting {key!r}{suggestion(key, ('name', *hyphened(sorted(known))))}")
    lacking = [p.name for p in parameters if p.name in known and p.default is p.empty and p.name not in given]
    if lacking:
        raise ConfigError(f"{name} needs {', '.join(hyphened(lacking))}")
    for p in parameters:
        if p.name in given and p.annotation is not p.empty:
            given[p.name] = convert(given[p.name], p.annotation, p.name)
            check_value(f"{name}.{p.name}", given[p.name], p.annotation)
    return shaped, given


def _block(inputs: int, outputs: int) -> nn.Module:
    return nn.Sequential(nn.Conv2d(inputs, outputs, 3, padding=1), nn.GroupNorm(32, outputs), nn.ReLU())


def _after_two_stages(pixels: int) -> int:
    return ((pixels - 4) // 2 - 4) // 2
