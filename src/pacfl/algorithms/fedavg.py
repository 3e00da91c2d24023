from dataclasses import dataclass
from typing import final

from pacfl.federation.algorithm import Algorithm


@final
@dataclass(frozen=True)
class FedAvg(Algorithm):
    """McMahan and others (2017), Algorithm 1: the mean of local trainings by size, w = Σ n_i w_i / Σ n_i."""
