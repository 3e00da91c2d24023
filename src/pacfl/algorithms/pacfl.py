from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, final

import numpy as np
from numpy.typing import NDArray

from pacfl.federation.algorithm import Algorithm, State
from pacfl.federation.message import ClientId, Message
from pacfl.learning.model import Model, Vector
from pacfl.learning.task import Task
from pacfl.subspace import Grouping, Linkage, Measure, group, proximity, regroup, self_angles, signature


@dataclass(frozen=True, eq=False)
class PACFLState(State):
    """With everybody's signature, in the order of joining, and how they are grouped."""

    bases: Mapping[ClientId, NDArray[np.float32]] = field(default_factory=dict)
    grouping: Grouping | None = None
    initial: Vector = field(
        default_factory=lambda: np.empty(0, dtype=np.float32)
    )  # what a cluster that is opened later starts from


@final
@dataclass(frozen=True)
class PACFL(Algorithm):
    """The paper's Algorithm 1: signatures once, clusters of them, federated averaging in each.

    Newcomers (Algorithm 2) come through the same door; nobody else changes cluster because of them.
    """

    rank: int = 3
    threshold: Literal["auto"] | float = "auto"  # degrees
    clusters: int | None = None
    measure: Measure = "smallest"
    linkage: Linkage = "average"
    per_class: bool = False

    def init_server(self, model: Model) -> PACFLState:
        return PACFLState(model.initial[None], initial=model.initial)

    def profile(self, task: Task) -> Message:
        labels = task.train.y if self.per_class else None
        own = self_angles(task.raw, self.rank, labels)[self.measure]
        basis = signature(task.raw, self.rank, labels)
        return {"basis": basis.astype(np.float32), "self_angles": own.astype(np.float32)}

    def admit(self, state: PACFLState, profiles: Mapping[ClientId, Message]) -> PACFLState:
        state = _without(state, profiles)
        bases = {c: m["basis"] for c, m in profiles.items()}
        own = [m["self_angles"] for m in profiles.values()]
        if state.grouping is None:
            angles = proximity(list(bases.values()), self.measure)
            beta = None if self.threshold == "auto" else float(self.threshold)
            k = None if self.clusters is None else min(self.clusters, len(bases))
            grouping = group(angles, own, self.measure, self.linkage, beta if k is None else None, k)
        else:
            grouping, _ = regroup(state.grouping, list(state.bases.values()), list(bases.values()), own)
        everybody = {**state.bases, **bases}
        born = int(grouping.labels.max()) + 1 - len(state.models)
        return replace(
            state,
            models=np.vstack([state.models, *[state.initial] * born]),
            cluster_of={**state.cluster_of, **dict(zip(everybody, grouping.labels.tolist(), strict=True))},
            bases=everybody,
            grouping=grouping,
        )


def _without(state: PACFLState, clients: Mapping[ClientId, Message]) -> PACFLState:
    """Forget the signatures of clients that are profiled anew."""
    known = list(state.bases)
    kept = [i for i, c in enumerate(known) if c not in clients]
    if len(kept) == len(known) or state.grouping is None:
        return state
    if not kept:
        return replace(state, bases={}, grouping=None)
    old = state.grouping
    smaller = replace(
        old, proximity=old.proximity[np.ix_(kept, kept)], floors=old.floors[kept], labels=old.labels[kept]
    )
    return replace(state, bases={known[i]: state.bases[known[i]] for i in kept}, grouping=smaller)
