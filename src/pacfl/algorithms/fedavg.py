from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

from pacfl.federation.algorithm import Algorithm, State, Upload
from pacfl.federation.message import Message
from pacfl.federation.private import Randomness, check_hiding, private_upload
from pacfl.federation.robust import Aggregation, cluster_centres
from pacfl.learning.client_context import ClientContext
from pacfl.settings import NonNegative


@final
@dataclass(frozen=True)
class FedAvg(Algorithm):
    """McMahan and others (2017), Algorithm 1: the mean of local trainings by size, w = Σ n_i w_i / Σ n_i."""

    aggregation: Aggregation = "mean"
    clip_norm: NonNegative | None = None  # no update is longer
    noise_multiplier: NonNegative = 0.0  # deviation upon it, in clips
    private_noise: Randomness = "secret"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_hiding(self.clip_norm, self.noise_multiplier)

    def train(self, context: ClientContext, down: Message, memory: Message) -> tuple[Message, Message]:
        w, _ = context.sgd(down["w"])
        up = private_upload(context, w, down["w"], self.clip_norm, self.noise_multiplier, self.private_noise)
        return up, memory

    def aggregate(self, state: State, uploads: Sequence[Upload]) -> State:
        return cluster_centres(state, uploads, self.aggregation)
