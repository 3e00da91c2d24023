import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import subspace_angles

from pacfl.subspace import RankWarning, signature
from pacfl.subspace.noise_scale import RESOLUTION

Array = NDArray[np.float64]
EPS = np.finfo(np.float64).eps
SHAPES = {"tall": (60, 12), "wide": (12, 60), "square": (20, 20)}


def samples(n: int, features: int, seed: int = 0) -> Array:
    """Data whose singular values are apart, so that singular vectors are well determined."""
    return np.random.default_rng(seed).standard_normal((n, features)) * np.geomspace(4, 1, features)


def with_singular_values(s: ArrayLike, n: int, features: int, seed: int = 0) -> tuple[Array, Array]:
    """Data with these singular values, and their right singular vectors (features, len(s))."""
    rng = np.random.default_rng(seed)
    u, v = (np.linalg.qr(rng.standard_normal((side, len(np.asarray(s)))))[0] for side in (n, features))
    return u * np.asarray(s) @ v.T, v


def leading_by_numpy(x: ArrayLike, rank: int) -> Array:
    return np.linalg.svd(np.asarray(x, dtype=np.float64), full_matrices=False)[2][:rank].T


def differences_up_to_sign(a: Array, b: Array) -> Array:
    """Distance of every column of a from that of b or its negative, whichever is nearer."""
    return np.minimum(np.linalg.norm(a - b, axis=0), np.linalg.norm(a + b, axis=0))


def widest_angle(a: Array, b: Array) -> float:
    return float(np.degrees(subspace_angles(a, b).max()))


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("rank", [1, 3, 12])
def test_signature_is_the_leading_singular_vectors(shape: tuple[int, int], rank: int) -> None:
    x = samples(*shape)
    assert differences_up_to_sign(signature(x, rank), leading_by_numpy(x, rank)).max() < 1e-10


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.int64, np.float16, np.float32, np.bool_])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_every_numeric_type_is_computed_in_float64(dtype: type[np.generic], shape: tuple[int, int]) -> None:
    x = np.random.default_rng(0).integers(0, 2 if dtype is np.bool_ else 256, shape).astype(dtype)
    u = signature(x, 2)
    assert u.dtype == np.float64
    assert differences_up_to_sign(u, leading_by_numpy(x, 2)).max() < 1e-10
    assert u.tobytes() == signature(x.astype(np.float64), 2).tobytes()


@given(n=st.integers(1, 30), features=st.integers(1, 30), rank=st.integers(1, 6), seed=st.integers(0, 2**32))
def test_a_signature_is_orthonormal_and_as_wide_as_the_data_allow(n: int, features: int, rank: int, seed: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RankWarning)
        u = signature(np.random.default_rng(seed).standard_normal((n, features)), rank)
    assert u.shape == (features, min(rank, n, features))
    assert np.abs(u.T @ u - np.eye(u.shape[1])).max() < 1e-13


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_equal_data_give_equal_bytes_however_they_lie_in_memory(shape: tuple[int, int]) -> None:
    x = samples(*shape)
    between_others = np.zeros((shape[0], 2 * shape[1]))
    between_others[:, ::2] = x
    expected = signature(x, 3).tobytes()
    for same in (x.copy(), np.asfortranarray(x), between_others[:, ::2], x.tolist()):
        assert signature(same, 3).tobytes() == expected


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_negated_data_give_equal_bytes(shape: tuple[int, int]) -> None:
    x = samples(*shape)
    assert signature(-x, 3).tobytes() == signature(x, 3).tobytes()


@given(seed=st.integers(0, 2**32), shape=st.sampled_from(list(SHAPES.values())))
def test_order_and_sign_of_samples_do_not_matter(seed: int, shape: tuple[int, int]) -> None:
    x = samples(*shape)
    rng = np.random.default_rng(seed)
    signs = rng.choice([-1.0, 1.0], (len(x), 1))
    other = (signs * x)[rng.permutation(len(x))]
    assert np.abs(signature(other, 3) - signature(x, 3)).max() < 1e-10
    assert np.abs(signature(np.vstack([other, -other]), 3) - signature(x, 3)).max() < 1e-10


@given(seed=st.integers(0, 2**32))
def test_the_largest_entry_of_every_direction_is_positive(seed: int) -> None:
    u = signature(np.random.default_rng(seed).standard_normal((15, 9)), 4)
    assert (u.max(axis=0) == np.abs(u).max(axis=0)).all()


