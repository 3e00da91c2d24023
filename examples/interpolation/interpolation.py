"""Model interpolation, as a plug-in: this file is all that is needed."""

from dataclasses import dataclass

import numpy as np

from pacfl import Algorithm
from pacfl.settings import Share


@dataclass(frozen=True)
class Interpolation(Algorithm):
    """A client's model is (1 - share) v + share w: its own v, trained alone, and FedAvg's w.

    The simplest form of the model interpolation of Mansour and others (2020), section 5.
    """

    share: Share = 0.5

    def init_client(self, model):
        """A client's own model starts as the global one does."""
        return {"v": model.initial}

    def train(self, context, down, memory):
        """Both models are trained, and only w is sent."""
        w, _ = context.sgd(down["w"])
        v, _ = context.sgd(memory["v"])
        return {"w": w}, {"v": v}

    def personalise(self, context, down, memory):  # noqa: ARG002 - the signature of all algorithms
        """Between the two."""
        share = np.float32(self.share)
        return (1 - share) * memory["v"] + share * down["w"]
