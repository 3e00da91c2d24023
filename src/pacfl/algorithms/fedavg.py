from dataclasses import dataclass
from typing import final

from pacfl.federation.averaging import Averaging


@final
@dataclass(frozen=True)
class FedAvg(Averaging):
    """McMahan and others (2017), Algorithm 1: the mean of local trainings by size, w = Σ n_i w_i / Σ n_i."""
