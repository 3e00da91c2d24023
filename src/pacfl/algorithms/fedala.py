from dataclasses import dataclass
from typing import final

import numpy as np

from pacfl.federation.algorithm import Algorithm
from pacfl.federation.message import Message
from pacfl.learning.client_context import ClientContext
from pacfl.learning.model import Vector
from pacfl.learning.randomness import stream
from pacfl.settings import NonNegativeInt, Positive, PositiveInt, PositiveShare


@final
@dataclass(frozen=True)
class FedALA(Algorithm):
    """Zhang and others (2023), Algorithm 1: a client's training starts between its last model and the global one.

    Eq. 4: start = w_i + (w - w_i) ⊙ A_i, in the last layers; below them A_i is 1. The weights of this adaptive local
    aggregation are learned from some of the client's samples: A_i <- clip(A_i - eta ∇F_i(start) ⊙ (w - w_i), 0, 1).
    """

    adaptive_layers: NonNegativeInt = 1
    share: PositiveShare = 0.8  # of the samples, drawn in every round
    eta: Positive = 1.0
    first_epochs: PositiveInt = 10  # when a client learns A_i for the first time; one afterwards

    def train(self, context: ClientContext, down: Message, memory: Message) -> tuple[Message, Message]:
        start, mixing = self._start(context, down, memory)
        w, _ = context.sgd(start)
        return {"w": w}, {"w": w, **mixing}

    def receive(self, context: ClientContext, down: Message, memory: Message) -> Vector:
        return self._start(context, down, memory)[0]

    def _start(self, context: ClientContext, down: Message, memory: Message) -> tuple[Vector, Message]:
        """Where training starts, and the A_i of its last layers; at first, the global model and none."""
        if not (self.adaptive_layers and memory):
            return down["w"], {}
        tail = context.model.tail(self.adaptive_layers)
        way = down["w"][tail] - memory["w"][tail]
        start, a = down["w"].copy(), memory.get("a", np.ones_like(way))
        start[tail] -= way * (1 - a)  # Eq. 4, and w to the bit where a is 1
        drawn = stream(context.key[0], "ala", *context.key[1:]).permutation(context.n_samples)
        some = context.subset(drawn[: max(1, round(self.share * len(drawn)))])
        for batch in some.batches(1 if "a" in memory else self.first_epochs, "ala batches"):
            a = np.clip(a - np.float32(self.eta) * batch.gradient(start)[tail] * way, 0, 1)
            start[tail] = down["w"][tail] - way * (1 - a)
        return start, {"a": a}
