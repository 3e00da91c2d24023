"""Mixtures: several models whose predictions are summed with weights.

The outputs of a mixture are those of a model for the same targets, so that metrics, losses and exports need not know
of it. Classes: log Σ_m weight_m softmax(outputs_m), the logarithms of the mixed probabilities, whose softmax they are.
Labels: the logits of the mixed probabilities. Values: Σ_m weight_m outputs_m.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_expit, log_softmax, logsumexp

from pacfl.learning.client_context import Engine, Samples
from pacfl.learning.model import Model, Vector

if TYPE_CHECKING:
    from torch import nn

    from pacfl.learning.losses import Loss, Targets

Outputs = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Mixture:
    """Models and the weights of their predictions, which are at least 0 and have the sum 1."""

    models: NDArray[np.float32]  # (k, d)
    weights: NDArray[np.float32]  # (k,)

    def __len__(self) -> int:
        """How many models."""
        return len(self.models)


Weights = Vector | Mixture  # of a client's model


def mixture(models: NDArray[np.float32], weights: NDArray[np.floating]) -> Weights:
    """Models (k, d) mixed in proportion to weights (k,); a single one as it is."""
    if len(models) == 1:
        w: Vector = models[0]
        return w
    shares = weights.astype(np.float64)
    return Mixture(models, (shares / shares.sum()).astype(np.float32))


def models_of(w: Weights) -> Sequence[Vector]:
    """The models of a mixture; of a single model itself."""
    return list(w.models) if isinstance(w, Mixture) else [w]


def each(change: Callable[[Vector], Vector], w: Weights) -> Weights:
    """A model changed, or a mixture with every model changed and the same weights."""
    return Mixture(np.stack([change(own) for own in w.models]), w.weights) if isinstance(w, Mixture) else change(w)


def mixed(outputs: Sequence[Outputs], weights: NDArray[np.float32], targets: "Targets") -> Outputs:
    """The outputs of a mixture from those of its models, (n, outputs) each.

    >>> halves = np.array([0.5, 0.5], dtype=np.float32)
    >>> logits = mixed([np.log([[0.9, 0.1]]), np.log([[0.5, 0.5]])], halves, "classes")
    >>> np.exp(logits).round(6).tolist()
    [[0.7, 0.3]]
    """
    own, shares = np.stack(outputs).astype(np.float64), weights.astype(np.float64)[:, None, None]
    if targets == "classes":
        result = logsumexp(log_softmax(own, axis=2), axis=0, b=shares)
    elif targets == "labels":
        result = logsumexp(log_expit(own), axis=0, b=shares) - logsumexp(log_expit(-own), axis=0, b=shares)
    else:
        result = (shares * own).sum(axis=0)
    return np.asarray(result, dtype=np.float32)


def losses(outputs: Outputs, y: NDArray[np.generic], loss: "Loss") -> NDArray[np.float32]:
    """The loss of every sample, (n,), from outputs (n, outputs)."""
    import torch

    own: NDArray[np.float32] = loss.per_sample(torch.from_numpy(outputs), torch.from_numpy(np.array(y))).numpy()
    return own


def evaluate(engine: Engine, w: Weights, samples: Samples, loss: "Loss") -> tuple[Outputs, NDArray[np.float32]]:
    """As an engine does, for models and mixtures: the outputs (n, outputs) and the loss (n,) of every sample."""
    if not isinstance(w, Mixture):
        return engine.evaluate(w, samples)
    outputs = mixed([engine.evaluate(own, samples)[0] for own in w.models], w.weights, loss.targets)
    return outputs, losses(outputs, samples.y, loss)


def module(model: Model, w: Weights, targets: "Targets") -> "nn.Module":
    """The module of a model, or one that computes the outputs of a mixture, for inference."""
    if not isinstance(w, Mixture):
        return model.module(w)
    from pacfl.learning.mixture_module import MixtureModule

    used = np.flatnonzero(w.weights)  # a logarithm of 0 would be in the graph
    return MixtureModule([model.module(w.models[m]) for m in used], w.weights[used], targets).eval()
