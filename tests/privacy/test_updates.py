from math import inf, sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray
from scipy.stats import kstest

from pacfl.privacy import gaussian_delta
from pacfl.privacy.accounting import epsilon_of_models, epsilon_of_uploads
from pacfl.privacy.updates import hidden_update, secret_normal

Array = NDArray[np.float64]
UPDATES = arrays(np.float64, 6, elements=st.floats(-1e6, 1e6))
DELTA = 1e-5


def silent(count: int) -> Array:
    return np.zeros(count)


@given(UPDATES, UPDATES, st.floats(1e-3, 1e3))
def test_two_updates_are_at_most_two_clips_apart(one: Array, other: Array, clip: float) -> None:
    apart = hidden_update(one, clip, 1.0, silent) - hidden_update(other, clip, 1.0, silent)
    assert np.linalg.norm(apart) <= 2 * clip * (1 + 1e-12)


@given(UPDATES)
def test_short_updates_without_noise_are_as_they_were(update: Array) -> None:
    assert np.array_equal(hidden_update(update, 1e8, 0.0, secret_normal), update)


def test_noise_is_normal_of_the_asked_standard_deviation() -> None:
    noise = hidden_update(np.zeros(20_000), 0.5, 3.0, np.random.default_rng(0).standard_normal)
    assert kstest(noise, "norm", args=(0, 1.5)).pvalue > 0.01


def test_secret_numbers_are_normal_and_never_come_again() -> None:
    """Not seeded: a right sampler fails here once in a million runs."""
    assert kstest(secret_normal(20_000), "norm").pvalue > 1e-6
    assert not np.array_equal(secret_normal(5), secret_normal(5))


@pytest.mark.parametrize(("clip", "noise"), [(0.0, 1.0), (-1.0, 1.0), (1.0, -1.0), (float("nan"), 1.0)])
def test_a_clip_that_is_none_is_refused(clip: float, noise: float) -> None:
    with pytest.raises(ValueError, match="clip"):
        hidden_update(np.ones(3), clip, noise, silent)


# Accounting


@given(st.floats(0.5, 50), st.integers(1, 500))
def test_epsilon_of_uploads_is_that_of_one_gaussian_mechanism(noise: float, times: int) -> None:
    """Sums of `times` independent Gaussian privacy losses are Gaussian: as one of sensitivity 2 √times."""
    epsilon = epsilon_of_uploads(noise, times, DELTA)
    if 0 < epsilon < inf:
        assert gaussian_delta(epsilon, noise / (2 * sqrt(times))) == pytest.approx(DELTA, rel=1e-6)


def test_without_noise_or_uploads_there_is_no_or_full_privacy() -> None:
    assert epsilon_of_uploads(0.0, 1, DELTA) == inf
    assert epsilon_of_uploads(0.001, 10**6, DELTA) == inf
    assert epsilon_of_uploads(1.0, 0, DELTA) == 0.0
    assert epsilon_of_uploads(1e9, 1, DELTA) == 0.0
    assert epsilon_of_models(0.0, 5, 10, 1, DELTA) == inf
    assert epsilon_of_models(1.0, 0, 10, 1, DELTA) == 0.0


@pytest.mark.parametrize("sampled", [0, 11])
def test_more_samples_than_clients_are_refused(sampled: int) -> None:
    with pytest.raises(ValueError, match="sampled"):
        epsilon_of_models(1.0, 5, 10, sampled, DELTA)


@pytest.mark.parametrize("noise", [1.0, 5.0])
def test_with_all_sampled_the_accountant_agrees_with_the_exact_composition(noise: float) -> None:
    """The mean of 100 uploads has a tenth of their noise and a hundredth of their sensitivity: noise × 10 in all."""
    pytest.importorskip("dp_accounting")
    exact = epsilon_of_uploads(noise * 10, 200, DELTA)
    assert exact <= epsilon_of_models(noise, 200, 100, 100, DELTA) <= 1.15 * exact


def test_sampling_and_company_protect() -> None:
    pytest.importorskip("dp_accounting")
    all_sampled, tenth = (epsilon_of_models(5.0, 200, 100, m, DELTA) for m in (100, 10))
    assert tenth < all_sampled < epsilon_of_uploads(5.0, 200, DELTA)
    assert epsilon_of_models(5.0, 200, 100, 10, DELTA) < epsilon_of_models(5.0, 400, 100, 10, DELTA)
