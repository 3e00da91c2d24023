from dataclasses import dataclass
from typing import final

from pacfl.federation.algorithm import Algorithm
from pacfl.federation.server_optimiser import MOMENTUM, OWN, ServerOptimiser
from pacfl.settings import Positive, ShareBelowOne


@final
@dataclass(frozen=True)
class FedAvgM(Algorithm):
    """Hsu, Qi and Brown (2019): FedAvg with momentum at the server.

    Δ = Σ n_i (w_i - w) / Σ n_i, m <- beta1 m + Δ, and w <- w + server_lr m.
    """

    server_lr: Positive = 1.0
    beta1: ShareBelowOne = MOMENTUM

    @property
    def server_optimiser(self) -> ServerOptimiser:
        return ServerOptimiser("momentum", self.server_lr, self.beta1)

    def no_server_optimiser(self) -> str:
        return OWN
