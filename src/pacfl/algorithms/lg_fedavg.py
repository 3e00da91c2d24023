from dataclasses import dataclass
from typing import final

import numpy as np

from pacfl.federation.algorithm import Algorithm, State
from pacfl.federation.message import Message
from pacfl.learning.client_context import ClientContext
from pacfl.learning.model import Model, Vector
from pacfl.settings import PositiveInt


@final
@dataclass(frozen=True)
class LGFedAvg(Algorithm):
    """Liang and others (2020), Algorithm 1: the first layers stay at the client, only the last ones are sent.

    A model is w = (body_i, head); all of it is trained, body_i stays and head = Σ n_i head_i / Σ n_i.
    """

    shared_layers: PositiveInt = 2

    def init_server(self, model: Model) -> State:
        return State(model.initial[None, model.tail(self.shared_layers)])

    def init_client(self, model: Model) -> Message:
        return {"body": model.initial[: model.tail(self.shared_layers).start]}

    def train(self, context: ClientContext, down: Message, memory: Message) -> tuple[Message, Message]:
        w, _ = context.sgd(self.receive(context, down, memory))
        cut = context.model.tail(self.shared_layers).start
        return {"w": w[cut:]}, {"body": w[:cut]}

    def receive(self, context: ClientContext, down: Message, memory: Message) -> Vector:  # noqa: ARG002 - one form for all
        return np.concatenate([memory["body"], down["w"]])
