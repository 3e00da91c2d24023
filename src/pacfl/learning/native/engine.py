"""The native engine: the local training of a client is one call of compiled code, without the GIL."""

import ctypes
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pacfl.errors import ModelError
from pacfl.learning.client_context import NO_TERMS, GradientTerms, LocalTraining, Samples, SampleSubset
from pacfl.learning.model import Vector
from pacfl.learning.native.compiling import Machine
from pacfl.learning.native.plan import Plan
from pacfl.learning.native.program import Program, write_program
from pacfl.learning.native.target import Target, machine

COMPILED = ("sgd", "cross-entropy")  # optimiser, loss
AT_ONCE = 20  # samples in the workspace when no batch says how many

_ARRAY, _NUMBER, _FLOAT = ctypes.c_void_p, ctypes.c_int64, ctypes.c_float
_LOGITS = (_ARRAY, _ARRAY, _NUMBER, _NUMBER, _ARRAY, _ARRAY, _ARRAY)
_GRADIENT = (*[_ARRAY] * 4, _NUMBER, _FLOAT, *[_ARRAY] * 3)
_REORDER = (_ARRAY, _ARRAY, _ARRAY, _NUMBER)
_EXTRAS = (_NUMBER, _ARRAY, _FLOAT, _ARRAY, _NUMBER, _ARRAY, _FLOAT, _NUMBER, _ARRAY)
_TRAIN = (*[_ARRAY] * 4, *[_NUMBER] * 3, *[_ARRAY] * 4, *[_FLOAT] * 3, *_EXTRAS)


