from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import final

import numpy as np
from numpy.typing import NDArray

from pacfl.errors import InvalidReplyError
from pacfl.federation.algorithm import Algorithm, State, Upload, mean
from pacfl.federation.checks import ArraySpec, ArraySpecs
from pacfl.federation.founding import independent
from pacfl.federation.message import ClientId, Message
from pacfl.federation.requirements import refuse_clipping, require_classes
from pacfl.federation.soft import Array, posterior, sample_losses, train_each
from pacfl.learning.client_context import ClientContext, LocalTraining
from pacfl.learning.mixture import Weights, mixture
from pacfl.learning.model import Model
from pacfl.settings import PositiveInt

LEAST = 1e-8  # share of a class: where a model has none of it
MOST_CLASSES = 100_000

Shares = NDArray[np.float32]


@dataclass(frozen=True, eq=False, kw_only=True)
class FedRCState(State):
    """With the class shares C of each model (k, classes), and what they are made of: sizes, and each client's part."""

    shares: Shares
    parts: Mapping[ClientId, tuple[int, Shares]] = field(default_factory=dict)


@final
@dataclass(frozen=True)
class FedRC(Algorithm):
    """Guo, Tang and Lin (2024): as FedEM, but class shares do not decide about clusters, only p(y | x) does.

    γ_sm ∝ ω_im exp(-l(w_m; s)) / C_ym for each sample s of class y, with C_ym the share of class y in the samples of
    model m: C_ym = Σ_s∈y γ_sm / Σ_s γ_sm over all clients. ω_im = Σ_s γ_sm / n_i, and w_im is w_m trained on
    Σ_s γ_sm l(w; s) / n_i. The server: w_m = Σ n_i w_im / Σ n_i. A client predicts Σ_m ω_im p(y | x; w_m).
    """

    clusters: PositiveInt = 3

    mixes = True
    shared = "models"

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_clipping(self, "how its classes are divided among the models")

    def no_label_prior(self) -> str:
        return "every model of FedRC is trained on parts of all samples, and class counts do not say on which"

    def no_secure(self) -> str:
        return "FedRC stores how the classes of every client are divided among the models"

    def check_training(self, learning: LocalTraining) -> None:
        require_classes(self, "divides classes among models", learning)

    def init_server(self, model: Model) -> FedRCState:
        place = model.output_bias
        n_classes = 1 if place is None else place.stop - place.start
        equal = np.full((self.clusters, n_classes), 1 / n_classes, dtype=np.float32)
        return FedRCState(independent(model, self.clusters, "fedrc"), shares=equal)

    def forget(self, state: FedRCState, clients: Set[ClientId]) -> FedRCState:
        left: FedRCState = super().forget(state, clients)
        return replace(left, parts={c: part for c, part in state.parts.items() if c not in clients})

    def download(self, state: FedRCState, client: ClientId) -> Message:  # noqa: ARG002 - every client gets all
        return {"models": state.models, "shares": state.shares}

    def train(self, context: ClientContext, down: Message, memory: Message) -> tuple[Message, Message]:
        gamma = _gamma(context, down, memory)
        models, steps = train_each(context, down["models"], gamma)
        after = {"weights": gamma.mean(axis=0)} if steps or not memory else memory
        gamma = gamma if steps else np.full_like(gamma, 1 / len(models))  # who does not train divides nothing
        return {"w": models, "parts": _parts(context, down, gamma)}, after

    def upload_specs(self, model: Model, down: Message) -> ArraySpecs:
        specs = super().upload_specs(model, down)
        return {**specs, "parts": ArraySpec((len(down["models"]), -1), "f", MOST_CLASSES)}

    def check_upload(self, model: Model, down: Message, up: Message) -> None:
        super().check_upload(model, down, up)
        if up["parts"].min(initial=0) < 0 or abs(float(up["parts"].sum()) - 1) > 1e-3:
            raise InvalidReplyError(f"has parts from {up['parts'].min(initial=0)} with a sum of {up['parts'].sum()}")

    def aggregate(self, state: FedRCState, uploads: Sequence[Upload]) -> FedRCState:
        if not uploads:
            return state
        new = {u.client: (u.size, u.content["parts"]) for u in uploads}
        parts = {**state.parts, **new}
        samples = np.zeros((self.clusters, max(own.shape[1] for _, own in parts.values())))
        for size, own in parts.values():
            samples[:, : own.shape[1]] += size * own.astype(np.float64)
        shares = samples / np.maximum(samples.sum(axis=1, keepdims=True), LEAST)
        return replace(
            state,
            models=mean(uploads, "w", self.aggregation, state.models).astype(np.float32),
            cluster_of={**state.cluster_of, **{c: int(own.sum(axis=1).argmax()) for c, (_, own) in new.items()}},
            shares=shares.astype(np.float32),
            parts=parts,
        )

    def receive(self, context: ClientContext, down: Message, memory: Message) -> Weights:
        # Who has not trained yet takes one step for its weights
        weights = memory["weights"] if memory else _gamma(context, down, memory).mean(axis=0)
        return mixture(down["models"], weights)

    def personalise(self, context: ClientContext, down: Message, memory: Message) -> Weights:
        gamma = _gamma(context, down, memory)
        models, _ = train_each(context, down["models"], gamma, purpose="personal")
        return mixture(models, gamma.mean(axis=0))


def _gamma(context: ClientContext, down: Message, memory: Message) -> Array:
    """The share of every model in every sample, (n, k); all models have the same weight at first."""
    y, known = context.train.y, down["shares"].shape[1]
    shares = np.zeros((len(down["models"]), max(known, int(y.max()) + 1)))
    shares[:, :known] = down["shares"]
    log_shares = np.log(np.maximum(shares, LEAST))[:, y].T
    weights = memory.get("weights", np.ones(len(down["models"])))
    return posterior(weights, -sample_losses(context, down["models"]) - log_shares)


def _parts(context: ClientContext, down: Message, gamma: Array) -> Shares:
    """The client's samples by model and class, as shares of all of them: (k, classes)."""
    y, n_classes = context.train.y, down["shares"].shape[1]
    counts = [np.bincount(y, own, minlength=n_classes) for own in gamma.T]
    return (np.stack(counts) / len(y)).astype(np.float32)