def test_images_are_flattened() -> None:
    x = samples(20, 4 * 5 * 3)
    assert signature(x.reshape(20, 4, 5, 3), 2).tobytes() == signature(x, 2).tobytes()


def test_data_are_not_changed() -> None:
    x = samples(20, 8)
    before = x.copy()
    signature(x, 3)
    signature(x, 1, labels=np.arange(20) % 2)
    assert np.array_equal(x, before)


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_directions_a_billion_times_weaker_than_the_first_are_exact(shape: tuple[int, int]) -> None:
    """Rounding x moves a singular vector by about eps × s₁ / sₖ; the eigenvectors of xᵀx would be lost at √eps."""
    s = np.array([1, 1e-3, 1e-6, 1e-9])
    x, v = with_singular_values(s, *shape)
    assert (differences_up_to_sign(signature(x, 4), v) < 20 * EPS / s).all()


@pytest.mark.parametrize("shape", [(100, 30), (30, 100)], ids=["tall", "wide"])
@pytest.mark.parametrize("weak", [1e-2, 1e-3, 1e-4, 2e-5, 1e-6, 1e-8])
def test_the_span_is_exact_to_the_resolution_of_angles_however_weak_its_last_direction(
    shape: tuple[int, int], weak: float
) -> None:
    spans = (with_singular_values([1, weak, 0.75 * weak, 0.1 * weak], *shape, seed) for seed in range(50))
    assert max(widest_angle(signature(x, 2), v[:, :2]) for x, v in spans) < RESOLUTION


@pytest.mark.parametrize("shape", [(30, 8), (8, 30)], ids=["tall", "wide"])
@pytest.mark.parametrize("factor", [1e-200, 1e-30, 1e30, 1e200])
def test_the_unit_of_the_data_does_not_matter(shape: tuple[int, int], factor: float) -> None:
    x = samples(*shape)
    assert np.abs(signature(factor * x, 2) - signature(x, 2)).max() < 1e-10


@given(seed=st.integers(0, 2**32), rank=st.integers(1, 3), n_classes=st.integers(1, 4))
def test_a_signature_by_class_spans_the_bases_of_the_classes(seed: int, rank: int, n_classes: int) -> None:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((40, 20))
    labels = rng.permutation(np.arange(40) % n_classes)
    u = signature(x, rank, labels)
    bases = np.hstack([leading_by_numpy(x[labels == name], rank) for name in range(n_classes)])
    assert u.shape == bases.shape
    assert np.abs(u.T @ u - np.eye(u.shape[1])).max() < 1e-13
    assert widest_angle(u, bases) < 1e-6


def test_a_signature_by_class_begins_with_the_direction_that_classes_share() -> None:
    """Class 0 spans e₁, e₂ and class 1 spans e₁, e₃: e₁ is in both, so it is the strongest."""
    x = np.zeros((8, 4))
    x[:, 0] = 3
    x[0:4, 1] = [1, -1, 1, -1]
    x[4:8, 2] = [1, -1, 1, -1]
    with pytest.warns(RankWarning, match="asked for 4 directions, the data have 3"):
        u = signature(x, 2, labels=[0] * 4 + [1] * 4)
    assert np.abs(u[:, 0] - [1, 0, 0, 0]).max() < 1e-12
    assert widest_angle(u, np.eye(4)[:, :3]) < 1e-6


