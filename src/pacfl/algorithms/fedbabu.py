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
class FedBABU(Algorithm):
    """Oh, Kim and Yun (2022), Algorithm 1: only the body is trained, at a head that stays as it was drawn.

    body = Σ n_i body_i / Σ n_i, where body_i is trained with the head h_0 of the initial model. Clients fine-tune
    all layers, the head for the first time, when they are evaluated.
    """

    head_layers: NonNegativeInt = 1
    epochs: NonNegativeInt = 5  # of fine-tuning

    def no_label_prior(self) -> str | None:
        if self.head_layers:
            return "the last layers of FedBABU are not trained, and so they have no label prior"
        return super().no_label_prior()

    def init_server(self, model: Model) -> State:
        return State(model.initial[None, : model.body_size(self.head_layers)])

    def train(self, context: ClientContext, down: Message, memory: Message) -> tuple[Message, Message]:
        cut = len(down["w"])
        in_body = np.arange(len(context.model.initial)) < cut
        w, _ = context.sgd(self.receive(context, down, memory), mask=in_body)
        return {"w": w[:cut]}, memory

    def receive(self, context: ClientContext, down: Message, memory: Message) -> Vector:  # noqa: ARG002 - one form for all
        return np.concatenate([down["w"], context.model.initial[len(down["w"]) :]])

    def personalise(self, context: ClientContext, down: Message, memory: Message) -> Vector:
        w, _ = context.sgd(self.receive(context, down, memory), epochs=self.epochs, purpose="personal")
        return w
