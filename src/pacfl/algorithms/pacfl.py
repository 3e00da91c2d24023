from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Literal, final

import numpy as np

from pacfl.errors import ConfigError
from pacfl.federation.algorithm import Algorithm, Upload
from pacfl.federation.membership import Floats, PACFLState, admitted, without
from pacfl.federation.message import ClientId, Message
from pacfl.federation.private import Randomness, check_hiding, private_profile, private_upload
from pacfl.federation.robust import Aggregation, cluster_centres
from pacfl.learning.client_context import ClientContext
from pacfl.learning.model import Model
from pacfl.privacy import gaussian_sigma
from pacfl.settings import NonNegative, PositiveInt, Share
from pacfl.subspace import Clustering, Linkage, Measure, cluster, proximity, signature, split_half_angles


@final
@dataclass(frozen=True)
class PACFL(Algorithm):
    """The paper's Algorithm 1: signatures once, clusters of them, federated averaging in each.

    Newcomers (Algorithm 2) come through the same door; nobody else changes cluster because of them.
    """

    rank: PositiveInt = 3
    threshold: Literal["auto"] | NonNegative = "auto"  # degrees
    clusters: PositiveInt | None = None
    measure: Measure = "smallest"
    linkage: Linkage = "average"
    per_class: bool = False
    signature_epsilon: NonNegative | None = None  # differential privacy of each sample in the signature
    signature_delta: Share = 1e-5
    aggregation: Aggregation = "mean"
    clip_norm: NonNegative | None = None  # no update is longer
    noise_multiplier: NonNegative = 0.0  # deviation upon it, in clips
    private_noise: Randomness = "secret"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.threshold != "auto" and self.clusters is not None:
            raise ConfigError(f"PACFL wants threshold or clusters, not both; got {self.threshold} and {self.clusters}")
        check_hiding(self.clip_norm, self.noise_multiplier)
        if self.signature_epsilon is not None:
            gaussian_sigma(self.signature_epsilon, self.signature_delta)  # refuses what is no guarantee
            if self.per_class:
                raise ConfigError(
                    "PACFL cannot hide samples in signatures per class; leave out signature_epsilon or per_class"
                )

    def init_server(self, model: Model) -> PACFLState:
        return PACFLState(np.empty((0, len(model.initial)), dtype=np.float32), initial=model.initial)

    def profile(self, context: ClientContext) -> Message:
        if self.signature_epsilon is not None:
            made = private_profile(context, self.rank, self.signature_epsilon, self.signature_delta, self.private_noise)
            own = made.split_half_angles[self.measure]
            return {"basis": made.basis.astype(np.float32), "split_half_angles": own.astype(np.float32)}
        labels = context.train.y if self.per_class else None
        own = split_half_angles(context.raw, self.rank, labels, [self.measure])[self.measure]
        basis = signature(context.raw, self.rank, labels)
        return {"basis": basis.astype(np.float32), "split_half_angles": own.astype(np.float32)}

    def train(self, context: ClientContext, down: Message, memory: Message) -> tuple[Message, Message]:
        w, _ = context.sgd(down["w"])
        up = private_upload(context, w, down["w"], self.clip_norm, self.noise_multiplier, self.private_noise)
        return up, memory

    def aggregate(self, state: PACFLState, uploads: Sequence[Upload]) -> PACFLState:
        return cluster_centres(state, uploads, self.aggregation)

    def admit(self, state: PACFLState, profiles: Mapping[ClientId, Message]) -> PACFLState:
        return admitted(state, profiles, self._grouped)

    def forget(self, state: PACFLState, clients: Set[ClientId]) -> PACFLState:
        return without(state, clients)

    def _grouped(self, bases: Sequence[Floats], own: Sequence[Floats]) -> Clustering:
        """The first to come: angles between all of them, the hierarchy of these cut at beta."""
        beta = None if self.threshold == "auto" else float(self.threshold)
        k = None if self.clusters is None else min(self.clusters, len(bases))
        angles = proximity(bases, self.measure)
        return cluster(angles, own, self.measure, self.linkage, beta, k, signatures=bases)
