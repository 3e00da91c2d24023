"""Everything one client may look at: its data, its batches, its way to learn."""

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
    """Images ready to be learnt from, channels first, and their labels."""

    x: NDArray[np.float32]  # (n, ...)
    y: NDArray[np.int64]  # (n,)


class Selected(Samples):
    """Some of many samples, by their numbers; copied only for whoever wants them side by side."""

    whole: Samples
    rows: NDArray[np.int64]

    def __init__(self, whole: Samples, rows: NDArray[np.int64]) -> None:
        """`whole[rows]`."""
        self.__dict__.update(whole=whole, rows=rows)  # past the door of a frozen class

    @cached_property
    def x(self) -> NDArray[np.float32]:
        """Their images."""
        return self.whole.x[self.rows]

    @cached_property
    def y(self) -> NDArray[np.int64]:
        """Their labels."""
        return self.whole.y[self.rows]


class Engine(Protocol):
    """One way to compute: any that agrees with `eager` will do."""

    @property
    def rounds_by_batch(self) -> bool:
        """Whether the last bits of what it tells of a sample depend on which it is asked of together with it."""

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
        """Train from w, meeting samples in the given order."""

    def gradient(self, w: Vector, samples: Samples) -> Vector:
        """Gradient of the mean loss over all samples; what a module draws for it is always the same."""

    def losses(self, w: Vector, samples: Samples) -> tuple[NDArray[np.bool_], NDArray[np.float32]]:
        """For every sample: whether it is told rightly, and its loss."""


@dataclass(frozen=True, eq=False)
class ClientContext:
    """One client in one round."""

    model: Model
    train: Samples
    learning: LocalTraining
    engine: Engine
    key: tuple[int, int, int]  # seed, round, client
    pool_raw: NDArray[np.generic]  # training samples before any preparation, its own or everybody's
    rows: NDArray[np.int64] | None = None  # which of these are its own, if not all

    @property
    def raw(self) -> NDArray[np.generic]:
        """Training samples as the client has them, for its signature."""
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
        """Train from w by the plan of this round; the trained vector, and the steps taken.

        What methods add to a gradient g(w) is said in data: prox=(mu, anchor) adds mu (w - anchor) (FedProx),
        gradient_correction=v adds v (SCAFFOLD), and inner_step=alpha takes the gradient of one half of the batch at
        w - alpha g of the other half (Per-FedAvg).
        """
        epochs = self.learning.epochs if epochs is None else epochs
        rng = stream(self.key[0], purpose, *self.key[1:])
        order = batch_order(self.n_samples, epochs, rng)
        trained = self.engine.sgd(
            w, self.train, order, self.learning, prox, gradient_correction, inner_step, int(rng.integers(2**31))
        )
        if not np.isfinite(trained).all():
            raise DivergedError(
                f"client {self.key[2]} diverged in round {self.key[1]} (weights are not finite); "
                f"lower the learning rate (now {self.learning.lr}) or the momentum (now {self.learning.momentum})"
            )
        return trained, count_steps(self.n_samples, epochs, self.learning.batch_size)

    def gradient(self, w: Vector) -> Vector:
        """Gradient of the mean training loss at w."""
        return self.engine.gradient(w, self.train)

    def loss(self, w: Vector) -> float:
        """Mean training loss at w."""
        return float(self.engine.losses(w, self.train)[1].mean(dtype=np.float64))
