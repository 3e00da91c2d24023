from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import final

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from pacfl.federation.algorithm import Algorithm, Upload, cluster_mean
from pacfl.federation.checks import dummy_context
from pacfl.federation.founding import (
    Array,
    FoundedState,
    by_distance,
    check_like,
    independent,
    joined,
    kmeans,
)
from pacfl.federation.message import ClientId, Message
from pacfl.federation.requirements import refuse_clipping
from pacfl.learning.client_context import ClientContext
from pacfl.learning.model import Model, Vector
from pacfl.settings import PositiveInt
from pacfl.subspace.hierarchy import Labels


@final
@dataclass(frozen=True)
class CLoVE(Algorithm):
    """Bhatia and others (2025): clients are clustered by their vectors of losses under k models.

    L_i = (F_i(w_1) .. F_i(w_k)); k-means of L over the clients of a round; the clusters C are matched to models by
    min Σ_C Σ_{i in C} L_i,model(C); w_k is the mean of those who trained it. The first vectors are those on joining.
    """

    clusters: PositiveInt = 2

    shared = "models"
    server_steps = True

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_clipping(self, "its losses under all models")

    def no_secure(self) -> str:
        return "CLoVE clusters the loss vectors of single clients, and sums hide them"

    def init_server(self, model: Model) -> FoundedState:
        return FoundedState(independent(model, self.clusters, "clove"))

    def profile(self, context: ClientContext) -> Message:
        return {"losses": _losses(context, independent(context.model, self.clusters, "clove"))}

    def check_profile(self, model: Model, profile: Message) -> None:
        check_like(profile, self.profile(dummy_context(model)), model)

    def admit(self, state: FoundedState, profiles: Mapping[ClientId, Message]) -> FoundedState:
        return joined(state, {c: profile["losses"] for c, profile in profiles.items()}, self._rows, by_distance)

    def download(self, state: FoundedState, client: ClientId) -> Message:
        return {"models": state.models, "choice": np.array([state.cluster_of[client]])}

    def train(self, context: ClientContext, down: Message, memory: Message) -> tuple[Message, Message]:
        w, _ = context.sgd(self.receive(context, down, memory))
        return {"w": w, "losses": _losses(context, down["models"])}, memory

    def aggregate(self, state: FoundedState, uploads: Sequence[Upload]) -> FoundedState:
        state = cluster_mean(state, uploads, self.aggregation, self.server_optimiser)
        if len(uploads) < self.clusters:  # k-means would separate all of them
            return state
        losses = {u.client: u.content["losses"] for u in sorted(uploads, key=lambda u: u.client)}
        rows = self._rows(np.stack(list(losses.values())).astype(np.float64)).tolist()
        return replace(state, cluster_of={**state.cluster_of, **dict(zip(losses, rows, strict=True))})

    def receive(self, context: ClientContext, down: Message, memory: Message) -> Vector:  # noqa: ARG002 - one form for all
        w: Vector = down["models"][int(down["choice"][0])]
        return w

    def _rows(self, losses: Array) -> Labels:
        """The model of each client: (n, k) -> (n,)."""
        labels = kmeans(losses, self.clusters)
        of_clusters = np.stack([losses[labels == c].sum(axis=0) for c in range(labels.max() + 1)])
        models: Labels = linear_sum_assignment(of_clusters)[1]
        return models[labels]


def _losses(context: ClientContext, models: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.array([context.loss(w) for w in models], dtype=np.float32)
