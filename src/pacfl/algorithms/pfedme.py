from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import final

import numpy as np

from pacfl.federation.algorithm import Algorithm, State, Upload, cluster_mean
from pacfl.federation.message import Message
from pacfl.learning.client_context import ClientContext
from pacfl.learning.model import Vector
from pacfl.settings import Positive, PositiveInt


@final
@dataclass(frozen=True)
class PFedMe(Algorithm):
    """Dinh, Tran and Nguyen (2020), Algorithm 1: gradients of the Moreau envelope of each client's loss.

    θ_i(w) = argmin_θ F_i(θ) + lam / 2 |θ - w|² is a client's own model, and lam (w - θ_i(w)) the gradient at w.
    For every batch: θ takes some steps, then w <- w - eta lam (w - θ). The server: w = (1 - beta) w0 + beta mean(w_i).
    """

    lam: Positive = 15.0
    eta: Positive = 0.005
    inner_steps: PositiveInt = 5  # of θ on every batch, at the learning rate
    beta: Positive = 1.0

    sums = MappingProxyType({"w": "mean"})

    def train(self, context: ClientContext, down: Message, memory: Message) -> tuple[Message, Message]:
        w = theta = down["w"]
        step = np.float32(self.eta * self.lam)
        for i, batch in enumerate(context.batches()):
            theta, _ = batch.sgd(theta, prox=(self.lam, w), epochs=self.inner_steps, purpose=f"step {i}")
            w = (1 - step) * w + step * theta
        return {"w": w}, memory

    def aggregate(self, state: State, uploads: Sequence[Upload]) -> State:
        if not uploads:
            return state
        mean = cluster_mean(state, uploads, self.aggregation)
        beta = np.float32(self.beta)
        return replace(mean, models=(1 - beta) * state.models + beta * mean.models)

    def personalise(self, context: ClientContext, down: Message, memory: Message) -> Vector:  # noqa: ARG002 - one form for all
        theta, _ = context.sgd(down["w"], prox=(self.lam, down["w"]), purpose="personal")
        return theta
