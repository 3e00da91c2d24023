from dataclasses import dataclass
from typing import final

from pacfl.federation.algorithm import Algorithm
from pacfl.federation.message import Message
from pacfl.federation.settings import NotNegative
from pacfl.learning.client_context import Task


@final
@dataclass(frozen=True)
class FedProx(Algorithm):
    """Li and others (2020), Eq. 2: local objective f(w) + mu / 2 |w - w0|²."""

    mu: NotNegative = 0.01

    def train(self, task: Task, down: Message, memory: Message) -> tuple[Message, Message]:
        w, _ = task.sgd(down["w"], pull=(self.mu, down["w"]))
        return {"w": w}, memory