class Native:
    """An engine for one plan. Threads may share it: each call has its own workspace."""

    batch_dependent = False

    def __init__(self, plan: Plan, target: Target | None = None) -> None:
        """Compile the plan, by default for this machine."""
        self._program = write_program(plan, target or machine())
        self._machine = Machine(self._program.text, self._program.target)
        self._logits = self._machine.function("logits", _LOGITS)
        self._gradient = self._machine.function("gradient_of", _GRADIENT)
        self._train = self._machine.function("train", _TRAIN)
        self._reorder = self._machine.function("reorder", _REORDER)
        self._trainable = _trainable(plan)
        self._free: list[_Workspace] = []
        self._lock = threading.Lock()
        self.seconds = 0.0  # of processor time inside, by all threads

    def sgd(
        self,
        w: Vector,
        samples: Samples,
        order: NDArray[np.int64],
        learning: LocalTraining,
        terms: GradientTerms = NO_TERMS,
        seed: int = 0,  # noqa: ARG002 - nothing is drawn here
    ) -> Vector:
        """Train from w on batches in the given order."""
        _check_compiled(learning, terms)
        x, y, rows = self._located(samples)
        ordered = _checked_order(order, len(rows), rows)
        sample_weight = _weights_in(order, len(rows), terms.sample_weight)
        mask = self._mask(terms.mask)
        mu, anchor = terms.prox if terms.prox is not None else (0.0, None)
        extras = terms.prox is not None or terms.gradient_correction is not None
        with self._workspace(min(learning.batch_size, len(rows))) as own:
            self._pack(w, own.weights)
            self._pack(None, own.velocity)
            if extras:
                self._pack(anchor, own.anchor)
                self._pack(terms.gradient_correction, own.gradient_correction)
            if mask is not None:
                self._pack(mask.astype(np.float32), own.mask)
            self._train(
                _at(x), _at(y), _at(ordered), _at(sample_weight), len(ordered), len(rows), learning.batch_size,
                own.weights.address, own.memory.address, own.gradient.address, own.velocity.address,
                learning.lr, learning.momentum, learning.weight_decay,
                extras, own.anchor.address, mu, own.gradient_correction.address,
                terms.inner_step is not None, own.ahead.address, terms.inner_step or 0.0,
                mask is not None, own.mask.address,
            )  # fmt: skip
            return self._unpacked(own.weights.address)

    def gradient(self, w: Vector, samples: Samples) -> Vector:
        """Gradient of the mean loss over all samples."""
        x, y, rows = self._located(samples)
        with self._workspace(min(AT_ONCE, len(rows))) as own:
            self._pack(w, own.weights)
            total, equal = np.zeros_like(own.gradient.values), np.ones(AT_ONCE, dtype=np.float32)
            for start in range(0, len(rows), AT_ONCE):
                some = rows[start : start + AT_ONCE]
                arrays = own.weights.address, own.memory.address, own.gradient.address
                self._gradient(_at(x), _at(y), _at(some), _at(equal), len(some), 1 / len(rows), *arrays)
                total += own.gradient.values
            gradient = self._unpacked(_at(total))
        if self._trainable is not None:
            gradient[~self._trainable] = 0
        return gradient

    def evaluate(self, w: Vector, samples: Samples) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """For every sample: the outputs of the model, and the loss."""
        x, _, rows = self._located(samples)
        logits = np.empty((len(rows), self._program.plan.n_outputs), dtype=np.float32)
        with self._workspace(min(AT_ONCE, len(rows))) as own:
            self._pack(w, own.weights)
            arrays = own.weights.address, own.memory.address, _at(logits)
            self._logits(_at(x), _at(rows), len(rows), AT_ONCE, *arrays)
        return logits, _cross_entropy(logits, samples.y)

    def _pack(self, vector: Vector | None, to: "_Floats") -> None:
        """Pack the vector. The padding of rows is written too: a training that diverged may have left NaN there."""
        if vector is None:
            to.values[:] = 0
            return
        if vector.shape != (self._program.plan.n_weights,):
            raise ValueError(f"vectors must have {self._program.plan.n_weights} weights, got shape {vector.shape}")
        origins, given = self._program.packing.origins, np.require(vector, np.float32, "C")
        self._reorder(_at(given), _at(origins), to.address, len(origins))

    def _mask(self, given: NDArray[np.bool_] | None) -> NDArray[np.bool_] | None:
        """Which weights are trained, if not all: the given ones without those that the model froze."""
        n = self._program.plan.n_weights
        if given is not None and (given.shape != (n,) or given.dtype != np.bool_):
            raise ValueError(f"mask must be {n} booleans, got {given.dtype} of shape {given.shape}")
        if given is None or self._trainable is None:
            return self._trainable if given is None else given
        return given & self._trainable

    def _unpacked(self, packed: int) -> Vector:
        positions = self._program.packing.positions
        vector = np.empty(len(positions), dtype=np.float32)
        self._reorder(packed, _at(positions), _at(vector), len(positions))
        return vector

    def _located(self, samples: Samples) -> tuple[NDArray[np.float32], NDArray[np.int64], NDArray[np.int64]]:
        """All samples, all labels, and the indices to use; checked, because compiled code checks nothing."""
        plan = self._program.plan
        pool = samples.pool if isinstance(samples, SampleSubset) else samples
        rows = samples.indices if isinstance(samples, SampleSubset) else np.arange(len(samples.y))
        n = len(pool.x)
        if pool.x.shape[1:] != plan.shape or n != len(pool.y):
            raise ValueError(
                f"samples must have shape {plan.shape}, one for each label; "
                f"got {pool.x.shape[1:]}, {n} of them and {len(pool.y)} labels"
            )
        if len(rows) and not 0 <= rows.min() <= rows.max() < n:
            raise ValueError(f"indices of samples must be from 0 to {n - 1}, got {rows.min()} to {rows.max()}")
        y = samples.y
        if len(y) and not 0 <= y.min() <= y.max() < plan.n_outputs:
            raise ValueError(f"labels must be from 0 to {plan.n_outputs - 1}, got {y.min()} to {y.max()}")
        y, rows = (np.require(a, np.int64, "C") for a in (pool.y, rows))
        return np.require(pool.x, np.float32, "C"), y, rows

    @contextmanager
    def _workspace(self, samples: int) -> Iterator["_Workspace"]:
        """A workspace that no other thread uses meanwhile, large enough for a number of samples."""
        try:
            own = self._free.pop()  # atomic in Python: no two threads get the same
        except IndexError:
            own = _Workspace.of(self._program)
        own.grow(samples)
        started = time.thread_time()
        try:
            yield own
        finally:
            self._free.append(own)
            with self._lock:
                self.seconds += time.thread_time() - started


