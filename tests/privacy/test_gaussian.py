from math import exp, log, sqrt

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import norm

from pacfl.privacy import gaussian_delta, gaussian_sigma

EPSILONS = st.floats(0.01, 20)
DELTAS = st.floats(1e-10, 0.3)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
@pytest.mark.parametrize("sigma", [0.4, 1.0, 3.0])
def test_delta_is_the_integral_of_its_definition(epsilon: float, sigma: float) -> None:
    """Delta is the integral of max(0, p - exp(epsilon) q) for densities p of N(1, s²) and q of N(0, s²)."""

    def excess(t: float) -> float:
        return max(0.0, norm.pdf(t, 1, sigma) - exp(epsilon) * norm.pdf(t, 0, sigma))

    start = sigma**2 * epsilon + 0.5  # where p = exp(epsilon) q
    assert gaussian_delta(epsilon, sigma) == pytest.approx(
        quad(excess, start, start + 40 * sigma, epsabs=1e-14)[0], abs=1e-12
    )


def test_delta_without_epsilon_is_the_total_variation() -> None:
    assert gaussian_delta(0.0, 2.0) == pytest.approx(2 * norm.cdf(0.25) - 1, abs=1e-15)


@given(EPSILONS, DELTAS)
def test_the_noise_is_enough_and_not_more(epsilon: float, delta: float) -> None:
    sigma = gaussian_sigma(epsilon, delta)
    assert gaussian_delta(epsilon, sigma) <= delta
    assert gaussian_delta(epsilon, 0.999 * sigma) > delta


@given(st.floats(0.01, 1), DELTAS)
def test_the_noise_is_less_than_the_classical_bound(epsilon: float, delta: float) -> None:
    """Dwork and Roth (2014), Theorem A.1: sqrt(2 ln(1.25 / delta)) / epsilon for epsilon below 1."""
    assert gaussian_sigma(epsilon, delta) < sqrt(2 * log(1.25 / delta)) / epsilon


@given(EPSILONS, DELTAS, st.floats(0.01, 100))
def test_the_noise_grows_with_the_sensitivity(epsilon: float, delta: float, sensitivity: float) -> None:
    expected = sensitivity * gaussian_sigma(epsilon, delta)
    assert gaussian_sigma(epsilon, delta, sensitivity) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    ("epsilon", "delta", "sensitivity", "word"),
    [
        (0.0, 1e-5, 1.0, "epsilon"),
        (-1.0, 1e-5, 1.0, "epsilon"),
        (float("nan"), 1e-5, 1.0, "epsilon"),
        (float("inf"), 1e-5, 1.0, "epsilon"),
        (1.0, 0.0, 1.0, "delta"),
        (1.0, 1.0, 1.0, "delta"),
        (1.0, float("nan"), 1.0, "delta"),
        (1.0, 1e-5, 0.0, "sensitivity"),
        (1e-300, 1e-300, 1.0, "nothing but noise"),
    ],
)
def test_what_is_no_guarantee_is_refused(epsilon: float, delta: float, sensitivity: float, word: str) -> None:
    with pytest.raises(ValueError, match=word):
        gaussian_sigma(epsilon, delta, sensitivity)
