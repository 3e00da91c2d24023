from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import final

import numpy as np
from numpy.typing import NDArray

from pacfl.errors import InvalidReplyError
from pacfl.federation.algorithm import Algorithm, State, Upload, effective_steps, mean
from pacfl.federation.message import Message
from pacfl.federation.requirements import require_sgd
from pacfl.learning.client_context import ClientContext, LocalTraining
from pacfl.learning.model import Model


@dataclass(frozen=True, eq=False, kw_only=True)
class FedNovaState(State):
    """Of a model with running statistics, and where they are: (d,). They are averaged, for they take no steps."""

    statistics: NDArray[np.bool_]


@final
@dataclass(frozen=True)
class FedNova(Algorithm):
    """Wang and others (2020), Eq. 7: the mean of directions, so that more steps are not more votes.

    d_i = (w0 - w_i) / a_i with the effective steps a_i, and w = w0 - (Σ p_i a_i) (Σ p_i d_i) with the shares p_i.
    """

    public_uploads = ("steps",)  # they follow from the number of samples
    sums = MappingProxyType({"direction": "mean", "steps": "mean"})

    def check_training(self, learning: LocalTraining) -> None:
        require_sgd(self, learning)

    def init_server(self, model: Model) -> State:
        if not model.statistics.any():
            return State(model.initial[None])
        return FedNovaState(model.initial[None], statistics=model.statistics)

    def train(self, context: ClientContext, down: Message, memory: Message) -> tuple[Message, Message]:
        w, steps = context.sgd(down["w"])
        a = effective_steps(steps, context.learning.momentum)
        # One step or more is an a of at least 1; none has no direction
        divisor = np.where(context.model.statistics, np.float32(1), np.float32(max(a, 1)))
        return {"direction": (down["w"] - w) / divisor, "steps": np.array([a])}, memory

    def upload_start(self, down: Message) -> Message:  # noqa: ARG002 - a direction is a change already
        return {}

    def check_upload(self, model: Model, down: Message, up: Message) -> None:
        super().check_upload(model, down, up)
        if not (steps := float(up["steps"][0])) > 0:
            raise InvalidReplyError(f"took {steps} steps")

    def aggregate(self, state: State, uploads: Sequence[Upload]) -> State:
        if not uploads:
            return state
        steps = mean(uploads, "steps", self.aggregation)
        if isinstance(state, FedNovaState):
            steps = np.where(state.statistics, 1.0, steps)
        move = steps * mean(uploads, "direction", self.aggregation)
        return replace(state, models=(state.models - move).astype(np.float32))
