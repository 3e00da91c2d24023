from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Literal, final

import numpy as np
from numpy.typing import NDArray

from pacfl.federation.algorithm import Algorithm, State
from pacfl.federation.message import ClientId, Message
from pacfl.federation.settings import Count, NotNegative, Share
from pacfl.learning.model import Model, Vector
from pacfl.learning.plan import stream
from pacfl.learning.task import Task
from pacfl.privacy import gaussian_sigma, private_signature, secret, seeded
from pacfl.subspace import Grouping, Linkage, Measure, group, proximity, regroup, self_angles, signature


@dataclass(frozen=True, eq=False, kw_only=True)
class PACFLState(State):
    """With everybody's signature, in the order of joining, and how they are grouped; labels are rows of the models."""

    initial: Vector  # what a cluster starts from, whenever it is opened
    bases: Mapping[ClientId, NDArray[np.float32]] = field(default_factory=dict)
    grouping: Grouping | None = None


@final
@dataclass(frozen=True)
class PACFL(Algorithm):
    """The paper's Algorithm 1: signatures once, clusters of them, federated averaging in each.

    Newcomers (Algorithm 2) come through the same door; nobody else changes cluster because of them.
    """

    rank: Count = 3
    threshold: Literal["auto"] | NotNegative = "auto"  # degrees
    clusters: Count | None = None
    measure: Measure = "smallest"
    linkage: Linkage = "average"
    per_class: bool = False
    signature_epsilon: NotNegative | None = None  # differential privacy of each sample in the signature
    signature_delta: Share = 1e-5
    signature_noise: Literal["secret", "seeded"] = "secret"  # seeded: reproducible, so that it protects nobody

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.threshold != "auto" and self.clusters is not None:
            raise ValueError(f"PACFL wants threshold or clusters, not both; got {self.threshold} and {self.clusters}")
        if self.signature_epsilon is not None:
            gaussian_sigma(self.signature_epsilon, self.signature_delta)  # refuses what is no guarantee
            if self.per_class:
                raise ValueError(
                    "PACFL cannot hide samples in signatures per class; leave out signature_epsilon or per_class"
                )

    def init_server(self, model: Model) -> PACFLState:
        return PACFLState(np.empty((0, len(model.initial)), dtype=np.float32), initial=model.initial)

    def profile(self, task: Task) -> Message:
        if self.signature_epsilon is not None:
            return self._private_profile(task, self.signature_epsilon)
        labels = task.train.y if self.per_class else None
        own = self_angles(task.raw, self.rank, labels)[self.measure]
        basis = signature(task.raw, self.rank, labels)
        return {"basis": basis.astype(np.float32), "self_angles": own.astype(np.float32)}

    def _private_profile(self, task: Task, epsilon: float) -> Message:
        seed, _, client = task.key  # not the round: who comes back with the same data tells nothing new
        noise = secret if self.signature_noise == "secret" else seeded(stream(seed, "signature", client))
        made = private_signature(task.raw, self.rank, epsilon, self.signature_delta, noise)
        own = made.self_angles[self.measure]
        return {"basis": made.basis.astype(np.float32), "self_angles": own.astype(np.float32)}

    def admit(self, state: PACFLState, profiles: Mapping[ClientId, Message]) -> PACFLState:
        profiles = {c: p for c, p in profiles.items() if not np.array_equal(p["basis"], state.bases.get(c, ()))}
        if not profiles:
            return state  # everybody is as before
        old = {c: basis for c, basis in state.bases.items() if c not in profiles}
        bases = {**old, **{c: profile["basis"] for c, profile in profiles.items()}}
        own = [profile["self_angles"] for profile in profiles.values()]
        if state.grouping is None or not old:
            angles = proximity(list(bases.values()), self.measure)
            beta = None if self.threshold == "auto" else float(self.threshold)
            k = None if self.clusters is None else min(self.clusters, len(bases))
            grouping = group(angles, own, self.measure, self.linkage, beta, k)
        else:
            known = state.grouping.of([i for i, c in enumerate(state.bases) if c in old])
            grouping, _ = regroup(known, list(old.values()), list(bases.values())[len(old) :], own)
        rows = _rows(list(bases), grouping.labels.tolist(), len(old), state)
        models = np.vstack([state.models, *[state.initial] * (max(rows) + 1 - len(state.models))])
        cluster_of = {**state.cluster_of, **dict(zip(bases, rows, strict=True))}
        grouping = replace(grouping, labels=np.array(rows, dtype=np.intp))
        return replace(state, models=models, cluster_of=cluster_of, bases=bases, grouping=grouping)


def _rows(clients: Sequence[ClientId], labels: Sequence[int], n_old: int, state: PACFLState) -> list[int]:
    """The model of each: a cluster that is opened takes over one that its own members have left, or starts anew."""
    row_of = {k: k for k in labels[:n_old]}
    fresh = count(len(state.models))
    for k in labels[n_old:]:
        if k not in row_of:
            members = [c for c, own in zip(clients, labels, strict=True) if own == k and c in state.cluster_of]
            left = [state.cluster_of[c] for c in members if state.cluster_of[c] not in row_of.values()]
            row_of[k] = left[0] if left else next(fresh)
    return [row_of[k] for k in labels]
