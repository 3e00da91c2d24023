"""What one client trains on and with, and the interface of engines."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from pacfl.errors import DivergedError
from pacfl.learning.model import Model, Vector
from pacfl.learning.randomness import batch_order, batches, count_steps, stream
from pacfl.learning.settings import LocalTraining as LocalTraining
from pacfl.subspace.columns import with_constant

if TYPE_CHECKING:  # algorithms use this module where torch is not installed
    from torch import Tensor, nn


@dataclass(frozen=True, eq=False)
class Samples:
    """Samples as models take them, channels first, and their targets."""

    x: NDArray[Any]  # (n, ...) float32, or int64 for models that embed tokens
    y: NDArray[Any]  # (n,) int64 classes; (n,) or (n, outputs) float32 for regression and several labels


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
    def x(self) -> NDArray[Any]:
        """Their values."""
        return self.pool.x[self.indices]

    @cached_property
    def y(self) -> NDArray[Any]:
        """Their targets."""
        return self.pool.y[self.indices]


class LocalStep(Protocol):
    """A loss of an algorithm's own."""

    def __call__(self, module: "nn.Module", x: "Tensor", y: "Tensor") -> "Tensor":
        """The loss of a batch, a scalar; the module has the weights of this step."""


@dataclass(frozen=True, eq=False)
class GradientTerms:
    """What an algorithm changes in the steps of a local training; `ClientContext.sgd` explains each."""

    prox: tuple[float, Vector] | None = None
    gradient_correction: Vector | None = None
    inner_step: float | None = None
    mask: NDArray[np.bool_] | None = None  # (d,)
    sample_weight: NDArray[np.float32] | None = None  # (n,)
    local_step: LocalStep | None = None


NO_TERMS: Final = GradientTerms()


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
        terms: GradientTerms = NO_TERMS,
        seed: int = 0,
    ) -> Vector:
        """Train from w on batches in the given order (epochs, n)."""

    def gradient(self, w: Vector, samples: Samples) -> Vector:
        """Gradient of the mean loss over all samples; random layers such as dropout always draw the same."""

    def evaluate(self, w: Vector, samples: Samples) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """For every sample: the outputs of the model (n, outputs), and the loss (n,)."""


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
    pool_groups: NDArray[np.generic] | None = None  # of samples that depend on each other, as many as in the pool
    is_table: bool = False  # whether they are rows of tables: columns less an agreed centre, over an agreed scale

    @cached_property
    def raw(self) -> NDArray[np.generic]:
        """The client's training samples as they are signed: before normalisation, rows of tables with a constant."""
        own = self.pool_raw if self.rows is None else self.pool_raw[self.rows]
        return with_constant(own) if self.is_table else own

    @property
    def table(self) -> NDArray[np.generic] | None:
        """The client's rows if its columns are compared one by one, (n, columns)."""
        if not self.is_table:
            return None
        return self.pool_raw if self.rows is None else self.pool_raw[self.rows]

    @property
    def groups(self) -> NDArray[np.generic] | None:
        """The groups of the client's training samples that depend on each other, if there are any."""
        return self.pool_groups if self.pool_groups is None or self.rows is None else self.pool_groups[self.rows]

    @property
    def n_samples(self) -> int:
        """Training samples of this client."""
        return len(self.train.y)

    def subset(self, positions: NDArray[np.int64]) -> "ClientContext":
        """The same client with some of its training samples only."""
        whole = (
            self.train if isinstance(self.train, SampleSubset) else SampleSubset(self.train, np.arange(self.n_samples))
        )
        rows = positions if self.rows is None else self.rows[positions]
        return replace(self, train=SampleSubset(whole.pool, whole.indices[positions]), rows=rows)

    def batches(self, epochs: int | None = None, purpose: str = "batches") -> "Iterator[ClientContext]":
        """The client with the samples of one batch alone, for every step of a local training."""
        epochs = self.learning.epochs if epochs is None else epochs
        for epoch in batch_order(self.n_samples, epochs, stream(self.key[0], purpose, *self.key[1:])):
            for batch in batches(self.n_samples, self.learning.batch_size, self.model.least_batch):
                yield self.subset(epoch[batch])

    def sgd(
        self,
        w: Vector,
        *,
        prox: tuple[float, Vector] | None = None,
        gradient_correction: Vector | None = None,
        inner_step: float | None = None,
        mask: NDArray[np.bool_] | None = None,
        sample_weight: NDArray[np.float32] | None = None,
        local_step: LocalStep | None = None,
        epochs: int | None = None,
        purpose: str = "batches",
    ) -> tuple[Vector, int]:
        """Train from w; the trained vector and the number of steps.

        A step is v <- momentum v + g + weight_decay w, then w <- w - lr v, or that of another optimiser. Algorithms
        change the gradient g of a batch:

        prox = (mu, anchor): g + mu (w - anchor), the proximal term of FedProx.
        gradient_correction = c: g + c, the control variates of SCAFFOLD.
        inner_step = alpha: g of one half of the batch at w - alpha g(w) of the other half, as in Per-FedAvg.
        mask (d,): only these weights are trained, all others stay as they are (FedRep, FedBABU).
        sample_weight (n,): the loss of a batch is the mean of weight times loss of its samples (FedEM).
        local_step(module, x, y): the loss of a batch, instead of that of `learning`; with the eager engine only.

        epochs: instead of those of `learning`; purpose: which random stream orders the batches.
        """
        epochs = self.learning.epochs if epochs is None else epochs
        rng = stream(self.key[0], purpose, *self.key[1:])
        order = batch_order(self.n_samples, epochs, rng)
        terms = GradientTerms(prox, gradient_correction, inner_step, mask, sample_weight, local_step)
        self._check(terms)
        trained = self.engine.sgd(w, self.train, order, self.learning, terms, int(rng.integers(2**31)))
        if not np.isfinite(trained).all():
            raise DivergedError(
                f"client {self.key[2]} diverged in round {self.key[1] + 1} (weights are not finite); "
                f"lower the learning rate (now {self.learning.lr}) or the momentum (now {self.learning.momentum})"
            )
        return trained, count_steps(self.n_samples, epochs, self.learning.batch_size, self.model.least_batch)

    def _check(self, terms: GradientTerms) -> None:
        """Refuse arrays that do not fit the weights and the samples."""
        mask, weight, d = terms.mask, terms.sample_weight, len(self.model.initial)
        if mask is not None and (mask.shape != (d,) or mask.dtype != np.bool_):
            raise ValueError(f"mask must be {d} booleans, one for each weight, got {mask.dtype} of shape {mask.shape}")
        if weight is not None and weight.shape != (self.n_samples,):
            raise ValueError(f"sample_weight must be one for each of {self.n_samples} samples, got {weight.shape}")
        if weight is not None and terms.local_step is not None:
            raise ValueError("a local_step computes its own loss: give sample_weight or local_step, not both")

    def gradient(self, w: Vector) -> Vector:
        """Gradient of the mean training loss at w."""
        return self.engine.gradient(w, self.train)

    def loss(self, w: Vector) -> float:
        """Mean training loss at w."""
        return float(self.engine.evaluate(w, self.train)[1].mean(dtype=np.float64))
