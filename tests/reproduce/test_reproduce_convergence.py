import numpy as np
import pytest

from pacfl.reproduce.convergence import first, second, slopes, times
from pacfl.reproduce.diversity import weighted_diversity
from pacfl.reproduce.theorems import CLIENTS, DIMENSION, Problem, constant_rates, convex, local_sgd, nonconvex

EVERYBODY = np.arange(CLIENTS)


def mean_gradient(problem: Problem, point: np.ndarray) -> np.ndarray:
    return problem.gradient(np.tile(point, (CLIENTS, 1)), EVERYBODY).mean(axis=0)


@pytest.mark.parametrize("share", [0.0, 0.1, 0.3])
def test_the_objective_has_the_gradient_that_clients_descend(share: float) -> None:
    problem = convex(share)
    point, step = np.linspace(-1.0, 2.0, DIMENSION), 1e-5
    moved = point + step * np.eye(DIMENSION)
    slope = (problem.excess(moved, "all") - problem.excess(2 * point - moved, "all")) / (2 * step)
    assert np.allclose(slope, mean_gradient(problem, point), atol=1e-8)


@pytest.mark.parametrize("share", [0.0, 0.1, 0.3])
def test_nothing_is_below_the_minimum(share: float) -> None:
    problem = convex(share)
    points = np.random.default_rng(0).normal(1.0, 2.0, (500, DIMENSION))
    assert problem.excess(points, "all").min() > 0
    assert problem.excess(np.zeros(DIMENSION), "right") == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("share", [0.0, 0.3])
def test_the_excess_of_the_second_problem_is_the_squared_norm_of_the_mean_gradient(share: float) -> None:
    problem = nonconvex(share)
    point = np.linspace(-2.0, 2.0, DIMENSION)
    assert problem.excess(point, "all") == pytest.approx((mean_gradient(problem, point) ** 2).sum())


def test_rightly_identified_clients_have_a_bounded_diversity_down_to_their_minimiser() -> None:
    problem = convex(0.0)
    for length in (1.0, 1e-3, 1e-9):
        at = np.full((CLIENTS, DIMENSION), length)
        assert weighted_diversity(problem.gradient(at, EVERYBODY)) < 1.2


def test_misidentified_clients_have_bounded_gradients() -> None:
    wrong = np.full(50, CLIENTS - 1)
    far = np.random.default_rng(0).normal(0, 1e6, (50, DIMENSION))
    for problem in (convex(0.1), nonconvex(0.1)):
        assert np.abs(problem.gradient(far, wrong)).max() <= 1.5


def test_one_sampled_client_without_noise_follows_its_own_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pacfl.reproduce.theorems.NOISE", 0.0)
    problem = nonconvex(0.0)
    (point,) = local_sgd(problem, 1, [0.1], 1, np.random.default_rng(3))
    client = np.random.default_rng(3).random((1, CLIENTS)).argpartition(1, axis=1)[:, :1]
    start = np.ones((1, 1, DIMENSION))
    assert np.allclose(point, (start - 0.1 * problem.gradient(start, client))[:, 0])


def test_a_constant_rate_is_that_of_the_theorem() -> None:
    problem = nonconvex(0.0)
    assert constant_rates(problem, 4, 100)[0] == pytest.approx(0.2 / problem.smoothness)


def test_exponents_are_read_off_exact_powers() -> None:
    at, sampled = (64, 128, 256), (1, 2, 4)
    errors = np.array([[7.0 * t**-0.5 * k**-0.25 for t in at] for k in sampled])
    assert slopes(at, sampled, errors) == pytest.approx((-0.5, -0.25))


def test_times_double_up_to_the_longest() -> None:
    assert times(1024) == (64, 128, 256, 512, 1024)


def test_errors_fall_with_more_clients_as_predicted() -> None:
    """The exponents of K; those of T need longer runs than a test has. Five standard errors on either side."""
    for theorem, predicted in ((first, -1.0), (second, -0.5)):
        (fit,) = theorem(0.0, 512, 16)
        slope, error = fit["slope_in_sampled"]
        assert slope == pytest.approx(predicted, abs=5 * error + 0.05)


def test_misidentified_clients_leave_an_error_at_the_others() -> None:
    everybody, right = first(0.3, 512, 8)
    assert everybody["objective"] == "all"
    assert np.array(right["errors"])[:, -1].min() > 10 * np.array(everybody["errors"])[:, -1].max()


def test_equal_gradients_have_diversity_one_and_cancelling_ones_none_that_is_finite() -> None:
    assert weighted_diversity(np.ones((5, 3))) == pytest.approx(1.0)
    assert weighted_diversity(np.eye(4)) == pytest.approx(4.0)
    assert weighted_diversity(np.array([[1.0], [-1.0]])) == np.inf
