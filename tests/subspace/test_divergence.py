from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import ArrayLike, NDArray
from scipy.spatial.distance import pdist

from pacfl.subspace import bhattacharyya, kl, mmd

Array = NDArray[np.float64]
Divergence = Callable[[ArrayLike, ArrayLike], float]
SEEDS = st.integers(0, 2**32)
DIMENSIONS = st.integers(1, 5)


def exact(seed: int, mean: Array, covariance: Array, n: int = 50) -> Array:
    """A sample with exactly this mean and covariance: one is whitened and then transformed."""
    x = np.random.default_rng(seed).standard_normal((n, len(mean)))
    x -= x.mean(axis=0)
    white = np.linalg.solve(np.linalg.cholesky(np.atleast_2d(np.cov(x, rowvar=False))), x.T).T
    return mean + white @ np.linalg.cholesky(covariance).T


def normal(seed: int, d: int) -> tuple[Array, Array]:
    """A mean and a covariance."""
    rng = np.random.default_rng(seed)
    a = rng.standard_normal((d, d))
    return rng.standard_normal(d), a @ a.T + np.eye(d)


@given(seed=SEEDS, d=DIMENSIONS)
def test_divergences_of_normals_that_differ_in_the_mean(seed: int, d: int) -> None:
    """N(μ, S) and N(2μ, S): δ = μ and equal covariances, so that only the term of means is left.

    Bhattacharyya: δᵀ S⁻¹ δ / 8 = μᵀ S⁻¹ μ / 8. KL: (d + μᵀ S⁻¹ μ - d + 0) / 2 = μᵀ S⁻¹ μ / 2, both ways.
    """
    mean, covariance = normal(seed, d)
    x, y = exact(seed, mean, covariance), exact(seed + 1, 2 * mean, covariance)
    distance = mean @ np.linalg.inv(covariance) @ mean
    assert bhattacharyya(x, y) == pytest.approx(distance / 8, rel=1e-9, abs=1e-9)
    assert kl(x, y) == pytest.approx(distance / 2, rel=1e-9, abs=1e-9)
    assert kl(y, x) == pytest.approx(distance / 2, rel=1e-9, abs=1e-9)


@given(seed=SEEDS, d=DIMENSIONS)
def test_divergences_of_normals_that_differ_in_the_covariance(seed: int, d: int) -> None:
    """N(μ, S) and N(μ, 2S): δ = 0, |2S| = 2ᵈ |S| and |(S + 2S) / 2| = 1.5ᵈ |S|.

    Bhattacharyya: ½ ln(1.5ᵈ / √2ᵈ) = d/2 (ln 1.5 - ½ ln 2).
    KL(S ‖ 2S) = ½ (d / 2 - d + d ln 2) = d/2 (ln 2 - ½). KL(2S ‖ S) = ½ (2d - d - d ln 2) = d/2 (1 - ln 2).
    """
    mean, covariance = normal(seed, d)
    x, y = exact(seed, mean, covariance), exact(seed + 1, mean, 2 * covariance)
    assert bhattacharyya(x, y) == pytest.approx(d / 2 * (np.log(1.5) - np.log(2) / 2), rel=1e-9)
    assert kl(x, y) == pytest.approx(d / 2 * (np.log(2) - 0.5), rel=1e-9)
    assert kl(y, x) == pytest.approx(d / 2 * (1 - np.log(2)), rel=1e-9)


@given(seed=SEEDS, d=DIMENSIONS, divergence=st.sampled_from([bhattacharyya, kl]))
def test_divergences_of_normals_are_0_for_equal_samples_and_positive_for_others(
    seed: int, d: int, divergence: Divergence
) -> None:
    x, y = exact(seed, *normal(seed, d)), exact(seed, *normal(seed + 1, d))
    assert divergence(x, x) == pytest.approx(0, abs=1e-9)
    assert divergence(x, y) > 1e-6


@given(seed=SEEDS, d=DIMENSIONS)
def test_bhattacharyya_is_symmetric_and_kl_is_not(seed: int, d: int) -> None:
    x, y = exact(seed, *normal(seed, d)), exact(seed, *normal(seed + 1, d))
    assert bhattacharyya(x, y) == pytest.approx(bhattacharyya(y, x), rel=1e-9)
    assert kl(x, y) != pytest.approx(kl(y, x), rel=1e-6)


@given(seed=SEEDS, divergence=st.sampled_from([bhattacharyya, kl]))
def test_divergences_of_normals_do_not_depend_on_the_coordinates(seed: int, divergence: Divergence) -> None:
    x, y = exact(seed, *normal(seed, 3)), exact(seed, *normal(seed + 1, 3))
    shift, matrix = normal(seed + 2, 3)
    assert divergence(x @ matrix + shift, y @ matrix + shift) == pytest.approx(divergence(x, y), rel=1e-6)


@pytest.mark.parametrize("divergence", [bhattacharyya, kl, mmd])
def test_images_are_flattened(divergence: Divergence) -> None:
    x, y = exact(0, *normal(0, 4)), exact(1, *normal(1, 4))
    assert divergence(x.reshape(-1, 2, 2), y.reshape(-1, 2, 2)) == divergence(x, y)


