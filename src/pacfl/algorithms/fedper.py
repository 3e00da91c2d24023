from dataclasses import dataclass
from typing import final

import numpy as np

from pacfl.federation.algorithm import Algorithm, State
from pacfl.federation.message import Message
from pacfl.learning.client_context import ClientContext
from pacfl.learning.model import Model, Vector
from pacfl.settings import NonNegativeInt


@final
@dataclass(frozen=True)
class FedPer(Algorithm):
    """Arivazhagan and others (2019), Algorithms 1 and 2: a body is shared, the last layers stay at their client.

    A model is w = (body, head_i); all of it is trained, head_i stays and body = Σ n_i body_i / Σ n_i.
    """

    head_layers: NonNegativeInt = 1

    def no_label_prior(self) -> str | None:
        if self.head_layers:
            return "the last layers of FedPer are a client's own, and so is their label prior"
        return super().no_label_prior()

    def init_server(self, model: Model) -> State:
        return State(model.initial[None, : model.body_size(self.head_layers)])

    def init_client(self, model: Model) -> Message:
        return {"head": model.initial[model.body_size(self.head_layers) :]}

    def train(self, context: ClientContext, down: Message, memory: Message) -> tuple[Message, Message]:
        w, _ = context.sgd(self.receive(context, down, memory))
        cut = len(down["w"])
        return {"w": w[:cut]}, {"head": w[cut:]}

    def receive(self, context: ClientContext, down: Message, memory: Message) -> Vector:  # noqa: ARG002 - one form for all
        return np.concatenate([down["w"], memory["head"]])
