from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, final

import numpy as np

from pacfl.federation.algorithm import Algorithm, Upload, cluster_mean, mean
from pacfl.federation.checks import dummy_context
from pacfl.federation.founding import (
    Array,
    FoundedState,
    by_distance,
    check_like,
    cosines,
    joined,
    with_models,
)
from pacfl.federation.message import ClientId, Message
from pacfl.federation.requirements import refuse_clipping
from pacfl.learning.client_context import ClientContext
from pacfl.learning.model import Model, Vector
from pacfl.settings import NonNegative, Within
from pacfl.subspace.hierarchy import Labels


@dataclass(frozen=True, eq=False)
class StoCFLState(FoundedState):
    """With the global model ω, (d,)."""

    omega: Vector = field(kw_only=True)


@final
@dataclass(frozen=True)
class StoCFL(Algorithm):
    """Zeng and others (2022): clusters merge while their gradients at an anchor agree, and lean on a global model.

    Ψ_i = ∇F_i(anchor), the anchor is the initial model. Clusters, at first of one client each, with mean Ψ merge
    while the largest cos(Ψ_a, Ψ_b) is at least tau. Clients train ω_i = argmin F_i(ω), and
    θ_i = argmin F_i(θ) + mu/2 |θ - ω|²; ω is the mean of all ω_i, and θ_k that of the θ_i of cluster k.
    """

    tau: Annotated[float, Within(-1, 1)] = 0.3
    mu: NonNegative = 0.05  # λ in the paper

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_clipping(self, "its gradient at the anchor")

    def no_secure(self) -> str:
        return "StoCFL compares the gradients of single clients at the anchor, which are sent as they are"

    def init_server(self, model: Model) -> StoCFLState:
        return StoCFLState(model.initial[None], omega=model.initial)

    def profile(self, context: ClientContext) -> Message:
        return {"gradient": context.gradient(context.model.initial)[~(context.model.statistics | context.model.local)]}

    def check_profile(self, model: Model, profile: Message) -> None:
        check_like(profile, self.profile(dummy_context(model)), model)

    def admit(self, state: StoCFLState, profiles: Mapping[ClientId, Message]) -> StoCFLState:
        gradients = {c: profile["gradient"] for c, profile in profiles.items()}
        if state.centres is None:
            return with_models(joined(state, gradients, self._merged, by_distance))
        for client in sorted(gradients):
            state = self._placed(state, client, gradients[client])
        return state

    def download(self, state: StoCFLState, client: ClientId) -> Message:
        return {**super().download(state, client), "omega": state.omega}

    def train(self, context: ClientContext, down: Message, memory: Message) -> tuple[Message, Message]:
        omega, _ = context.sgd(down["omega"], purpose="global")
        w, _ = context.sgd(down["w"], prox=(self.mu, down["omega"]))
        return {"w": w, "omega": omega}, memory

    def aggregate(self, state: StoCFLState, uploads: Sequence[Upload]) -> StoCFLState:
        if not uploads:
            return state
        omega = mean(uploads, "omega", self.aggregation, state.omega).astype(np.float32)
        return replace(cluster_mean(state, uploads, self.aggregation), omega=omega)

    def _merged(self, gradients: Array) -> Labels:
        return merged(gradients @ gradients.T, self.tau)

    def _placed(self, state: StoCFLState, client: ClientId, gradient: Vector) -> StoCFLState:
        """In the most similar cluster, or in one of its own, which starts from the global model."""
        assert state.centres is not None
        similar = cosines(gradient[None].astype(np.float64), state.centres.astype(np.float64))[0]
        row = int(similar.argmax())
        if similar[row] < self.tau:
            row = len(state.models)
            state = replace(
                state,
                models=np.vstack([state.models, state.omega]),
                centres=np.vstack([state.centres, gradient]),
            )
        return replace(state, cluster_of={**state.cluster_of, client: row})


def merged(products: Array, tau: float) -> Labels:
    """Clusters of the vectors with these inner products, (n, n) -> (n,): the most similar two merge while >= tau.

    The cosine of means is that of sums, so that inner products of sums suffice.
    """
    sums, groups = products.copy(), [[i] for i in range(len(products))]
    while len(groups) > 1:
        similar = _cosines_of(sums)
        a, b = sorted(np.unravel_index(similar.argmax(), similar.shape))
        if similar[a, b] < tau:
            break
        sums[a] += sums[b]
        sums[:, a] += sums[:, b]
        sums = np.delete(np.delete(sums, b, 0), b, 1)
        groups[a] += groups.pop(b)
    labels = np.empty(len(products), dtype=np.intp)
    for k, members in enumerate(groups):
        labels[members] = k
    return labels


def _cosines_of(products: Array) -> Array:
    """Of all pairs, from inner products; 0 for zeros, and none of a vector with itself."""
    lengths = np.sqrt(np.maximum(np.diagonal(products), 0))
    scale = np.outer(lengths, lengths)
    similar: Array = np.divide(products, scale, out=np.zeros_like(products), where=scale > 0)
    np.fill_diagonal(similar, -np.inf)
    return similar
