from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import final

import numpy as np

from pacfl.federation.algorithm import Algorithm, Upload, cluster_mean
from pacfl.federation.checks import dummy_context
from pacfl.federation.founding import (
    Array,
    FoundedState,
    check_like,
    cosines,
    joined,
    kmeans,
    local_model,
    with_models,
)
from pacfl.federation.message import ClientId, Message
from pacfl.federation.requirements import refuse_clipping
from pacfl.learning.client_context import ClientContext
from pacfl.learning.model import Model
from pacfl.settings import NonNegative, PositiveInt
from pacfl.subspace.hierarchy import Labels


@final
@dataclass(frozen=True)
class FlexCFL(Algorithm):
    """Duan and others (2021), the framework of FedGroup: groups of clients with similar directions of pre-training.

    Cold start: V = the m leading left singular vectors of ΔW = (Δw_1 .. Δw_n), Δw_i = SGD(w_0) - w_0;
    EDC_ij = |κ_i - κ_j| with κ_i = Vᵀ Δw_i / |Δw_i|; k-means of κ.
    Newcomers: the group whose founders' mean Δw has the largest cosine. FedAvg in each group; between groups
    w_g <- (w_g + η Σ_{h≠g} w_h / |w_h|) / (1 + η Σ_{h≠g} 1 / |w_h|).
    """

    clusters: PositiveInt = 2
    inter_group_lr: NonNegative = 0.0  # η

    server_steps = True

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_clipping(self, "the update of its pre-training")

    def no_secure(self) -> str:
        return "FlexCFL compares the pre-training updates of single clients, which are sent as they are"

    def init_server(self, model: Model) -> FoundedState:
        return FoundedState(model.initial[None])

    def profile(self, context: ClientContext) -> Message:
        return {"direction": (local_model(context) - context.model.initial)[~context.model.statistics]}

    def check_profile(self, model: Model, profile: Message) -> None:
        check_like(profile, self.profile(dummy_context(model)), model)

    def admit(self, state: FoundedState, profiles: Mapping[ClientId, Message]) -> FoundedState:
        return with_models(joined(state, {c: p["direction"] for c, p in profiles.items()}, self._cluster, _by_cosine))

    def aggregate(self, state: FoundedState, uploads: Sequence[Upload]) -> FoundedState:
        state = cluster_mean(state, uploads, self.aggregation, self.server_optimiser)
        if not uploads or not self.inter_group_lr:
            return state
        return replace(state, models=_mixed(state.models.astype(np.float64), self.inter_group_lr).astype(np.float32))

    def _cluster(self, updates: Array) -> Labels:
        return kmeans(decomposed_cosines(updates, self.clusters), self.clusters)


def decomposed_cosines(updates: Array, m: int) -> Array:
    """Cosines of updates (n, d) and their m leading directions: (n, m). Those of zeros are 0."""
    _, singular, directions = np.linalg.svd(updates, full_matrices=False)
    return cosines(updates, directions[:m][singular[:m] > 0])


def _mixed(models: Array, eta: float) -> Array:
    """Every model with a step towards the others, each of them at length 1; a model of zeros pulls nobody."""
    lengths = np.linalg.norm(models, axis=1)
    pull = np.divide(eta, lengths, out=np.zeros_like(lengths), where=lengths > 0)
    weights = np.where(np.eye(len(models), dtype=bool), 1.0, pull)
    mixed: Array = (weights / weights.sum(axis=1, keepdims=True)) @ models
    return mixed


def _by_cosine(updates: Array, directions: Array) -> Labels:
    rows: Labels = cosines(updates, directions).argmax(axis=1)
    return rows
