"""Optimisers of local training, as steps on flat tensors. What they remember lives for one local training."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from pacfl import plugins
from pacfl.errors import ConfigError
from pacfl.learning.settings import LocalTraining

Step = Callable[[Tensor, Tensor], None]  # weights (d,), which it changes in place, and their gradient (d,)

BETAS: Final = (0.9, 0.999)  # torch's defaults
EPS: Final = 1e-8


@dataclass(frozen=True)
class Optimiser:
    """How a training starts: it gets the weights and the settings, and returns the step."""

    start: Callable[[Tensor, LocalTraining], Step]
    decoupled: bool = False  # weight decay is done by the step, not added to the gradient


def sgd(w: Tensor, learning: LocalTraining) -> Step:
    """With momentum: v <- momentum v + g, w <- w - lr v."""
    velocity = torch.zeros_like(w)

    def step(w: Tensor, g: Tensor) -> None:
        velocity.mul_(learning.momentum).add_(g)
        w.sub_(velocity, alpha=learning.lr)

    return step


def adam(w: Tensor, learning: LocalTraining) -> Step:
    """Kingma and Ba (2015), Algorithm 1."""
    first, second = torch.zeros_like(w), torch.zeros_like(w)
    t = 0

    def step(w: Tensor, g: Tensor) -> None:
        nonlocal t
        t += 1
        first.lerp_(g, 1 - BETAS[0])
        second.mul_(BETAS[1]).addcmul_(g, g, value=1 - BETAS[1])
        spread = second.sqrt().div_(math.sqrt(1 - BETAS[1] ** t)).add_(EPS)
        w.addcdiv_(first, spread, value=-learning.lr / (1 - BETAS[0] ** t))

    return step


def adamw(w: Tensor, learning: LocalTraining) -> Step:
    """Loshchilov and Hutter (2019): Adam, and w <- (1 - lr weight_decay) w apart from it."""
    moved = adam(w, learning)

    def step(w: Tensor, g: Tensor) -> None:
        w.mul_(1 - learning.lr * learning.weight_decay)
        moved(w, g)

    return step


OPTIMISERS: Final[Mapping[str, Optimiser]] = {
    "sgd": Optimiser(sgd),
    "adam": Optimiser(adam),
    "adamw": Optimiser(adamw, decoupled=True),
}


def find_optimiser(name: str) -> Optimiser:
    """An optimiser by name. A plug-in is an `Optimiser`, or its function `start`."""
    found = plugins.find("optimisers", name, OPTIMISERS)
    optimiser = found if isinstance(found, Optimiser) else Optimiser(found)
    if not callable(optimiser.start):
        raise ConfigError(
            f"optimiser {name!r} must be a function (w, learning) -> step(w, g), got a {type(found).__name__}"
        )
    return optimiser