@pytest.mark.parametrize("d", [1, 2])
@pytest.mark.parametrize(("shift", "spread"), [(2.0, 1.0), (0.0, 3.0), (1.0, 2.0)])
def test_squared_mmd_is_on_average_that_of_the_normals(d: int, shift: float, spread: float) -> None:
    """N(0, I) and N(δ, σ² I), kernel exp(-r² / 2h²). The difference of two draws of variances a² and b² is normal.

    So E k = (h² / (h² + a² + b²))^(d/2) exp(-|δ|² / 2(h² + a² + b²)), and MMD² = E k(x, x') + E k(y, y') - 2 E k(x, y).
    The mean of 20 unbiased estimates is within 4 of its standard errors.
    """
    h = 1.5

    def kernel(variance: float, squared: float) -> float:
        return float((h**2 / (h**2 + variance)) ** (d / 2) * np.exp(-squared / (2 * (h**2 + variance))))

    expected = kernel(2, 0) + kernel(2 * spread**2, 0) - 2 * kernel(1 + spread**2, d * shift**2)
    rng = np.random.default_rng(0)
    found = [
        mmd(rng.standard_normal((300, d)), shift + spread * rng.standard_normal((300, d)), h) ** 2 for _ in range(20)
    ]
    error = np.std(found, ddof=1) / np.sqrt(len(found))
    assert error < expected / 20
    assert abs(np.mean(found) - expected) < 4 * error


@given(seed=SEEDS, n=st.integers(2, 6), m=st.integers(2, 6))
def test_mmd_is_its_definition(seed: int, n: int, m: int) -> None:
    rng = np.random.default_rng(seed)
    x, y = rng.standard_normal((n, 2)), 3 + rng.standard_normal((m, 2))

    def k(a: Array, b: Array) -> float:
        return float(np.exp(-((a - b) @ (a - b)) / (2 * 0.8**2)))

    within_x = sum(k(x[i], x[j]) for i in range(n) for j in range(n) if i != j) / (n * (n - 1))
    within_y = sum(k(y[i], y[j]) for i in range(m) for j in range(m) if i != j) / (m * (m - 1))
    across = sum(k(a, b) for a in x for b in y) / (n * m)
    squared = within_x + within_y - 2 * across
    assert mmd(x, y, 0.8) == pytest.approx(np.sqrt(max(squared, 0)), abs=1e-8)


def test_mmd_of_samples_of_one_distribution_is_nearly_0() -> None:
    """An unbiased estimate of 0 is negative about half of the time, which is reported as 0, and small otherwise."""
    rng = np.random.default_rng(0)
    same = [mmd(rng.standard_normal((200, 2)), rng.standard_normal((200, 2))) for _ in range(20)]
    other = mmd(rng.standard_normal((200, 2)), 1 + rng.standard_normal((200, 2)))
    assert 4 <= same.count(0.0) <= 16
    assert max(same) < other / 3


def test_the_bandwidth_is_the_median_distance_unless_given() -> None:
    x, y = exact(0, *normal(0, 3)), exact(1, *normal(1, 3))
    assert mmd(x, y) == mmd(x, y, float(np.median(pdist(np.vstack([x, y])))))
    assert mmd(7 * x, 7 * y) == pytest.approx(mmd(x, y), rel=1e-9)


PLANE = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [2.0, 3.0]])


@pytest.mark.parametrize("divergence", [bhattacharyya, kl])
@pytest.mark.parametrize(
    "degenerate",
    [PLANE[:2], PLANE[:1], np.ones((4, 2)), np.arange(8.0).reshape(4, 2)],
    ids=["two samples", "one sample", "all equal", "on a line"],
)
def test_a_singular_covariance_is_refused_and_its_owner_named(divergence: Divergence, degenerate: Array) -> None:
    n = len(degenerate)
    with pytest.raises(ValueError, match=f"the covariance of x is singular: {n} samples do not fill 2 features"):
        divergence(degenerate, PLANE)
    with pytest.raises(ValueError, match=f"the covariance of y is singular: {n} samples do not fill 2 features"):
        divergence(PLANE, degenerate)


@pytest.mark.parametrize("divergence", [bhattacharyya, kl, mmd])
def test_samples_with_unequal_features_are_refused(divergence: Divergence) -> None:
    with pytest.raises(ValueError, match="samples must have equal features, got 2 and 3"):
        divergence(PLANE, np.eye(3))


@pytest.mark.parametrize("divergence", [bhattacharyya, kl, mmd])
def test_samples_are_checked_as_data_are(divergence: Divergence) -> None:
    with pytest.raises(ValueError, match="NaN or infinity in 1 of 4 samples"):
        divergence(PLANE, np.where(PLANE == 3, np.nan, PLANE))


def test_mmd_of_a_single_sample_is_refused() -> None:
    with pytest.raises(ValueError, match="two samples on each side at least are wanted, got 1 and 4"):
        mmd(PLANE[:1], PLANE)


@pytest.mark.parametrize("bandwidth", [0.0, -1.0, np.nan])
def test_a_bandwidth_that_is_not_positive_is_refused(bandwidth: float) -> None:
    with pytest.raises(ValueError, match="bandwidth must be positive, got"):
        mmd(PLANE, PLANE, bandwidth)


def test_mmd_of_samples_that_are_all_equal_needs_a_bandwidth() -> None:
    with pytest.raises(ValueError, match=r"bandwidth must be positive, got 0.0; are all samples equal\?"):
        mmd(np.ones((3, 2)), np.ones((3, 2)))
    assert mmd(np.ones((3, 2)), np.ones((3, 2)), 1.0) == 0
