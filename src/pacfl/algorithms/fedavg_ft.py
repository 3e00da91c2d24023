from dataclasses import dataclass
from typing import final

from pacfl.federation.algorithm import Algorithm
from pacfl.federation.message import Message
from pacfl.federation.settings import Whole
from pacfl.learning.client_context import Task
from pacfl.learning.model import Vector


@final
@dataclass(frozen=True)
class FedAvgFT(Algorithm):
    """FedAvg, judged after every client has fine-tuned the global model for some epochs of its own."""

    epochs: Whole = 1

    def personalise(self, task: Task, down: Message, memory: Message) -> Vector:
        w, _ = task.sgd(self.receive(task, down, memory), epochs=self.epochs, purpose="personal")
        return w
