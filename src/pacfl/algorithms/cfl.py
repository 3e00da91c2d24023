from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import final

import numpy as np
from numpy.typing import NDArray
from scipy.cluster.hierarchy import cut_tree, linkage

from pacfl.federation.algorithm import Algorithm, State, Upload, cluster_mean
from pacfl.federation.message import ClientId
from pacfl.learning.model import Model
from pacfl.settings import NonNegative, NonNegativeInt


@dataclass(frozen=True, eq=False)
class CFLState(State):
    """With each client's latest update and size, the number of rounds, and the norms that decide about splits."""

    updates: Mapping[ClientId, tuple[int, NDArray[np.float32]]] = field(default_factory=dict)
    rounds: int = 0
    update_norms: tuple[tuple[int, float, float], ...] = ()  # cluster, norm of the mean update, largest norm
    weights: NDArray[np.bool_] | None = None  # (d,) what updates are compared by, if not by all: no running statistics


@final
@dataclass(frozen=True)
class CFL(Algorithm):
    """Sattler and others (2021), Algorithm 2: a stationary cluster whose clients still disagree is split by cosine.

    Stationary: |Σ share_i Δ_i| < eps1. Disagreeing: max |Δ_i| > eps2. Two sides: √((1 - α_cross) / 2) > gamma.
    The norms depend on model and learning rate: `update_norms` in the records are what eps1 and eps2 are compared with.
    """

    eps1: NonNegative = 0.4
    eps2: NonNegative = 1.6
    gamma: NonNegative = 0.0
    first_split: NonNegativeInt = 20  # no split before this round

    server_steps = True

    def no_secure(self) -> str:
        return "CFL splits clusters by the cosines between single updates, and sums hide them"

    def init_server(self, model: Model) -> CFLState:
        return CFLState(model.initial[None], weights=~model.statistics if model.statistics.any() else None)

    def forget(self, state: CFLState, clients: Set[ClientId]) -> CFLState:
        left: CFLState = super().forget(state, clients)
        return replace(left, updates={c: u for c, u in state.updates.items() if c not in clients})

    def aggregate(self, state: CFLState, uploads: Sequence[Upload]) -> CFLState:
        if not uploads:
            return state
        fresh = {u.client: (u.size, u.content["w"] - state.models[state.cluster_of[u.client]]) for u in uploads}
        state = replace(state, updates={**state.updates, **fresh}, rounds=state.rounds + 1, update_norms=())
        state = cluster_mean(state, uploads, self.aggregation, self.server_optimiser)
        for k in range(len(state.models)):
            state = self._split(state, k)
        return state

    def _split(self, state: CFLState, k: int) -> CFLState:
        members = [c for c in state.updates if state.cluster_of[c] == k]
        if not members:
            return state
        sizes = np.array([state.updates[c][0] for c in members], dtype=np.float64)
        updates = np.stack([state.updates[c][1] for c in members])
        updates = updates if state.weights is None else updates[:, state.weights]
        norms = np.linalg.norm(updates, axis=1)
        of_mean = np.linalg.norm(sizes / sizes.sum() @ updates)
        state = replace(state, update_norms=(*state.update_norms, (k, float(of_mean), float(norms.max()))))
        if state.rounds <= self.first_split or len(members) < 3:
            return state
        if not (of_mean < self.eps1 and norms.max() > self.eps2 and norms.min() > 0):
            return state
        # Algorithm 1: the bipartition whose most similar pair across is least similar = the last merge undone
        tree = linkage(updates, "single", "cosine")
        if not np.sqrt(max(tree[-1, 2], 0.0) / 2) > self.gamma:
            return state
        leaving = [c for c, side in zip(members, cut_tree(tree, 2)[:, 0], strict=True) if side]
        # Updates from before the split are of a model that the two halves no longer share
        updates_left = {c: u for c, u in state.updates.items() if c not in members}
        return replace(
            state,
            models=np.vstack([state.models, state.models[k]]),
            moments=state.moments and state.moments.rows([*range(len(state.models)), k]),
            class_shares=None if state.class_shares is None else np.vstack([state.class_shares, state.class_shares[k]]),
            cluster_of={**state.cluster_of, **dict.fromkeys(leaving, len(state.models))},
            updates=updates_left,
        )
