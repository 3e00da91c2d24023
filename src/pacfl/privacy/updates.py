"""Differentially private model updates: clipped, with noise."""

import secrets
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

Array = NDArray[np.float64]
Normal = Callable[[int], Array]  # count -> (count,) standard normal


def hidden_update(update: Array, clip: float, noise: float, normal: Normal) -> Array:
    """The update, clipped to length `clip`, with noise of standard deviation noise × clip: (d,) -> (d,).

    Any two updates of a client are then at most 2 clip apart.
    """
    if not clip > 0 or not noise >= 0:
        raise ValueError(f"clip must be positive and noise not negative, got {clip} and {noise}")
    length = float(np.linalg.norm(update))
    short = update * min(1.0, clip / length) if length > 0 else update
    return np.asarray(short + noise * clip * normal(len(update))) if noise else np.asarray(short)


def secret_normal(count: int) -> Array:
    """Standard normal numbers from the randomness of the operating system: (count,).

    By the inverse of the distribution of 63 random bits, so that none is beyond 9.1. In float64: unlike the noise of
    signatures it is not exact; see docs/privacy.md.
    """
    bits = np.frombuffer(secrets.token_bytes(8 * count), dtype="<u8")
    tail = ((bits >> np.uint64(1)).astype(np.float64) + 0.5) * 2.0**-64  # in (0, 1 / 2)
    return np.asarray(np.where(bits & np.uint64(1), -1.0, 1.0) * ndtri(tail))
