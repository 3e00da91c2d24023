"""Clients compared by their classes and by their updates together: Pramanik and others (2026), section 3."""

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax

from pacfl.federation.founding import Array, cosines
from pacfl.federation.message import Message

STEPS: Final = 2000  # of gradient descent for w, at most
SETTLED: Final = 1e-6  # change of w
SAME: Final = 1e-4  # degrees that rounding may make
TINY: Final = np.finfo(np.float64).tiny


def class_angles(reports: Sequence[Message], delta: float) -> Array:
    """The mean over all classes of the smallest angles, weighted by how much counts differ, in degrees: (n, n).

    A report has class_names (c,), class_sizes (c,) and class_directions (c, features, rank), 0 where there are fewer.
    """
    names = sorted({int(name) for own in reports for name in own["class_names"]})
    compared = [_of_class(reports, name) for name in names]
    angles, ratios = (np.array([pair[i] for pair in compared]).reshape(-1, len(reports), len(reports)) for i in (0, 1))
    known = np.isfinite(ratios)
    low, high = ratios.min(initial=np.inf), ratios.max(initial=0, where=known)
    beyond = np.where(known, ratios, high) - (low if known.any() else high)
    weights = np.where(known, 1 - delta + 2 * delta * beyond / max(high - low, TINY), 1 + delta)
    mean: Array = (angles * weights).sum(axis=0) / max(len(names), 1)
    return mean


def _of_class(reports: Sequence[Message], name: int) -> tuple[Array, Array]:
    """Angles of one class, and ratios of the logarithms of counts, infinite where one has none: (n, n) each."""
    n = len(reports)
    place = {
        i: int(np.flatnonzero(own["class_names"] == name)[0])
        for i, own in enumerate(reports)
        if name in own["class_names"]
    }
    having = list(place)
    logs = np.log([reports[i]["class_sizes"][p] + 1 for i, p in place.items()])
    bases = np.stack([reports[i]["class_directions"][p].T.astype(np.float64) for i, p in place.items()])
    overlaps = np.tensordot(bases, bases, (2, 2)).swapaxes(1, 2)  # (m, m, rank, rank)
    has = np.isin(np.arange(n), having)
    angles, ratios = np.where(has[:, None] != has, 90.0, 0.0), np.full((n, n), np.inf)
    angles[np.ix_(having, having)] = np.degrees(np.arccos(np.clip(np.linalg.norm(overlaps, 2, axis=(2, 3)), 0, 1)))
    ratios[np.ix_(having, having)] = np.maximum.outer(logs, logs) / np.minimum.outer(logs, logs)
    np.fill_diagonal(angles, 0)
    np.fill_diagonal(ratios, np.inf)  # of different clients
    return angles, ratios


def update_angles(updates: NDArray[np.float32]) -> Array:
    """Degrees between updates (n, m): (n, n)."""
    exact = updates.astype(np.float64)
    angles: Array = np.degrees(np.arccos(np.clip(cosines(exact, exact), -1, 1)))
    return angles


def scaled(distances: Array) -> Array:
    """Distances of different clients, from 0 to 1; 0 to oneself."""
    distances = (distances + distances.T) / 2  # rounding is not the same in both directions
    others = ~np.eye(len(distances), dtype=bool)
    low, high = distances[others].min(initial=np.inf), distances[others].max(initial=0)
    return np.where(others, (distances - low) / (high - low), 0) if high - low > SAME else np.zeros_like(distances)


def combined(updates: Array, data: Array, w: Array) -> Array:
    """A_ij = w_ij G_ij + (1 - w_ij) V_ij."""
    half: Array = np.add.outer(w, w) / 2
    return half * updates + (1 - half) * data


def learned(updates: Array, data: Array) -> Array:
    """The w of the least entropy, by projected gradient descent from 1/2: (n,)."""
    w = np.full(len(data), 0.5)
    for _ in range(STEPS):
        logs = log_softmax(combined(updates, data, w), axis=1)
        shares = np.exp(logs)
        slope = -shares * (logs - (shares * logs).sum(axis=1, keepdims=True))  # of the entropy of each row, by A
        gradient = ((slope + slope.T) * (updates - data)).sum(axis=1) / 2
        before, w = w, np.clip(w - 10 * gradient, 0, 1)
        if np.abs(w - before).max(initial=0) < SETTLED:
            break
    return w
