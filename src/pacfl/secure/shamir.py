"""Shamir's secret sharing: any t of n shares determine a secret, and fewer say nothing about it."""

import secrets
from collections.abc import Callable, Mapping
from typing import Final

PRIME: Final = 2**521 - 1  # of Mersenne: larger than any secret of 32 bytes
LENGTH: Final = 66  # bytes of a share


def split(secret: int, n: int, t: int, below: Callable[[int], int] = secrets.randbelow) -> tuple[int, ...]:
    """Shares of a secret for holders 1 to n: a polynomial of degree t - 1 at these points.

    >>> combine({1: split(5, 3, 2)[0], 3: 7}) == 5  # the second share is not of this secret
    False
    """
    if not 1 <= t <= n or not 0 <= secret < PRIME:
        raise ValueError(f"t must be from 1 to n, and the secret below 2^521 - 1; got t = {t}, n = {n}")
    coefficients = (secret, *(below(PRIME) for _ in range(t - 1)))
    return tuple(_at(x, coefficients) for x in range(1, n + 1))


def combine(shares: Mapping[int, int]) -> int:
    """The secret of t or more shares by their holders: Lagrange's polynomial at 0."""
    total = 0
    for x, y in shares.items():
        above, below = y, 1
        for other in shares:
            if other != x:
                above, below = above * other % PRIME, below * (other - x) % PRIME
        total += above * pow(below, -1, PRIME)
    return total % PRIME


def _at(x: int, coefficients: tuple[int, ...]) -> int:
    value = 0
    for coefficient in reversed(coefficients):
        value = (value * x + coefficient) % PRIME
    return value
