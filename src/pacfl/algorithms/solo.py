from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from pacfl.errors import ConfigError
from pacfl.federation.aggregation import Aggregation
from pacfl.federation.algorithm import Algorithm, State, Upload
from pacfl.federation.message import ClientId, Message
from pacfl.learning.client_context import ClientContext
from pacfl.learning.model import Model, Vector


@final
@dataclass(frozen=True)
class LocalOnly(Algorithm):
    """Local training only: nothing is sent."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.aggregation != Aggregation():
            raise ConfigError("solo sends nothing that could be aggregated; leave out aggregation for it")

    def no_secure(self) -> str:
        return "solo sends nothing that could be aggregated"

    def no_label_prior(self) -> str | None:
        return "solo sends no model whose label prior could differ from that of a client"

    def init_server(self, model: Model) -> State:
        return State(np.empty((0, len(model.initial)), dtype=np.float32))  # no model is shared

    def init_client(self, model: Model) -> Message:
        return {"w": model.initial}

    def download(self, state: State, client: ClientId) -> Message:  # noqa: ARG002 - nothing is sent
        return {}

    def train(self, context: ClientContext, down: Message, memory: Message) -> tuple[Message, Message]:  # noqa: ARG002
        w, _ = context.sgd(memory["w"])
        return {}, {"w": w}

    def aggregate(self, state: State, uploads: Sequence[Upload]) -> State:  # noqa: ARG002 - nothing is sent
        return state

    def receive(self, context: ClientContext, down: Message, memory: Message) -> Vector:  # noqa: ARG002 - its own model
        return memory["w"]
