from dataclasses import dataclass
from typing import final

from pacfl.errors import ConfigError
from pacfl.federation.algorithm import Algorithm, State
from pacfl.federation.message import Message
from pacfl.learning.client_context import ClientContext
from pacfl.learning.model import Model, Vector


@final
@dataclass(frozen=True)
class FedBN(Algorithm):
    """Li and others (2021), Algorithm 1: batch normalisation stays at its client, all other layers are averaged.

    A model is w = (norm_i, rest), norm_i with its running statistics; all of it is trained, and
    rest = Σ n_i rest_i / Σ n_i.
    """

    local_normalisation = True

    def init_server(self, model: Model) -> State:
        if not model.normalisation.any():
            raise ConfigError(
                "fedbn is for models with batch normalisation, which stays at the clients; this one has no layer with "
                "running statistics: use fedavg, or a net with nn.BatchNorm"
            )
        return State(model.initial[None, ~model.normalisation])

    def init_client(self, model: Model) -> Message:
        return {"norm": model.initial[model.normalisation]}

    def train(self, context: ClientContext, down: Message, memory: Message) -> tuple[Message, Message]:
        w, _ = context.sgd(self.receive(context, down, memory))
        own = context.model.normalisation
        return {"w": w[~own]}, {"norm": w[own]}

    def receive(self, context: ClientContext, down: Message, memory: Message) -> Vector:
        w, own = context.model.initial.copy(), context.model.normalisation
        w[own], w[~own] = memory["norm"], down["w"]
        return w
