from dataclasses import dataclass
from typing import final

from pacfl.federation.algorithm import Algorithm
from pacfl.federation.message import Message
from pacfl.learning.client_context import ClientContext
from pacfl.learning.model import Vector
from pacfl.settings import NonNegativeInt


@final
@dataclass(frozen=True)
class FedAvgFT(Algorithm):
    """FedAvg, evaluated after every client has fine-tuned the global model for some epochs."""

    epochs: NonNegativeInt = 1

    def personalise(self, context: ClientContext, down: Message, memory: Message) -> Vector:  # noqa: ARG002 - one form for all
        w, _ = context.sgd(down["w"], epochs=self.epochs, purpose="personal")
        return w
