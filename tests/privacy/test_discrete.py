import random

import numpy as np
import pytest
from scipy.stats import chisquare, kstest

from pacfl.privacy import discrete, secret, seeded


@pytest.fixture
def _repeatable(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same numbers in every run of the tests, in place of the system's."""
    monkeypatch.setattr(discrete.secrets, "randbelow", random.Random(0).randrange)


@pytest.mark.usefixtures("_repeatable")
@pytest.mark.parametrize("variance", [1, 4, 30])
def test_small_noise_has_the_probabilities_of_its_definition(variance: int) -> None:
    """P(k) is proportional to exp(-k² / (2 variance))."""
    draws = secret(variance, 20_000)
    most = int(3.2 * variance**0.5)
    values = np.arange(-60, 61)
    weights = np.exp(-(values**2) / (2 * variance))
    inner = np.abs(values) <= most
    expected = [*weights[inner], weights[~inner].sum()]
    observed = [*(np.sum(draws == k) for k in values[inner]), np.sum(np.abs(draws) > most)]
    assert chisquare(observed, np.array(expected) / weights.sum() * len(draws)).pvalue > 0.01


@pytest.mark.usefixtures("_repeatable")
def test_large_noise_is_normal() -> None:
    assert kstest(secret(2**58, 5_000) / 2.0**29, "norm").pvalue > 0.01


def test_seeded_noise_has_the_same_law_and_comes_again() -> None:
    draws = seeded(np.random.default_rng(3))(2**58, 5_000)
    assert kstest(draws / 2.0**29, "norm").pvalue > 0.01
    assert np.array_equal(draws, seeded(np.random.default_rng(3))(2**58, 5_000))


def test_secret_noise_does_not_come_again() -> None:
    random.seed(0)
    first = secret(2**58, 4)
    random.seed(0)
    assert not np.array_equal(first, secret(2**58, 4))


def test_noise_without_variance_is_refused() -> None:
    with pytest.raises(ValueError, match="variance"):
        secret(0, 1)
