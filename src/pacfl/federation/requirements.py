"""What some methods need of the training and the aggregation: they refuse the rest before anything runs."""

from pacfl.errors import ConfigError
from pacfl.federation.algorithm import Algorithm
from pacfl.learning.settings import LocalTraining


def require_sgd(algorithm: Algorithm, learning: LocalTraining) -> None:
    """For methods that divide the distance of a local training by its steps."""
    if learning.optimiser != "sgd":
        raise ConfigError(
            f"{type(algorithm).__name__} derives gradients from the distance of SGD steps, so it cannot train with "
            f"optimiser = {learning.optimiser!r}; use sgd, or another algorithm"
        )


def require_classes(algorithm: Algorithm, what: str, learning: LocalTraining) -> None:
    """For methods that are about classes; what: what they do with them."""
    from pacfl.learning.losses import find_loss  # needs torch, and servers may have none

    if (targets := find_loss(learning.loss).targets) != "classes":
        raise ConfigError(
            f"{type(algorithm).__name__} {what}, and the loss {learning.loss!r} is for {targets}; "
            "use cross-entropy, or another algorithm"
        )


def refuse_clipping(algorithm: Algorithm, reported: str) -> None:
    """For methods whose clients report what no clip norm hides."""
    if algorithm.aggregation.clip_norm is not None:
        name = type(algorithm).__name__
        raise ConfigError(f"{name} cannot hide updates: a client also sends {reported} as it is; leave out clip-norm")
