"""The choice of an engine: the native one if it supports the model and agrees with the eager one."""

import logging
import threading
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from pacfl.errors import ModelError
from pacfl.learning.client_context import NO_TERMS, Engine, GradientTerms, Samples
from pacfl.learning.eager import Eager
from pacfl.learning.losses import find_loss
from pacfl.learning.model import Model, UnsupportedModelError, Vector
from pacfl.learning.optimisers import find_optimiser
from pacfl.learning.randomness import stream
from pacfl.learning.settings import ENGINES as ENGINES
from pacfl.learning.settings import LocalTraining

log = logging.getLogger("pacfl")

N_COMPARED = 13  # samples: with a batch of 5, the last has 3; with one of 7, the last has 6
DEFAULT = LocalTraining()
TOLERANCE = 1e-4  # of the largest change; rounding is a hundred times smaller, a wrong layer far larger


def check_engine(name: str) -> None:
    """Refuse a name that no engine has."""
    if name not in ENGINES:
        raise ModelError(f"engine must be one of {', '.join(ENGINES)}, got {name!r}")


def build_engine(
    name: str,
    model: Model,
    shape: tuple[int, ...],
    device: str = "cpu",
    learning: LocalTraining = DEFAULT,
    *,
    integers: bool = False,
) -> Engine:
    """The engine for a model and samples of a shape; if `auto` falls back to the eager one, a warning says why.

    integers: the samples are token ids.
    """
    check_engine(name)
    eager = Eager(model, device, find_loss(learning.loss))
    find_optimiser(learning.optimiser)  # refused here, if it cannot be found
    if learning.batch_size < model.least_batch:
        raise ModelError(
            f"batch-size = {learning.batch_size} leaves batch normalisation without statistics; "
            f"use {model.least_batch} at least, or nn.GroupNorm"
        )
    if name == "eager" or (name == "auto" and device != "cpu"):
        return eager
    try:
        if device != "cpu":
            raise UnsupportedModelError(f"it runs on the CPU, not on {device}")
        if learning.loss != DEFAULT.loss:
            raise UnsupportedModelError(f"its loss is {learning.loss}, not {DEFAULT.loss}")
        if learning.optimiser != DEFAULT.optimiser:
            raise UnsupportedModelError(f"its optimiser is {learning.optimiser}, not {DEFAULT.optimiser}")
        if integers:
            raise UnsupportedModelError("its samples are integers")
        return _native(model, shape, eager)
    except UnsupportedModelError as reason:
        if name == "native":
            raise ModelError(f"the native engine does not support this model: {reason}; use engine = auto") from None
        log.warning("training with the eager engine, the native one does not support this model: %s", reason)
        return eager


def _native(model: Model, shape: tuple[int, ...], eager: Eager) -> Engine:
    try:
        from pacfl.learning.native.engine import Native
        from pacfl.learning.native.reading import read_plan
    except ModuleNotFoundError as error:
        raise UnsupportedModelError(f"{error.name} is not installed (pip install 'pacfl[learning]')") from None
    plan = read_plan(model.build(), shape)
    native = Native(plan)
    _compare(native, eager, model.initial, shape, plan.n_outputs)
    return native


def _compare(native: Engine, eager: Engine, w: Vector, shape: tuple[int, ...], n_outputs: int) -> None:
    """Refuse an engine that differs in a few steps with any option, a gradient or losses of random samples."""
    rng = stream(0, "comparison")
    samples = Samples(rng.normal(size=(N_COMPARED, *shape)).astype(np.float32), rng.integers(0, n_outputs, N_COMPARED))
    anchor, gradient_correction = (w + rng.normal(scale=0.01, size=w.shape).astype(np.float32) for _ in range(2))
    order = rng.permutation(N_COMPARED)[None]
    learning = LocalTraining(epochs=1, lr=0.01, momentum=0.9, weight_decay=0.01)
    mask, sample_weight = rng.random(w.shape) < 0.5, rng.uniform(0, 2, N_COMPARED).astype(np.float32)
    # As few steps as show an error: after each, two pixels of a pool may be equal up to rounding, and engines go apart
    trainings = {
        "a step": (N_COMPARED, GradientTerms()),
        "a training with terms": (5, GradientTerms((0.1, anchor), gradient_correction - w, 0.01)),
        "a training with a mask and weights": (7, GradientTerms(mask=mask, sample_weight=sample_weight)),
    }
    pairs = {
        what: [e.sgd(w, samples, order, replace(learning, batch_size=size), terms) - w for e in (native, eager)]
        for what, (size, terms) in trainings.items()
    } | {
        "a gradient": [e.gradient(w, samples) for e in (native, eager)],
        "losses": [e.evaluate(w, samples)[1] for e in (native, eager)],
    }
    for what, (ours, theirs) in pairs.items():
        if not np.abs(ours - theirs).max() <= TOLERANCE * np.abs(theirs).max():
            raise UnsupportedModelError(f"{what} differs from the eager engine's by {np.abs(ours - theirs).max():.2g}")


class WithLocalSteps:
    """A compiled engine that leaves trainings with an algorithm's own local step to the eager one.

    The eager engine is built when it is first needed. Threads share it, so it trains one client at a time.
    """

    def __init__(self, engine: Engine, build_eager: Callable[[], Engine]) -> None:
        """Wrap an engine."""
        self._engine, self._build_eager = engine, build_eager
        self._eager: Engine | None = None
        self._lock = threading.Lock()
        self.batch_dependent = engine.batch_dependent

    def sgd(
        self,
        w: Vector,
        samples: Samples,
        order: NDArray[np.int64],
        learning: LocalTraining,
        terms: GradientTerms = NO_TERMS,
        seed: int = 0,
    ) -> Vector:
        """Train, with the engine that can."""
        if terms.local_step is None:
            return self._engine.sgd(w, samples, order, learning, terms, seed)
        with self._lock:
            if self._eager is None:
                log.warning("training with the eager engine, one client at a time: the algorithm has a local step")
                self._eager = self._build_eager()
            return self._eager.sgd(w, samples, order, learning, terms, seed)

    def gradient(self, w: Vector, samples: Samples) -> Vector:
        """As the compiled engine."""
        return self._engine.gradient(w, samples)

    def evaluate(self, w: Vector, samples: Samples) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """As the compiled engine."""
        return self._engine.evaluate(w, samples)
