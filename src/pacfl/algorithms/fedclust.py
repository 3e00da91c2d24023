from collections.abc import Mapping
from dataclasses import dataclass
from typing import final

from scipy.spatial.distance import pdist, squareform

from pacfl.federation.algorithm import Algorithm
from pacfl.federation.checks import dummy_context
from pacfl.federation.founding import (
    Array,
    FoundedState,
    by_distance,
    check_like,
    cut_into,
    joined,
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
class FedClust(Algorithm):
    """Islam and others (2024): clusters of last layers after local epochs from one initial model, found once.

    M_ij = |θ_i - θ_j|, θ_i the weights of client i's last layer; its dendrogram is cut, FedAvg follows in each cluster.
    """

    clusters: PositiveInt = 2
    threshold: NonNegative | None = None  # cut there instead

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_clipping(self, "the last layer of its local model")

    def no_secure(self) -> str:
        return "FedClust compares the last layers of single clients, which are sent as they are"

    def init_server(self, model: Model) -> FoundedState:
        return FoundedState(model.initial[None])

    def profile(self, context: ClientContext) -> Message:
        model, last = context.model, context.model.tail(1)
        return {"head": local_model(context)[last][~model.statistics[last]]}

    def check_profile(self, model: Model, profile: Message) -> None:
        check_like(profile, self.profile(dummy_context(model)), model)

    def admit(self, state: FoundedState, profiles: Mapping[ClientId, Message]) -> FoundedState:
        return with_models(joined(state, {c: p["head"] for c, p in profiles.items()}, self._cluster, by_distance))

    def _cluster(self, heads: Array) -> Labels:
        return cut_into(squareform(pdist(heads)), self.clusters, self.threshold)
