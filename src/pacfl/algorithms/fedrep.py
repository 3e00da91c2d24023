from dataclasses import dataclass
from typing import final

import numpy as np

from pacfl.federation.algorithm import Algorithm, State
from pacfl.federation.message import Message
from pacfl.learning.client_context import ClientContext
from pacfl.learning.model import Model, Vector
from pacfl.settings import NonNegativeInt, PositiveInt


@final
@dataclass(frozen=True)
class FedRep(Algorithm):
    """Collins and others (2021), Algorithm 1: a representation φ is shared, and each client has a head h_i of its own.

    The head is trained first, at the received φ, then φ at that head: h_i <- SGD(F_i(φ, h_i)) over h_i alone,
    φ_i <- SGD(F_i(φ, h_i)) over φ alone, and φ = Σ n_i φ_i / Σ n_i.
    """

    head_layers: NonNegativeInt = 1
    body_epochs: PositiveInt = 1  # at most the local epochs, which are those of the head

    def no_label_prior(self) -> str | None:
        if self.head_layers:
            return "the last layers of FedRep are a client's own, and so is their label prior"
        return super().no_label_prior()

    def init_server(self, model: Model) -> State:
        return State(model.initial[None, : model.body_size(self.head_layers)])

    def init_client(self, model: Model) -> Message:
        return {"head": model.initial[model.body_size(self.head_layers) :]}

    def train(self, context: ClientContext, down: Message, memory: Message) -> tuple[Message, Message]:
        cut = len(down["w"])
        in_body = np.arange(len(context.model.initial)) < cut
        w, _ = context.sgd(self.receive(context, down, memory), mask=~in_body, purpose="head")
        w, _ = context.sgd(w, mask=in_body, epochs=min(self.body_epochs, context.learning.epochs))
        return {"w": w[:cut]}, {"head": w[cut:]}

    def receive(self, context: ClientContext, down: Message, memory: Message) -> Vector:  # noqa: ARG002 - one form for all
        return np.concatenate([down["w"], memory["head"]])

    def personalise(self, context: ClientContext, down: Message, memory: Message) -> Vector:
        in_head = np.arange(len(context.model.initial)) >= len(down["w"])
        w, _ = context.sgd(self.receive(context, down, memory), mask=in_head, purpose="personal")
        return w
