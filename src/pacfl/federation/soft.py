"""Soft clusters: a sample of a client belongs to each of k models with some probability."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from pacfl.learning.client_context import ClientContext

Models = NDArray[np.float32]  # (k, d)
Array = NDArray[np.float64]


def sample_losses(context: ClientContext, models: Models) -> Array:
    """The loss of each training sample under each model: (n, k)."""
    losses: Array = np.stack([context.engine.evaluate(w, context.train)[1] for w in models], axis=1).astype(np.float64)
    return losses


def posterior(weights: NDArray[Any], log_likelihoods: Array) -> Array:
    """The probability that a sample belongs to each model, given their weights (k,): (n, k) -> (n, k).

    >>> posterior(np.array([0.75, 0.25]), np.log([[0.1, 0.3], [0.5, 0.5]])).tolist()
    [[0.5, 0.5], [0.75, 0.25]]
    """
    with np.errstate(divide="ignore"):  # a weight of 0 stays 0
        found: Array = softmax(np.log(weights.astype(np.float64)) + log_likelihoods, axis=1)
    return found


def train_each(context: ClientContext, models: Models, shares: Array, purpose: str = "batches") -> tuple[Models, int]:
    """Every model trained on all samples, weighted by their shares of it (n, k); and the steps of each."""
    trained, steps = [], 0
    for m, w in enumerate(models):
        after, steps = context.sgd(w, sample_weight=shares[:, m].astype(np.float32), purpose=purpose)
        trained.append(after)
    return np.stack(trained), steps
