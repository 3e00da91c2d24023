import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray
from scipy.stats import kstest

from pacfl.privacy import gaussian_sigma, private_signature, secret, seeded
from pacfl.privacy.noise_scale import without_noise
from pacfl.privacy.reduction import MOST_FEATURES, reduced
from pacfl.privacy.signature import GRID, SENSITIVITY, noisy_moment, on_grid, second_moment, symmetric_noise
from pacfl.subspace import MEASURES, principal_angles, proximity, signature
from tests.privacy.auditing import empirical_epsilon

Array = NDArray[np.float64]

ANY_FLOAT = st.floats(allow_nan=False, allow_infinity=False)
FEATURES = 5


def no_noise(variance: int, count: int) -> NDArray[np.int64]:  # noqa: ARG001 - one form for all noise
    return np.zeros(count, dtype=np.int64)


def records(n: int) -> st.SearchStrategy[Array]:
    return arrays(np.float64, (n, FEATURES), elements=ANY_FLOAT)


def whole_square(matrix: NDArray[np.int64]) -> int:
    """Squared Frobenius norm in integers of any size."""
    return sum(int(entry) ** 2 for entry in matrix.ravel())


# Sensitivity: what one record can do at most


@given(records(3))
def test_no_record_is_longer_than_one(rows: Array) -> None:
    assert all(whole_square(row) <= GRID**2 for row in on_grid(rows))


@given(records(3), records(1))
def test_a_record_replaced_moves_the_matrix_by_the_square_root_of_two_at_most(rows: Array, other: Array) -> None:
    neighbour = np.vstack([rows[:-1], other])
    moved = second_moment(on_grid(rows)) - second_moment(on_grid(neighbour))
    assert whole_square(moved) <= 2 * GRID**4


@given(records(3))
def test_a_record_removed_moves_the_matrix_by_one_at_most(rows: Array) -> None:
    moved = second_moment(on_grid(rows)) - second_moment(on_grid(rows[:-1]))
    assert whole_square(moved) <= GRID**4


def test_the_worst_neighbours_reach_the_sensitivity() -> None:
    """Two directions at right angles: diag(1, -1) has norm √2. So the noise is not more than is needed."""
    moved = second_moment(on_grid(np.array([[5.0, 0.0]]))) - second_moment(on_grid(np.array([[0.0, 0.1]])))
    assert whole_square(moved) == round(SENSITIVITY**2) * GRID**4


@pytest.mark.parametrize("shape", [(6, 9, 7), (6, 32, 32, 3), (6, 3, 2, 1), (6, 100), (6, 20)])
def test_reduction_looks_at_one_record_at_a_time(shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    x, other = rng.normal(size=shape), rng.normal(size=shape)
    other[2] = x[2]
    assert np.array_equal(reduced(x)[0][2], reduced(other)[0][2])


def test_second_moments_are_exact() -> None:
    rows = np.random.default_rng(0).integers(-GRID, GRID + 1, (50, 3))
    exact = [[sum(int(a) * int(b) for a, b in zip(p, q, strict=True)) for q in rows.T] for p in rows.T]
    assert second_moment(rows).tolist() == exact


# The noise


@pytest.mark.parametrize("direction", ["diagonal", "beside it", "any"])
def test_noise_is_the_same_in_every_direction(direction: str) -> None:
    """For any symmetric D of Frobenius norm 1, the sum of D × noise is normal with standard deviation sigma."""
    d, rng = 4, np.random.default_rng(0)
    square = {"diagonal": np.diag([1.0, 0, 0, 0]), "beside it": np.eye(4, k=1), "any": rng.normal(size=(4, 4))}
    along = square[direction] + square[direction].T
    along /= np.linalg.norm(along)
    drawn = [np.sum(along * symmetric_noise(d, 1.7, seeded(rng))) / GRID**2 for _ in range(4_000)]
    assert kstest(drawn, "norm", args=(0, 1.7)).pvalue > 0.01


def test_noise_is_symmetric() -> None:
    matrix = symmetric_noise(6, 1.0, secret)
    assert np.array_equal(matrix, matrix.T)


# An audit: what can be proved about epsilon from many runs

DIAGONAL = (np.array([[1.0, 0.0]]), np.array([[0.0, 1.0]]))
BESIDE = (np.array([[1.0, 1.0]]), np.array([[1.0, -1.0]]))
RUNS = 20_000


def audited(pair: tuple[Array, Array], epsilon: float, delta: float, mutant: float = 1.0) -> float:
    """Epsilon that is proved against noise whose standard deviation is `mutant` times what it should be."""
    rng = np.random.default_rng(5)
    honest = seeded(rng)

    def noise(variance: int, count: int) -> NDArray[np.int64]:
        return honest(max(1, round(variance * mutant**2)), count)

    along = second_moment(on_grid(pair[0])) - second_moment(on_grid(pair[1]))
    common = np.tile([[0.6, 0.8]], (7, 1))
    sigma = gaussian_sigma(epsilon, delta, SENSITIVITY)
    shown = [[np.sum(along * noisy_moment(np.vstack([common, x]), sigma, noise)) for _ in range(RUNS)] for x in pair]
    return empirical_epsilon(np.array(shown[0]), np.array(shown[1]), delta)


# With a large delta the promise is tight for events that are met often, so that an audit is sharp
@pytest.mark.parametrize("pair", [DIAGONAL, BESIDE], ids=["diagonal", "beside"])
@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 0.1), (0.5, 0.2)])
def test_no_audit_proves_more_than_is_promised(pair: tuple[Array, Array], epsilon: float, delta: float) -> None:
    """Nor much less, or the audit would have no power: 10,000 runs of each prove about three quarters."""
    proved = audited(pair, epsilon, delta)
    assert 0.6 * epsilon < proved <= epsilon


