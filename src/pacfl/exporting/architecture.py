"""How the model of a run is built again, as values that a file can hold."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pacfl.errors import ModelError
from pacfl.plugins import find

if TYPE_CHECKING:
    from torch import nn


def build_architecture(model: Mapping[str, Any]) -> "nn.Module":
    """The module, its weights as it draws them: name of a network or import path, shape of one input, outputs."""
    from pacfl.learning.nets import NETS

    try:
        name, (channels, height, width), outputs = model["name"], model["shape"], model["outputs"]
    except (KeyError, ValueError, TypeError):
        raise ModelError(f"a model is described by name, shape and outputs, got {model}") from None
    module: nn.Module = find("models", name, NETS)((channels, height, width), outputs)
    return module
