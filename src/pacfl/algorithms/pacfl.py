from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Literal, final

import numpy as np

from pacfl.federation.algorithm import Algorithm, Upload
from pacfl.federation.membership import Floats, PACFLState, admitted, without
from pacfl.federation.message import ClientId, Message
from pacfl.federation.private import Randomness, check_hiding, private_profile, private_upload
from pacfl.federation.robust import Aggregation, cluster_centres
from pacfl.federation.settings import Count, NotNegative, Share
from pacfl.learning.client_context import Task
from pacfl.learning.model import Model
from pacfl.privacy import gaussian_sigma
from pacfl.subspace import Grouping, Linkage, Measure, group, proximity, self_angles, signature


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
        return admitted(state, profiles, self._grouped)

    def forget(self, state: PACFLState, clients: Set[ClientId]) -> PACFLState:
        return without(state, clients)

    def _grouped(self, bases: Sequence[Floats], own: Sequence[Floats]) -> Grouping:
        """The first to come: angles between all of them, the hierarchy of these cut at beta."""
        beta = None if self.threshold == "auto" else float(self.threshold)
        k = None if self.clusters is None else min(self.clusters, len(bases))
        return group(proximity(bases, self.measure), own, self.measure, self.linkage, beta, k)