@given(seed=st.integers(0, 2**32))
def test_names_of_labels_do_not_matter(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = samples(40, 10, seed)
    labels = rng.permutation(np.arange(40) % 3)
    names = np.array(["zebra", "ant", "mouse"])
    assert np.abs(signature(x, 2, labels) - signature(x, 2, names[labels])).max() < 1e-8
    assert np.abs(signature(x, 2, labels) - signature(x, 2, 7 - 3 * labels)).max() < 1e-8


def test_names_of_labels_do_not_matter_even_if_classes_are_orthogonal() -> None:
    rng = np.random.default_rng(0)
    x = np.zeros((40, 10))
    x[:20, :5] = rng.standard_normal((20, 5))
    x[20:, 5:] = rng.standard_normal((20, 5))
    labels = np.repeat([0, 1], 20)
    assert np.abs(signature(x, 2, labels) - signature(x, 2, 1 - labels)).max() < 1e-8


def test_one_class_is_no_class() -> None:
    x = samples(30, 10)
    assert widest_angle(signature(x, 3, labels=np.zeros(30)), signature(x, 3)) < 1e-6


def test_classes_that_fill_the_space_give_no_more_directions_than_it_has() -> None:
    u = signature(samples(40, 5), 3, labels=np.arange(40) % 4)
    assert u.shape == (5, 5)


def test_fewer_samples_than_directions_give_what_there_is_and_warn() -> None:
    x = samples(2, 10)
    with pytest.warns(RankWarning, match="asked for 5 directions, the data have 2; the signature has 2") as caught:
        u = signature(x, 5)
    assert caught[0].filename == __file__
    assert u.shape == (10, 2)
    assert widest_angle(u, x.T) < 1e-6


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_data_of_lower_rank_give_what_there_is_and_warn(shape: tuple[int, int]) -> None:
    x, v = with_singular_values([5, 1], *shape)
    with pytest.warns(RankWarning, match="asked for 4 directions, the data have 2"):
        u = signature(x, 4)
    assert u.shape == (shape[1], 2)
    assert widest_angle(u, v) < 1e-6


@pytest.mark.parametrize("n", [30, 80], ids=["wide classes", "tall classes"])
@pytest.mark.parametrize("seed", range(3))
def test_classes_within_one_small_subspace_give_that_and_warn(seed: int, n: int) -> None:
    x, v = with_singular_values([1, 0.1, 0.03], n, 20, seed)
    with pytest.warns(RankWarning, match="asked for 6 directions, the data have 3"):
        u = signature(x, 3, labels=np.arange(n) % 2)
    assert u.shape == (20, 3)
    assert widest_angle(u, v) < 1e-6


ONES = np.ones((4, 3))
REFUSALS: dict[str, tuple[ArrayLike, type[Exception], str]] = {
    "nan": ([[1, 2], [np.nan, 1], [3, np.nan]], ValueError, "must be finite, got NaN or infinity in 2 of 3 samples"),
    "infinity": ([[1, 2], [-np.inf, 1]], ValueError, "must be finite, got NaN or infinity in 1 of 2 samples"),
    "all zeros": (np.zeros((4, 3)), ValueError, "must span some direction, got all zeros"),
    "no samples": (np.ones((0, 3)), ValueError, r"at least one sample and one feature, got shape \(0, 3\)"),
    "no features": (np.ones((3, 0)), ValueError, r"at least one sample and one feature, got shape \(3, 0\)"),
    "text": ([["1", "2"], ["3", "4"]], TypeError, "must be numbers, got dtype <U1"),
    "objects": (np.array([[1, None]]), TypeError, "must be numbers, got dtype object"),
    "complex numbers": (ONES * 1j, TypeError, "must be numbers, got dtype complex128"),
    "one sample": ([1.0, 2.0], ValueError, r"must be \(samples, features...\), got shape \(2,\)"),
    "a number": (3.0, ValueError, r"must be \(samples, features...\), got shape \(\)"),
}


@pytest.mark.parametrize(("x", "error", "text"), REFUSALS.values(), ids=REFUSALS)
def test_what_is_no_data_is_refused(x: ArrayLike, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        signature(x, 1)


@pytest.mark.parametrize("rank", [0, -1, 1.5, True, "3", None])
def test_a_rank_that_is_no_positive_integer_is_refused(rank: int) -> None:
    with pytest.raises(ValueError, match=f"rank must be an integer of at least 1, got {rank!r}"):
        signature(ONES, rank)


@pytest.mark.parametrize(("labels", "shape"), [([0, 1, 0], r"\(3,\)"), (np.zeros((4, 1)), r"\(4, 1\)"), (0, r"\(\)")])
def test_labels_that_are_not_one_per_sample_are_refused(labels: ArrayLike, shape: str) -> None:
    with pytest.raises(ValueError, match=f"labels must be one per sample, got shape {shape} for 4 samples"):
        signature(ONES, 1, labels)


def test_a_class_of_blank_samples_is_refused() -> None:
    with pytest.raises(ValueError, match="got all zeros"):
        signature([[1.0, 2.0], [0.0, 0.0]], 1, labels=["a", "b"])
