from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import final

import numpy as np

from pacfl.federation.algorithm import Algorithm, Upload, cluster_mean
from pacfl.federation.checks import dummy_context
from pacfl.federation.founding import (
    FoundedState,
    by_distance,
    check_like,
    joined,
    kmeans,
    local_model,
)
from pacfl.federation.message import ClientId, Message
from pacfl.federation.requirements import refuse_clipping
from pacfl.learning.client_context import ClientContext
from pacfl.learning.model import Model
from pacfl.settings import PositiveInt


@final
@dataclass(frozen=True)
class FeSEM(Algorithm):
    """Xie and others (2021), Algorithm 1: the k models are centres of local models, fitted by stochastic EM.

    E-step: r_i = argmin_k |w_i - w_k|, of the clients of a round. M-step: w_k is the mean of the w_i with r_i = k.
    Both are repeated until nothing changes (k-means) for the local models with which clients join first.
    """

    clusters: PositiveInt = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_clipping(self, "its first local model")

    def no_secure(self) -> str:
        return "FeSEM assigns clients to centres by their single models, and sums hide them"

    def init_server(self, model: Model) -> FoundedState:
        return FoundedState(model.initial[None])

    def profile(self, context: ClientContext) -> Message:
        return {"w": local_model(context)}

    def check_profile(self, model: Model, profile: Message) -> None:
        check_like(profile, self.profile(dummy_context(model)), model)

    def admit(self, state: FoundedState, profiles: Mapping[ClientId, Message]) -> FoundedState:
        reports = {c: profile["w"] for c, profile in profiles.items()}
        after = joined(state, reports, lambda w: kmeans(w, self.clusters), by_distance)
        if state.centres is not None or after.centres is None:
            return after
        return replace(after, models=after.centres)

    def trained_row(self, state: FoundedState, upload: Upload) -> int:
        w = upload.content["w"].astype(np.float64)
        return int(by_distance(w[None], state.models.astype(np.float64))[0])

    def aggregate(self, state: FoundedState, uploads: Sequence[Upload]) -> FoundedState:
        nearest = {u.client: self.trained_row(state, u) for u in uploads}
        state = replace(state, cluster_of={**state.cluster_of, **nearest}) if uploads else state
        return cluster_mean(state, uploads, self.aggregation)
