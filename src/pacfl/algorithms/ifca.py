from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import final

import numpy as np

from pacfl.errors import ConfigError, InvalidReplyError
from pacfl.federation.algorithm import Algorithm, State, Upload, cluster_mean
from pacfl.federation.founding import independent
from pacfl.federation.message import ClientId, Message
from pacfl.learning.client_context import ClientContext
from pacfl.learning.model import Model, Vector
from pacfl.settings import PositiveInt


@final
@dataclass(frozen=True)
class IFCA(Algorithm):
    """Ghosh and others (2020), Algorithm 1 with model averaging: all models go down, a client trains one of them.

    It takes j = argmin_j F_i(w_j), the least loss on its own training data; w_j is the mean of those who took it.
    """

    clusters: PositiveInt = 2

    shared = "models"
    server_steps = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.aggregation.clip_norm is not None:
            raise ConfigError("IFCA cannot hide updates: the choice of a model reveals its client; leave out clip-norm")

    def no_secure(self) -> str:
        return "the choice of a model, which is sent as it is, shows the server which cluster a client is in"

    def init_server(self, model: Model) -> State:
        return State(independent(model, self.clusters, "ifca"))

    def download(self, state: State, client: ClientId) -> Message:  # noqa: ARG002 - every client gets all
        return {"models": state.models}

    def train(self, context: ClientContext, down: Message, memory: Message) -> tuple[Message, Message]:
        choice = _best(context, down)
        w, _ = context.sgd(down["models"][choice])
        return {"w": w, "choice": np.array([choice])}, memory

    def check_upload(self, model: Model, down: Message, up: Message) -> None:
        super().check_upload(model, down, up)
        if not 0 <= (choice := int(up["choice"][0])) < len(down["models"]):
            raise InvalidReplyError(f"chose model {choice} of {len(down['models'])}")

    def trained_row(self, state: State, upload: Upload) -> int:  # noqa: ARG002 - the client has chosen it
        return int(upload.content["choice"][0])

    def aggregate(self, state: State, uploads: Sequence[Upload]) -> State:
        chosen = {u.client: int(u.content["choice"][0]) for u in uploads}
        if not uploads:
            return state
        state = replace(state, cluster_of={**state.cluster_of, **chosen})
        return cluster_mean(state, uploads, self.aggregation, self.server_optimiser)

    def receive(self, context: ClientContext, down: Message, memory: Message) -> Vector:  # noqa: ARG002 - one form for all
        w: Vector = down["models"][_best(context, down)]
        return w


def _best(context: ClientContext, down: Message) -> int:
    if len(down["models"]) == 1:
        return 0
    return int(np.argmin([context.loss(w) for w in down["models"]]))
