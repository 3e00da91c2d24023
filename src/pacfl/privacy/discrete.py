"""Gaussian noise in integers, drawn exactly from the randomness of the operating system.

Floating-point numbers cannot represent every sum of a value and its noise: which sums occur leaks the value
(Mironov, 2012). So noise is drawn in integers by the exact rejection sampler of Canonne, Kamath and Steinke
(2020), Algorithms 1 to 3, from `secrets`, and added to integers.
"""

import secrets
from collections.abc import Callable
from math import isqrt

import numpy as np
from numpy.typing import NDArray

NonNegativeInt = NDArray[np.int64]
Noise = Callable[[int, int], NonNegativeInt]  # variance, count -> (count,)


def secret(variance: int, count: int) -> NonNegativeInt:
    """Discrete Gaussian noise that cannot be reproduced: (count,)."""
    if variance < 1:
        raise ValueError(f"variance must be an integer of at least 1, got {variance!r}")
    return np.array([_gaussian(variance) for _ in range(count)], dtype=np.int64)


def seeded(rng: np.random.Generator) -> Noise:
    """Noise of the same distribution that can be reproduced, for simulations: it gives no privacy."""
    return lambda variance, count: np.rint(rng.standard_normal(count) * float(variance) ** 0.5).astype(np.int64)


def _gaussian(variance: int) -> int:
    scale = isqrt(variance) + 1
    while True:
        y = _laplace(scale)
        # exp(-(|y| - variance / scale)² / (2 variance))
        if _bernoulli_exp((abs(y) * scale - variance) ** 2, 2 * variance * scale**2):
            return y


def _laplace(scale: int) -> int:
    """An integer x with probability proportional to exp(-|x| / scale)."""
    while True:
        low = secrets.randbelow(scale)
        if not _bernoulli_exp(low, scale):
            continue
        high = 0
        while _bernoulli_exp(1, 1):
            high += 1
        x = low + scale * high
        negative = bool(secrets.randbelow(2))
        if not (negative and x == 0):  # or zero would be met twice as often
            return -x if negative else x


def _bernoulli_exp(numerator: int, denominator: int) -> bool:
    """True with probability exp(-numerator / denominator), in integers only."""
    for _ in range(numerator // denominator):
        if not _bernoulli_exp_below_one(1, 1):
            return False
    return _bernoulli_exp_below_one(numerator % denominator, denominator)


def _bernoulli_exp_below_one(numerator: int, denominator: int) -> bool:
    """By the alternating series of exp: the first k at which a chance of numerator / (denominator k) fails is odd."""
    k = 1
    while secrets.randbelow(denominator * k) < numerator:
        k += 1
    return k % 2 == 1
