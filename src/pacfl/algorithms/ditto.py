from dataclasses import dataclass
from typing import final

from pacfl.federation.algorithm import Algorithm
from pacfl.federation.message import Message
from pacfl.learning.client_context import ClientContext
from pacfl.learning.model import Vector
from pacfl.settings import NonNegative


@final
@dataclass(frozen=True)
class Ditto(Algorithm):
    """Li and others (2021), Algorithm 1: beside FedAvg's w, each client trains a model v_i of its own near it.

    min over v_i of F_i(v_i) + lam / 2 |v_i - w|². Only w is sent.
    """

    lam: NonNegative = 0.1

    def train(self, context: ClientContext, down: Message, memory: Message) -> tuple[Message, Message]:
        w, _ = context.sgd(down["w"])
        v, _ = context.sgd(memory.get("v", down["w"]), prox=(self.lam, down["w"]))
        return {"w": w}, {"v": v}

    def personalise(self, context: ClientContext, down: Message, memory: Message) -> Vector:
        if "v" not in memory:  # it has not trained yet
            _, memory = self.train(context, down, memory)
        return memory["v"]
