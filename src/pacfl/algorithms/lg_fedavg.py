from dataclasses import dataclass
from typing import final

import numpy as np

from pacfl.federation.algorithm import Algorithm, State
from pacfl.federation.message import Message
from pacfl.federation.settings import Count
from pacfl.learning.client_context import Task
from pacfl.learning.model import Model, Vector


@final
@dataclass(frozen=True)
class LGFedAvg(Algorithm):
    """Liang and others (2020), Algorithm 1: the first layers stay at the client, only the last ones travel.

    A model is w = (body_i, head); all of it is trained, body_i is kept and head = Σ n_i head_i / Σ n_i.
    """

    shared_layers: Count = 2

    def init_server(self, model: Model) -> State:
        return State(model.initial[None, model.tail(self.shared_layers)])

    def init_client(self, model: Model) -> Message:
        return {"body": model.initial[: model.tail(self.shared_layers).start]}

    def train(self, task: Task, down: Message, memory: Message) -> tuple[Message, Message]:
        w, _ = task.sgd(self.receive(task, down, memory))
        cut = task.model.tail(self.shared_layers).start
        return {"w": w[cut:]}, {"body": w[:cut]}

    def receive(self, task: Task, down: Message, memory: Message) -> Vector:  # noqa: ARG002 - one form for all
        return np.concatenate([memory["body"], down["w"]])