@pytest.mark.parametrize("pair", [DIAGONAL, BESIDE], ids=["diagonal", "beside"])
def test_an_audit_notices_noise_of_a_wrong_scale(pair: tuple[Array, Array]) -> None:
    """Four fifths of it. Still less noise, as half of the variance, proves more."""
    assert audited(pair, 1.0, 0.1, mutant=0.8) > 1.0


# The signature


def federation(n: int, seed: int, turned: bool = False) -> Array:
    rng = np.random.default_rng(seed)
    mean = np.linspace(0, 1, 64).reshape(8, 8)
    return rng.normal(size=(n, 8, 8)) * 0.3 + (mean.T if turned else mean)


def test_without_noise_it_is_the_signature_of_reduced_samples_of_length_one() -> None:
    x = federation(200, 0)
    rows = reduced(x)[0]
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    made = private_signature(x, 3, 1.0, noise=no_noise)
    assert np.degrees(principal_angles(made.basis, signature(unit, 3))).max() < 0.05  # of the grid


@settings(max_examples=20)
@given(st.integers(1, 60), st.sampled_from([(3,), (200,), (5, 6), (9, 4, 3)]))
def test_it_is_an_orthonormal_basis_whatever_the_data(n: int, shape: tuple[int, ...]) -> None:
    made = private_signature(np.zeros((n, *shape)), 3, 1.0, noise=seeded(np.random.default_rng(n)))
    assert np.allclose(made.basis.T @ made.basis, np.eye(3), atol=1e-12)
    assert set(made.split_half_angles) == set(MEASURES)


def test_it_is_drawn_anew_each_time_by_default() -> None:
    x = federation(100, 0)
    assert not np.array_equal(private_signature(x, 2, 1.0).basis, private_signature(x, 2, 1.0).basis)


def test_less_epsilon_means_a_larger_noise_scale() -> None:
    x = federation(300, 0)
    scales = [
        np.mean(private_signature(x, 2, e, noise=seeded(np.random.default_rng(0))).split_half_angles["smallest"])
        for e in (0.5, 2.0, 8.0)
    ]
    assert scales[0] > 2 * scales[1] > 3 * scales[2]


@pytest.mark.parametrize("epsilon", [0.5, 2.0, 16.0])
def test_the_noise_scale_is_what_clients_of_one_distribution_show(epsilon: float) -> None:
    rng = np.random.default_rng(2)
    made = [private_signature(federation(400, i), 3, epsilon, noise=seeded(rng)) for i in range(20)]
    shown = proximity([m.basis for m in made])[np.triu_indices(20, 1)]
    simulated = np.concatenate([m.split_half_angles["smallest"] for m in made])
    assert np.sqrt(np.mean(simulated**2)) == pytest.approx(np.sqrt(np.mean(shown**2)), rel=0.15)


def test_eigenvalues_are_recovered_from_the_noise() -> None:
    """Of one strong direction in 60, the eigenvalue comes back to 3 %, and the trace does not change."""
    clean = np.diag([300.0, *np.full(59, 2.0)])
    sigma = 5.0
    noisy = clean + symmetric_noise(60, sigma, seeded(np.random.default_rng(0))) / GRID**2
    shown = np.linalg.eigvalsh(noisy)[::-1]
    recovered = without_noise(shown, sigma)
    assert recovered[0] == pytest.approx(302, rel=0.03)
    assert recovered.sum() == pytest.approx(np.trace(noisy), rel=1e-9)
    assert len(set(recovered[1:])) == 1


def test_wide_tables_have_one_projection_for_all_clients_and_narrow_ones_none() -> None:
    rng = np.random.default_rng(0)
    wide = rng.normal(size=(5, 300))
    rows, word = reduced(wide)
    assert (rows.shape, word) == ((5, MOST_FEATURES), "project 300 to 48")
    assert np.array_equal(rows, reduced(wide)[0])
    assert reduced(wide[:, :MOST_FEATURES])[1] == "none"


def test_pooling_takes_means_of_cells() -> None:
    """An 8 × 4 image of its row numbers: cells of two rows and one column hold 0.5, 2.5, 4.5, 6.5."""
    image = np.repeat(np.arange(8.0)[:, None], 4, axis=1)[None]
    rows, word = reduced(image)
    assert word == "pool 4x4"
    assert np.allclose(rows.reshape(4, 4), np.array([[0.5], [2.5], [4.5], [6.5]]))


@pytest.mark.parametrize("shape", [(4,), (2, 3, 4, 5, 6), (0, 4)])
def test_what_are_no_samples_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="sample"):
        private_signature(np.ones(shape), 1, 1.0)
