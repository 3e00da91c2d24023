from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

from pacfl.federation.algorithm import Algorithm, State, Upload
from pacfl.federation.message import ClientId, Message
from pacfl.learning.client_context import Task
from pacfl.learning.model import Model, Vector


@final
@dataclass(frozen=True)
class Solo(Algorithm):
    """Everybody alone: nothing travels."""

    def init_client(self, model: Model) -> Message:
        return {"w": model.initial}

    def download(self, state: State, client: ClientId) -> Message:  # noqa: ARG002 - nothing travels
        return {}

    def train(self, task: Task, down: Message, memory: Message) -> tuple[Message, Message]:  # noqa: ARG002
        w, _ = task.sgd(memory["w"])
        return {}, {"w": w}

    def aggregate(self, state: State, uploads: Sequence[Upload]) -> State:  # noqa: ARG002 - nothing travels
        return state

    def receive(self, task: Task, down: Message, memory: Message) -> Vector:  # noqa: ARG002 - its own model
        return memory["w"]
