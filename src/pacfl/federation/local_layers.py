"""Normalisation layers that stay at their client, whatever the algorithm: FedBN (Li and others, 2021)."""

from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from pacfl.federation.message import Message
from pacfl.learning.client_context import NO_TERMS, Engine, GradientTerms, LocalTraining, Samples
from pacfl.learning.model import Model, Vector

OWN: Final = "batch-norm"  # in a client's memory, beside the arrays of its algorithm


class LocalLayers:
    """An engine that puts a client's own layers in the place of those that an algorithm gives it.

    The algorithm never gets them: what it trains has the layers that it gave, so it neither averages nor sends any.
    Of a model whose layers are all shared, nothing is changed.
    """

    def __init__(self, engine: Engine, model: Model, memory: Message) -> None:
        """Wrap an engine for a client with this memory."""
        self._engine, self._local = engine, model.local if model.local.any() else None
        self._own: Vector = memory.get(OWN, model.initial[model.local])
        self._memory = memory
        self.batch_dependent = engine.batch_dependent

    @property
    def memory(self) -> Message:
        """The memory of the algorithm."""
        return self._memory if self._local is None else {k: v for k, v in self._memory.items() if k != OWN}

    def remembered(self, memory: Message) -> Message:
        """The memory of the algorithm after a round, and the client's own layers."""
        return memory if self._local is None else {**memory, OWN: self._own}

    def complete(self, w: Vector) -> Vector:
        """A model with the client's own layers."""
        return w if self._local is None else _placed(w, self._local, self._own)

    def sgd(
        self,
        w: Vector,
        samples: Samples,
        order: NDArray[np.int64],
        learning: LocalTraining,
        terms: GradientTerms = NO_TERMS,
        seed: int = 0,
    ) -> Vector:
        """Train, the client's own layers too, from where its last training left them."""
        if self._local is None:
            return self._engine.sgd(w, samples, order, learning, terms, seed)
        if terms.prox is not None:
            terms = replace(terms, prox=(terms.prox[0], self.complete(terms.prox[1])))
        if terms.gradient_correction is not None:  # of shared weights: the algorithm cannot have one for others
            correction = np.where(self._local, np.float32(0), terms.gradient_correction)
            terms = replace(terms, gradient_correction=correction)
        trained = self._engine.sgd(self.complete(w), samples, order, learning, terms, seed)
        self._own = trained[self._local]
        return _placed(trained, self._local, w[self._local])

    def gradient(self, w: Vector, samples: Samples) -> Vector:
        """Of the completed model; 0 for what the algorithm does not get."""
        gradient = self._engine.gradient(self.complete(w), samples)
        return gradient if self._local is None else np.where(self._local, np.float32(0), gradient)

    def evaluate(self, w: Vector, samples: Samples) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Of the completed model."""
        return self._engine.evaluate(self.complete(w), samples)


def _placed(w: Vector, places: NDArray[np.bool_], values: Vector) -> Vector:
    changed = w.copy()
    changed[places] = values
    return changed
