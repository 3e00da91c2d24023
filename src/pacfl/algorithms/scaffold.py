from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import final

import numpy as np

from pacfl.federation.algorithm import Algorithm, State, Upload, cluster_mean, effective_steps, mean
from pacfl.federation.message import ClientId, Message
from pacfl.federation.requirements import require_sgd
from pacfl.learning.client_context import ClientContext, LocalTraining
from pacfl.learning.model import Model, Vector


@dataclass(frozen=True, eq=False, kw_only=True)
class ScaffoldState(State):
    """With the server's control variate c, and the number of clients it is the mean of, those that left included."""

    control: Vector
    n_clients: int


@final
@dataclass(frozen=True)
class Scaffold(Algorithm):
    """Karimireddy and others (2020), Algorithm 1, option II: gradients are corrected by control variates c - ci.

    The server's c is the mean of the ci of all N clients, whether or not they took part: c += Σ dci / N.
    """

    sums = MappingProxyType({"w": "mean", "dc": "sum"})

    def check_training(self, learning: LocalTraining) -> None:
        require_sgd(self, learning)

    def init_server(self, model: Model) -> ScaffoldState:
        return ScaffoldState(model.initial[None], control=np.zeros_like(model.initial), n_clients=0)

    def admit(self, state: ScaffoldState, profiles: Mapping[ClientId, Message]) -> ScaffoldState:
        after: ScaffoldState = super().admit(state, profiles)
        n = state.n_clients + len(after.cluster_of) - len(state.cluster_of)
        # Clients that join have ci = 0, and c is the mean of more
        return replace(after, control=state.control * np.float32(state.n_clients / max(n, 1)), n_clients=n)

    def init_client(self, model: Model) -> Message:
        return {"c": np.zeros_like(model.initial)}

    def download(self, state: ScaffoldState, client: ClientId) -> Message:
        return {"w": state.models[state.cluster_of[client]], "c": state.control}

    def train(self, context: ClientContext, down: Message, memory: Message) -> tuple[Message, Message]:
        w0, c, ci = down["w"], down["c"], memory["c"]
        w, steps = context.sgd(w0, gradient_correction=c - ci)
        if not steps:  # no gradient was seen
            return {"w": w, "dc": np.zeros_like(c)}, memory
        # With momentum a step goes further than lr: the honest divisor is the distance in plain steps
        a = effective_steps(steps, context.learning.momentum)
        ci_new = ci - c + (w0 - w) / np.float32(a * context.learning.lr)
        ci_new[context.model.statistics] = 0  # running statistics have no gradient
        return {"w": w, "dc": ci_new - ci}, {"c": ci_new}

    def aggregate(self, state: ScaffoldState, uploads: Sequence[Upload]) -> ScaffoldState:
        if not uploads:
            return state
        if self.aggregation.rule in ("mean", "uniform"):
            dc = np.stack([u.content["dc"] for u in uploads]).sum(axis=0) / state.n_clients
        else:
            dc = mean(uploads, "dc", self.aggregation) * (len(uploads) / state.n_clients)
        return replace(cluster_mean(state, uploads, self.aggregation), control=(state.control + dc).astype(np.float32))
