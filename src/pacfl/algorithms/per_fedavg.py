from dataclasses import dataclass
from typing import final

import numpy as np

from pacfl.federation.algorithm import Algorithm
from pacfl.federation.message import Message
from pacfl.federation.settings import NotNegative
from pacfl.learning.client_context import Task
from pacfl.learning.model import Vector


@final
@dataclass(frozen=True)
class PerFedAvg(Algorithm):
    """Fallah and others (2020), first-order variant: learn a start from which one step of length alpha adapts well.

    w -= beta ∇f(w - alpha ∇f(w, D), D'), two halves D and D' of a batch. The paper's beta is the learning rate.
    """

    alpha: NotNegative = 0.01

    def train(self, task: Task, down: Message, memory: Message) -> tuple[Message, Message]:
        w, _ = task.sgd(down["w"], lookahead=self.alpha)
        return {"w": w}, memory

    def personalise(self, task: Task, down: Message, memory: Message) -> Vector:  # noqa: ARG002 - one form for all
        w: Vector = down["w"] - np.float32(self.alpha) * task.gradient(down["w"])
        return w
