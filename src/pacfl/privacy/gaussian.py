"""The exact amount of Gaussian noise for (epsilon, delta) differential privacy."""

from math import exp, inf, log
from typing import Final

from scipy.optimize import brentq
from scipy.special import log_ndtr, ndtr

# Noise is searched in this range, in units of the sensitivity: beyond it is no privacy, or nothing but noise.
LEAST_SIGMA: Final = 1e-3
MOST_SIGMA: Final = 1e6


def gaussian_delta(epsilon: float, sigma: float) -> float:
    """The least delta for which noise of standard deviation sigma is (epsilon, delta) private, at sensitivity 1.

    Balle and Wang (2018), Theorem 8: Phi(1 / 2s - e s) - exp(e) Phi(-1 / 2s - e s).

    >>> round(gaussian_delta(1.0, 1.0), 6)
    0.126937
    """
    near, far = 1 / (2 * sigma) - epsilon * sigma, -1 / (2 * sigma) - epsilon * sigma
    return max(0.0, float(ndtr(near)) - exp(epsilon + float(log_ndtr(far))))


def gaussian_sigma(epsilon: float, delta: float, sensitivity: float = 1.0) -> float:
    """The least standard deviation of Gaussian noise that is (epsilon, delta) private at this sensitivity.

    >>> round(gaussian_sigma(1.0, 1e-5), 3)
    3.73
    """
    check_budget(epsilon, delta)
    if not 0 < sensitivity < inf:
        raise ValueError(f"sensitivity must be a positive number, got {sensitivity!r}")
    low, high = log(LEAST_SIGMA), log(MOST_SIGMA)
    if gaussian_delta(epsilon, MOST_SIGMA) > delta:
        raise ValueError(f"epsilon = {epsilon} with delta = {delta} leaves nothing but noise; give a larger epsilon")
    if gaussian_delta(epsilon, LEAST_SIGMA) < delta:
        return LEAST_SIGMA * sensitivity
    root = brentq(lambda s: gaussian_delta(epsilon, exp(s)) - delta, low, high, xtol=1e-12)
    # The root may lie on the wrong side by a rounding: a billionth more noise is surely enough
    return exp(root) * (1 + 1e-9) * sensitivity


def check_budget(epsilon: float, delta: float) -> None:
    """Refuse an epsilon or a delta that is out of range."""
    if not 0 < epsilon < inf:
        raise ValueError(f"epsilon must be a positive number, got {epsilon!r}")
    if not 0 < delta < 1:
        raise ValueError(f"delta must lie between 0 and 1, got {delta!r}; take it far below one over the sample count")
