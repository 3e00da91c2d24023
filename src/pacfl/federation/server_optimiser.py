"""Steps of an optimiser at the server, instead of going to the mean: Reddi and others (2021), Algorithm 2.

Pure functions on arrays: Δ, the mean update of the clients of a round, takes the place of a negative gradient.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Kind = Literal["momentum", "adam", "yogi"]

MOMENTUM: Final = 0.9  # and decay of the first moment
DECAY: Final = 0.99  # of the second moment
TAU: Final = 1e-3
OWN: Final = "this algorithm has a server optimiser of its own, with settings of the same names"
LR: Final = 0.01  # of adam and yogi, whose steps in a coordinate are about as long


@dataclass(frozen=True)
class ServerOptimiser:
    """What a server's models step by."""

    kind: Kind
    lr: float
    beta1: float = MOMENTUM
    beta2: float = DECAY
    tau: float = TAU

    def before(self, n_weights: int) -> "Moments":
        """Those of no model."""
        nothing = np.zeros((0, n_weights), dtype=np.float32)
        return Moments(nothing, nothing, self.tau**2)


@dataclass(frozen=True, eq=False)
class Moments:
    """Of the updates of models, row by row. Models beyond the last row have not been updated yet."""

    first: NDArray[np.float32]  # (k, d): m
    second: NDArray[np.float32]  # (k, d): v
    start: float  # v before the first update; m is 0

    def rows(self, rows: Sequence[int]) -> "Moments":
        """A copy of those of these models."""
        shape = len(rows), self.first.shape[1]
        first, second = np.zeros(shape, dtype=np.float32), np.full(shape, self.start, dtype=np.float32)
        for i, row in enumerate(rows):
            if row < len(self.first):
                first[i], second[i] = self.first[row], self.second[row]
        return Moments(first, second, self.start)


def step(optimiser: ServerOptimiser, update: Array, m: Array, v: Array) -> tuple[Array, Array, Array]:
    """How far a model goes for a mean update Δ, and both moments after it: (d,) each.

    momentum: m <- β1 m + Δ, lr m. Others: m <- β1 m + (1 - β1) Δ, lr m / (√v + τ), where
    adam: v <- β2 v + (1 - β2) Δ², and yogi: v <- v - (1 - β2) Δ² sign(v - Δ²).

    >>> by_hand = ServerOptimiser("adam", lr=1.0, beta1=0.5, beta2=0.75, tau=1.0)
    >>> step(by_hand, np.array([2.0]), np.zeros(1), np.array([4 / 3]))[0].round(3).tolist()
    [0.414]
    """
    if optimiser.kind == "momentum":
        m = optimiser.beta1 * m + update
        return optimiser.lr * m, m, v
    square = update**2
    m = optimiser.beta1 * m + (1 - optimiser.beta1) * update
    towards = square - v if optimiser.kind == "adam" else square * np.sign(square - v)
    v = v + (1 - optimiser.beta2) * towards
    return optimiser.lr * m / (np.sqrt(v) + optimiser.tau), m, v