class _Floats(NamedTuple):
    """An array and its address, which numpy would build a dictionary to say."""

    values: NDArray[np.float32]
    address: int


@dataclass(eq=False)
class _Workspace:
    """Memory of one thread. The borders of maps are always zero."""

    program: Program
    weights: _Floats
    velocity: _Floats
    gradient: _Floats
    ahead: _Floats
    anchor: _Floats
    gradient_correction: _Floats
    mask: _Floats
    memory: _Floats

    @classmethod
    def of(cls, program: Program) -> "_Workspace":
        sizes = [program.packing.size + program.target.lanes] * 7 + [program.layout.floats(1)]
        return cls(program, *map(_aligned, sizes))

    def grow(self, samples: int) -> None:
        floats = self.program.layout.floats(samples)
        if len(self.memory.values) < floats:
            self.memory = _aligned(floats)


def _aligned(n: int) -> _Floats:
    """Zeros aligned to a cache line."""
    padded = np.zeros(n + 16, dtype=np.float32)
    start = -_at(padded) % 64 // 4
    values = padded[start : start + n]
    return _Floats(values, _at(values))


def _check_compiled(learning: LocalTraining, terms: GradientTerms) -> None:
    """Refuse trainings that compiled code cannot do."""
    if (learning.optimiser, learning.loss) != COMPILED:
        raise ModelError(
            f"the native engine trains with {COMPILED[0]} on {COMPILED[1]}, got {learning.optimiser} on "
            f"{learning.loss}; use engine = eager or auto"
        )
    if terms.local_step is not None:
        raise ModelError("the native engine runs no torch code, so no local_step; use engine = eager or auto")


def _checked_order(order: NDArray[np.int64], n: int, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """The indices of samples in the order of training."""
    if order.shape[1:] != (n,) or (order.size and not 0 <= order.min() <= order.max() < n):
        raise ValueError(f"order must be (epochs, {n}) with indices of samples, got shape {order.shape}")
    return rows[order]


def _weights_in(order: NDArray[np.int64], n: int, sample_weight: NDArray[np.float32] | None) -> NDArray[np.float32]:
    """The weights of samples in the order of training; by default all are one, which changes no bit."""
    if sample_weight is None:
        return np.ones(order.shape, dtype=np.float32)
    if sample_weight.shape != (n,):
        raise ValueError(f"sample_weight must have one weight for each of {n} samples, got shape {sample_weight.shape}")
    return np.require(sample_weight[order], np.float32, "C")


def _trainable(plan: Plan) -> NDArray[np.bool_] | None:
    """(d,) which weights may change; None if all of them."""
    if not plan.frozen:
        return None
    trainable = np.ones(plan.n_weights, dtype=np.bool_)
    for start, end in plan.frozen:
        trainable[start:end] = False
    return trainable


def _cross_entropy(logits: NDArray[np.float32], y: NDArray[np.int64]) -> NDArray[np.float32]:
    top = logits.max(axis=1, keepdims=True)
    with np.errstate(invalid="ignore", over="ignore"):  # NaN and infinity are passed on
        sums = np.exp(logits - top).sum(axis=1)
        return np.asarray(np.log(sums) + top[:, 0] - logits[np.arange(len(y)), y])


def _at(array: NDArray[Any]) -> int:
    address: int = array.__array_interface__["data"][0]  # `ctypes.data` is the same, five times slower
    return address
