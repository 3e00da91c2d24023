"""Problems that satisfy the assumptions of the paper's two theorems, and local SGD on them, many times at once.

A cluster has many clients; some are misidentified and pull elsewhere with bounded gradients (Assumption 1). All others
share a minimiser, which is what a bounded gradient diversity means there: no finite λ allows clients to disagree where
their gradients sum to zero. Stochastic gradients are exact ones with normal noise (Assumption 2, C1 = 0 and B = 1).

Objectives are sums over coordinates, so that the mean objective of clients has the mean coefficients of theirs.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from pacfl.learning.randomness import stream

Array = NDArray[np.float64]
Whose = Literal["all", "right"]  # the mean objective of all clients of the cluster, or of the rightly identified ones

CLIENTS: Final = 200
DIMENSION: Final = 20
FLAT: Final = 5  # directions in which the objective is constant: Polyak-Lojasiewicz, but not strongly convex
CURVATURES: Final = (0.2, 1.0)  # least and greatest in other directions, on average over clients
LOCAL_STEPS: Final = 4
NOISE: Final = 1.0  # standard deviation of each entry of a stochastic gradient
FAR: Final = 3.0  # where misidentified clients pull in the first problem, in every direction
BESIDE: Final = 1.5  # and in the second, where what is far away pulls hardly at all


@dataclass(frozen=True, eq=False)
class Problem:
    """Objectives of a cluster's clients."""

    name: str
    gradient: Callable[[Array, NDArray[np.intp]], Array]  # points (..., d) of clients (...) -> (..., d)
    smoothness: float  # L
    excess: Callable[[Array, Whose], Array]  # points (..., d) -> (...): what the theorem bounds


def convex(misidentified: float, seed: int = 0) -> Problem:
    """Least squares without full rank; misidentified clients pull by pseudo-Huber losses. The excess is F - F*."""
    base = np.concatenate([np.geomspace(*CURVATURES, DIMENSION - FLAT), np.zeros(FLAT)])
    h = base * stream(seed, "curvatures").uniform(0.5, 1.5, (CLIENTS, DIMENSION))
    away = _misidentified(misidentified)
    seen = (base > 0).astype(float)
    h_mean, share = h[~away].mean(axis=0), {"all": float(away.mean()), "right": 0.0}

    def pull(points: Array) -> Array:
        return seen * (points - FAR) / np.sqrt(1 + (points - FAR) ** 2)

    def gradient(points: Array, clients: NDArray[np.intp]) -> Array:
        return np.where(away[clients][..., None], pull(points), h[clients] * points)

    def value(points: Array, whose: Whose) -> Array:
        squares = 0.5 * points**2 @ h_mean
        pulls = (seen * (np.sqrt(1 + (points - FAR) ** 2) - 1)).sum(axis=-1)
        return np.asarray((1 - share[whose]) * squares + share[whose] * pulls)

    def minimum(whose: Whose) -> Array:
        return _root(lambda x: (1 - share[whose]) * h_mean * x + share[whose] * pull(x))

    least = {whose: value(minimum(whose), whose) for whose in ("all", "right")}
    return Problem("Polyak-Lojasiewicz", gradient, float(h.max()), lambda x, whose: value(x, whose) - least[whose])


def nonconvex(misidentified: float, seed: int = 0) -> Problem:
    """Sums of x² / (1 + x²), which is flat far away; misidentified clients have theirs elsewhere.

    The excess is the squared norm of the gradient.
    """
    weights = stream(seed, "weights").uniform(0.5, 1.5, (CLIENTS, DIMENSION))
    away = _misidentified(misidentified)
    centres = np.where(away, BESIDE, 0.0)
    here, there = weights[~away].sum(axis=0), weights[away].sum(axis=0)
    n = {"all": CLIENTS, "right": int((~away).sum())}

    def slope(x: Array) -> Array:
        return 2 * x / (1 + x**2) ** 2

    def gradient(points: Array, clients: NDArray[np.intp]) -> Array:
        return np.asarray(weights[clients] * slope(points - centres[clients][..., None]))

    def excess(points: Array, whose: Whose) -> Array:
        total = here * slope(points) + (there * slope(points - BESIDE) if whose == "all" else 0.0)
        return np.asarray(((total / n[whose]) ** 2).sum(axis=-1))

    return Problem("smooth non-convex", gradient, 2 * float(weights.max()), excess)


def local_sgd(
    problem: Problem, n_sampled: int, rates: Sequence[float], repetitions: int, rng: np.random.Generator
) -> Iterator[Array]:
    """The mean model after every step (repetitions, d): K sampled clients take E steps each, then are averaged."""
    points = np.ones((repetitions, n_sampled, DIMENSION))
    for t, rate in enumerate(rates):
        if t % LOCAL_STEPS == 0:
            points = np.broadcast_to(points.mean(axis=1, keepdims=True), points.shape)
            clients = rng.random((repetitions, CLIENTS)).argpartition(n_sampled, axis=1)[:, :n_sampled]
        noise = NOISE * rng.standard_normal(points.shape)
        points = points - rate * (problem.gradient(points, clients) + noise)
        yield points.mean(axis=1)


def decreasing_rates(problem: Problem, steps: int) -> Array:
    """Theorem 1: η_t = 4 / (μ (t + a)), a large enough for the first to be 1 / (2L)."""
    mu = CURVATURES[0]
    a = 8 * problem.smoothness / mu
    return np.asarray(4 / (mu * (np.arange(steps) + a)))


def constant_rates(problem: Problem, n_sampled: int, steps: int) -> Array:
    """Theorem 2: η = √(K / T) / L."""
    return np.full(steps, float(np.sqrt(n_sampled / steps)) / problem.smoothness)


def _misidentified(share: float) -> NDArray[np.bool_]:
    return np.arange(CLIENTS) >= CLIENTS - round(share * CLIENTS)


def _root(increasing: Callable[[Array], Array]) -> Array:
    """Where increasing functions of one coordinate each are zero, by halving."""
    low, high = np.full(DIMENSION, -FAR), np.full(DIMENSION, 2 * FAR)
    for _ in range(60):
        middle = (low + high) / 2
        above = increasing(middle) > 0
        low, high = np.where(above, low, middle), np.where(above, middle, high)
    return np.asarray((low + high) / 2)
