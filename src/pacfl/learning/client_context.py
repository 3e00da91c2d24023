"""What one client trains on and with, and the interface of engines."""

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from pacfl.errors import DivergedError
from pacfl.learning.model import Model, Vector
from pacfl.learning.randomness import batch_order, count_steps, stream
from pacfl.learning.settings import LocalTraining as LocalTraining


@dataclass(frozen=True, eq=False)
class Samples:
    """Samples as models take them, channels first, and their labels."""

    x: NDArray[np.float32]  # (n, ...)
    y: NDArray[np.int64]  # (n,)


class SampleSubset(Samples):
    """Some of many samples, by their indices; x and y are copied when they are first used.

    The native engine uses the indices alone and copies nothing.
    """

    pool: Samples
    indices: NDArray[np.int64]

    def __init__(self, pool: Samples, indices: NDArray[np.int64]) -> None:
        """The samples of the pool at these indices."""
        self.__dict__.update(pool=pool, indices=indices)  # a frozen dataclass refuses assignments

    @cached_property
    def x(self) -> NDArray[np.float32]:
        """Their values."""
        return self.pool.x[self.indices]

    @cached_property
    def y(self) -> NDArray[np.int64]:
        """Their labels."""
        return self.pool.y[self.indices]


class Engine(Protocol):
    """One implementation of training and evaluation. Every engine must agree with `eager`."""

    @property
    def batch_dependent(self) -> bool:
        """Whether the last bits of a sample's loss depend on which other samples are evaluated with it."""

    def sgd(
        self,
        w: Vector,
        samples: Samples,
        order: NDArray[np.int64],
        learning: LocalTraining,
        prox: tuple[float, Vector] | None,
        gradient_correction: Vector | None,
        inner_step: float | None,
        seed: int,
    ) -> Vector:
        """Train from w on batches in the given order (epochs, n); the options are those of `ClientContext.sgd`."""

    def gradient(self, w: Vector, samples: Samples) -> Vector:
        """Gradient of the mean loss over all samples; random layers such as dropout always draw the same."""

    def losses(self, w: Vector, samples: Samples) -> tuple[NDArray[np.bool_], NDArray[np.float32]]:
        """For every sample: whether it is classified correctly, and its loss."""


@dataclass(frozen=True, eq=False)
class ClientContext:
    """Everything that one client may use in one round: its data, its batches, and how it trains."""

    model: Model
    train: Samples
    learning: LocalTraining
    engine: Engine
    key: tuple[int, int, int]  # seed, round, client
    pool_raw: NDArray[np.generic]  # training samples before normalisation, of this client or of all clients
    rows: NDArray[np.int64] | None = None  # which of these are its own, if not all

    @cached_property
    def raw(self) -> NDArray[np.generic]:
        """The client's training samples before normalisation, for its signature."""
        return self.pool_raw if self.rows is None else self.pool_raw[self.rows]

    @property
    def n_samples(self) -> int:
        """Training samples of this client."""
        return len(self.train.y)

    def sgd(
        self,
        w: Vector,
        *,
        prox: tuple[float, Vector] | None = None,
        gradient_correction: Vector | None = None,
        inner_step: float | None = None,
        epochs: int | None = None,
        purpose: str = "batches",
    ) -> tuple[Vector, int]:
        """Train from w; the trained vector and the number of steps.

        A step is v <- momentum v + g + weight_decay w, then w <- w - lr v. Algorithms change the gradient g of a batch:

        prox = (mu, anchor): g + mu (w - anchor), the proximal term of FedProx.
        gradient_correction = c: g + c, the control variates of SCAFFOLD.
        inner_step = alpha: g of one half of the batch at w - alpha g(w) of the other half, as in Per-FedAvg.

        epochs: instead of those of `learning`; purpose: which random stream orders the batches.
        """
        epochs = self.learning.epochs if epochs is None else epochs
        rng = stream(self.key[0], purpose, *self.key[1:])
        order = batch_order(self.n_samples, epochs, rng)
        trained = self.engine.sgd(
            w, self.train, order, self.learning, prox, gradient_correction, inner_step, int(rng.integers(2**31))
        )
        if not np.isfinite(trained).all():
            raise DivergedError(
                f"client {self.key[2]} diverged in round {self.key[1] + 1} (weights are not finite); "
                f"lower the learning rate (now {self.learning.lr}) or the momentum (now {self.learning.momentum})"
            )
        return trained, count_steps(self.n_samples, epochs, self.learning.batch_size)

    def gradient(self, w: Vector) -> Vector:
        """Gradient of the mean training loss at w."""
        return self.engine.gradient(w, self.train)

    def loss(self, w: Vector) -> float:
        """Mean training loss at w."""
        return float(self.engine.losses(w, self.train)[1].mean(dtype=np.float64))
