from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Literal, final

import numpy as np
from numpy.typing import NDArray

from pacfl.federation.algorithm import Algorithm, State, Upload
from pacfl.federation.message import ClientId, Message
from pacfl.federation.private import Randomness, check_hiding, private_profile, private_upload
from pacfl.federation.robust import Aggregation, cluster_centres
from pacfl.federation.settings import Count, NotNegative, Share
from pacfl.learning.model import Model, Vector
from pacfl.learning.task import Task
from pacfl.privacy import gaussian_sigma
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
    aggregation: Aggregation = "mean"
    update_clip: NotNegative | None = None  # no update is longer
    update_noise: NotNegative = 0.0  # deviation upon it, in clips
    private_noise: Randomness = "secret"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.threshold != "auto" and self.clusters is not None:
            raise ValueError(f"PACFL wants threshold or clusters, not both; got {self.threshold} and {self.clusters}")
        check_hiding(self.update_clip, self.update_noise)
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
            made = private_profile(task, self.rank, self.signature_epsilon, self.signature_delta, self.private_noise)
            own = made.self_angles[self.measure]
            return {"basis": made.basis.astype(np.float32), "self_angles": own.astype(np.float32)}
        labels = task.train.y if self.per_class else None
        own = self_angles(task.raw, self.rank, labels, [self.measure])[self.measure]
        basis = signature(task.raw, self.rank, labels)
        return {"basis": basis.astype(np.float32), "self_angles": own.astype(np.float32)}

    def train(self, task: Task, down: Message, memory: Message) -> tuple[Message, Message]:
        w, _ = task.sgd(down["w"])
        up = private_upload(task, w, down["w"], self.update_clip, self.update_noise, self.private_noise)
        return up, memory

    def aggregate(self, state: PACFLState, uploads: Sequence[Upload]) -> PACFLState:
        return cluster_centres(state, uploads, self.aggregation)

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

    def forget(self, state: PACFLState, clients: Set[ClientId]) -> PACFLState:
        # The last of a cluster stays known: newcomers find it by its signature
        in_order = sorted(state.cluster_of.items(), key=lambda entry: entry[0] not in clients)
        last = {k: c for c, k in in_order}
        going = clients - set(last.values())
        left: PACFLState = super().forget(state, going)
        places = [i for i, c in enumerate(state.bases) if c not in going]
        bases = {c: basis for c, basis in state.bases.items() if c not in going}
        return replace(left, bases=bases, grouping=state.grouping and state.grouping.of(places))


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
