"""How the model of a run is built again, as values that a file can hold."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pacfl.errors import ModelError

if TYPE_CHECKING:
    from torch import nn


def build_architecture(model: Mapping[str, Any]) -> "nn.Module":
    """The module, its weights as it draws them.

    model: name of a network or import path, its options, the shape of one input, the number of outputs.
    """
    from pacfl.learning.nets import architecture

    try:
        name, options, (channels, height, width) = model["name"], model["options"], model["shape"]
        outputs = model["outputs"]
    except (KeyError, ValueError, TypeError):
        raise ModelError(f"a model is described by name, options, shape and outputs, got {model}") from None
    return architecture(name, options)((channels, height, width), outputs)
