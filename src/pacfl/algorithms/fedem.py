from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import final

import numpy as np

from pacfl.federation.algorithm import Algorithm, State, Upload, mean
from pacfl.federation.founding import independent
from pacfl.federation.message import ClientId, Message
from pacfl.federation.soft import Array, posterior, sample_losses, train_each
from pacfl.learning.client_context import ClientContext
from pacfl.learning.mixture import Weights, mixture
from pacfl.learning.model import Model
from pacfl.settings import PositiveInt


@final
@dataclass(frozen=True)
class FedEM(Algorithm):
    """Marfoq and others (2021), Algorithm 1: the data of every client are a mixture of k distributions.

    E-step, for each sample s: q_s(m) ∝ π_im exp(-l(w_m; s)). M-step: π_im = Σ_s q_s(m) / n_i, and w_im is w_m
    trained on Σ_s q_s(m) l(w; s) / n_i. The server: w_m = Σ n_i w_im / Σ n_i. A client predicts Σ_m π_im p(y | x; w_m).
    """

    clusters: PositiveInt = 3  # distributions

    mixes = True
    shared = "models"
    sums = MappingProxyType({"w": "mean"})

    def no_label_prior(self) -> str:
        return "every model of FedEM is trained on parts of all samples, and class counts do not say on which"

    def init_server(self, model: Model) -> State:
        return State(independent(model, self.clusters, "fedem"))

    def download(self, state: State, client: ClientId) -> Message:  # noqa: ARG002 - every client gets all
        return {"models": state.models}

    def upload_start(self, down: Message) -> Message:
        return {"w": down["models"]}

    def train(self, context: ClientContext, down: Message, memory: Message) -> tuple[Message, Message]:
        q = _e_step(context, down, memory)
        models, steps = train_each(context, down["models"], q)
        return {"w": models}, {"weights": q.mean(axis=0)} if steps or not memory else memory

    def aggregate(self, state: State, uploads: Sequence[Upload]) -> State:
        if not uploads:
            return state
        models = mean(uploads, "w", self.aggregation, state.models)
        return replace(state, models=models.astype(np.float32))

    def receive(self, context: ClientContext, down: Message, memory: Message) -> Weights:
        # Who has not trained yet takes one step of EM for its weights
        weights = memory["weights"] if memory else _e_step(context, down, memory).mean(axis=0)
        return mixture(down["models"], weights)

    def personalise(self, context: ClientContext, down: Message, memory: Message) -> Weights:
        q = _e_step(context, down, memory)
        models, _ = train_each(context, down["models"], q, purpose="personal")
        return mixture(models, q.mean(axis=0))


def _e_step(context: ClientContext, down: Message, memory: Message) -> Array:
    """The share of every model in every sample, (n, k); all models have the same weight at first."""
    weights = memory.get("weights", np.ones(len(down["models"])))
    return posterior(weights, -sample_losses(context, down["models"]))
