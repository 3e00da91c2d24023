from dataclasses import dataclass
from typing import final

from pacfl.federation.algorithm import Algorithm
from pacfl.federation.message import Message
from pacfl.learning.client_context import ClientContext
from pacfl.settings import NonNegative


@final
@dataclass(frozen=True)
class FedProx(Algorithm):
    """Li and others (2020), Eq. 2: local objective f(w) + mu / 2 |w - w0|²."""

    mu: NonNegative = 0.01

    def train(self, context: ClientContext, down: Message, memory: Message) -> tuple[Message, Message]:
        w, _ = context.sgd(down["w"], prox=(self.mu, down["w"]))
        return {"w": w}, memory
