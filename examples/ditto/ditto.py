"""Ditto, as a plug-in: this file is all that is needed."""

from dataclasses import dataclass

from pacfl import Algorithm
from pacfl.settings import NonNegative


@dataclass(frozen=True)
class Ditto(Algorithm):
    """Li and others (2021), Algorithm 1: beside the global w, each client trains v by f(v) + lam / 2 |v - w|²."""

    lam: NonNegative = 0.1

    def init_client(self, model):
        """A client's own model starts as the global one does."""
        return {"v": model.initial}

    def train(self, context, down, memory):
        """Both models are trained, and only w is sent."""
        w, _ = context.sgd(down["w"])
        v, _ = context.sgd(memory["v"], prox=(self.lam, down["w"]))
        return {"w": w}, {"v": v}

    def personalise(self, context, down, memory):  # noqa: ARG002 - the signature of all algorithms
        """The client's own model."""
        return memory["v"]
