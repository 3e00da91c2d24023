from dataclasses import dataclass
from typing import final

from pacfl.federation.algorithm import Algorithm
from pacfl.federation.server_optimiser import DECAY, LR, MOMENTUM, OWN, TAU, ServerOptimiser
from pacfl.settings import Positive, ShareBelowOne


@final
@dataclass(frozen=True)
class FedYogi(Algorithm):
    """Reddi and others (2021), Algorithm 2: the mean update of FedAvg is a gradient for Yogi at the server.

    Δ = Σ n_i (w_i - w) / Σ n_i, m <- beta1 m + (1 - beta1) Δ, v <- v - (1 - beta2) Δ² sign(v - Δ²), from v = tau², and
    w <- w + server_lr m / (√v + tau), in every coordinate.
    """

    server_lr: Positive = LR
    beta1: ShareBelowOne = MOMENTUM
    beta2: ShareBelowOne = DECAY
    tau: Positive = TAU

    @property
    def server_optimiser(self) -> ServerOptimiser:
        return ServerOptimiser("yogi", self.server_lr, self.beta1, self.beta2, self.tau)

    def no_server_optimiser(self) -> str:
        return OWN
