from dataclasses import dataclass
from typing import final

import numpy as np

from pacfl.federation.algorithm import Algorithm
from pacfl.federation.message import Message
from pacfl.learning.client_context import ClientContext
from pacfl.learning.model import Vector
from pacfl.settings import NonNegative


@final
@dataclass(frozen=True)
class PerFedAvg(Algorithm):
    """Fallah and others (2020), first-order variant: learn a start from which one step of length alpha adapts well.

    w -= beta ∇f(w - alpha ∇f(w, D), D'), two halves D and D' of a batch. The paper's beta is the learning rate.
    """

    alpha: NonNegative = 0.01

    def train(self, context: ClientContext, down: Message, memory: Message) -> tuple[Message, Message]:
        w, _ = context.sgd(down["w"], inner_step=self.alpha)
        return {"w": w}, memory

    def personalise(self, context: ClientContext, down: Message, memory: Message) -> Vector:  # noqa: ARG002 - one form for all
        w: Vector = down["w"] - np.float32(self.alpha) * context.gradient(down["w"])
        return w
