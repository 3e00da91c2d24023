"""Losses: what local training minimises, and the kind of targets that each is for."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - its usual name

Targets = Literal["classes", "labels", "values"]  # one class; several labels, yes or no each; numbers


@dataclass(frozen=True)
class Loss:
    """The losses of a batch, one for each sample, and the kind of targets they are of.

    classes: y (n,) int64, outputs (n, classes). labels: y (n,) or (n, labels), 0 or 1. values: y (n,) or (n, values).
    """

    per_sample: Callable[[Tensor, Tensor], Tensor]  # outputs, y -> (n,)
    targets: Targets


def cross_entropy(outputs: Tensor, y: Tensor) -> Tensor:
    """Of logits and classes."""
    return F.cross_entropy(outputs, y, reduction="none")


def binary_cross_entropy(outputs: Tensor, y: Tensor) -> Tensor:
    """Of logits and labels that are 0 or 1; the mean over labels."""
    return F.binary_cross_entropy_with_logits(outputs, _as_outputs(outputs, y), reduction="none").flatten(1).mean(dim=1)


def squared_error(outputs: Tensor, y: Tensor) -> Tensor:
    """(output - y)²; the mean over values."""
    return F.mse_loss(outputs, _as_outputs(outputs, y), reduction="none").flatten(1).mean(dim=1)


def absolute_error(outputs: Tensor, y: Tensor) -> Tensor:
    """|output - y|; the mean over values."""
    return F.l1_loss(outputs, _as_outputs(outputs, y), reduction="none").flatten(1).mean(dim=1)


def _as_outputs(outputs: Tensor, y: Tensor) -> Tensor:
    """Targets in the form of the outputs: (n,) becomes (n, 1)."""
    return y.to(outputs.dtype).reshape(outputs.shape)


LOSSES: Final[Mapping[str, Loss]] = {
    "cross-entropy": Loss(cross_entropy, "classes"),
    "binary-cross-entropy": Loss(binary_cross_entropy, "labels"),
    "squared-error": Loss(squared_error, "values"),
    "absolute-error": Loss(absolute_error, "values"),
}
