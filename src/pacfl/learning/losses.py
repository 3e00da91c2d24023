"""Losses: what local training minimises, and the kind of targets that each is for."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Literal, get_args

from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - its usual name

from pacfl import plugins
from pacfl.errors import ConfigError

Targets = Literal["classes", "labels", "values"]  # one class; several labels, yes or no each; numbers


@dataclass(frozen=True)
class Loss:
    """The losses of a batch, one for each sample, and the kind of targets they are of.

    classes: y (n,) int64, outputs (n, classes). labels: y (n,) or (n, labels), 0 or 1. values: y (n,) or (n, values).
    """

    per_sample: Callable[[Tensor, Tensor], Tensor]  # outputs, y -> (n,)
    targets: Targets

    def mean(self, outputs: Tensor, y: Tensor) -> Tensor:
        """The mean over the batch; of cross-entropy as torch sums it, so that stored results stay to the bit."""
        return F.cross_entropy(outputs, y) if self.per_sample is cross_entropy else self.per_sample(outputs, y).mean()

    def n_outputs(self, shape: tuple[int, ...], n_classes: int) -> int:
        """How many outputs a model needs: one for each class, or one for each value of a target of this shape."""
        return n_classes if self.targets == "classes" else math.prod(shape)


def cross_entropy(outputs: Tensor, y: Tensor) -> Tensor:
    """Of logits and classes."""
    return F.cross_entropy(outputs, y, reduction="none")


def binary_cross_entropy(outputs: Tensor, y: Tensor) -> Tensor:
    """Of logits and labels that are 0 or 1; the mean over labels."""
    return _by_sample(F.binary_cross_entropy_with_logits(outputs, _as_outputs(outputs, y), reduction="none"))


def squared_error(outputs: Tensor, y: Tensor) -> Tensor:
    """(output - y)²; the mean over values."""
    return _by_sample(F.mse_loss(outputs, _as_outputs(outputs, y), reduction="none"))


def absolute_error(outputs: Tensor, y: Tensor) -> Tensor:
    """|output - y|; the mean over values."""
    return _by_sample(F.l1_loss(outputs, _as_outputs(outputs, y), reduction="none"))


def _as_outputs(outputs: Tensor, y: Tensor) -> Tensor:
    """Targets in the form of the outputs: (n,) becomes (n, 1)."""
    return y.to(outputs.dtype).reshape(outputs.shape)


def _by_sample(losses: Tensor) -> Tensor:
    """The mean of each sample's losses: (n, ...) -> (n,)."""
    return losses.reshape(len(losses), -1).mean(dim=1)


LOSSES: Final[Mapping[str, Loss]] = {
    "cross-entropy": Loss(cross_entropy, "classes"),
    "binary-cross-entropy": Loss(binary_cross_entropy, "labels"),
    "squared-error": Loss(squared_error, "values"),
    "absolute-error": Loss(absolute_error, "values"),
}


def find_loss(name: str) -> Loss:
    """A loss by name. A plug-in is a `Loss`, or its function, which may have an attribute `targets`."""
    found = plugins.find("losses", name, LOSSES)
    loss = found if isinstance(found, Loss) else Loss(found, getattr(found, "targets", "classes"))
    if not callable(loss.per_sample):
        raise ConfigError(f"loss {name!r} must be a function (outputs, y) -> losses, got a {type(found).__name__}")
    if loss.targets not in get_args(Targets):
        raise ConfigError(f"targets of loss {name!r} must be one of {get_args(Targets)}, got {loss.targets!r}")
    return loss
