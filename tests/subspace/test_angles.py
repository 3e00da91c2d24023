import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import subspace_angles

from pacfl.subspace import principal_angles

Array = NDArray[np.float64]
SEEDS = st.integers(0, 2**32)
RANKS = st.integers(1, 5)
THETAS = [0.0, 1e-12, 1e-7, 1e-3, 0.5, np.pi / 4, 1.2, np.pi / 2 - 1e-7, np.pi / 2]


def bases(seed: int, features: int, *ranks: int) -> list[Array]:
    rng = np.random.default_rng(seed)
    return [rng.standard_normal((features, rank)) for rank in ranks]


def rotation(seed: int, size: int) -> Array:
    return np.asarray(np.linalg.qr(np.random.default_rng(seed).standard_normal((size, size)))[0])


@given(seed=SEEDS, features=st.integers(5, 40), p=RANKS, q=RANKS)
def test_principal_angles_are_those_of_scipy(seed: int, features: int, p: int, q: int) -> None:
    a, b = bases(seed, features, p, q)
    assert np.abs(principal_angles(a, b) - subspace_angles(a, b)[::-1]).max() < 1e-12


@given(seed=SEEDS, p=RANKS, q=RANKS, noise=st.sampled_from([1e-2, 1e-5, 1e-8]))
def test_near_subspaces_of_different_rank_have_the_angles_of_scipy(seed: int, p: int, q: int, noise: float) -> None:
    a, b, error = bases(seed, 20, p, q, 5)
    shared = min(p, q)
    b[:, :shared] = a[:, :shared] + noise * error[:, :shared]
    assert np.abs(principal_angles(a, b) - subspace_angles(a, b)[::-1]).max() < 1e-12


@pytest.mark.parametrize("theta", THETAS)
def test_a_plane_turned_about_one_of_its_lines_shows_the_turn(theta: float) -> None:
    """span(e₁, e₂) and span(e₁, cos θ e₂ + sin θ e₃) share e₁ and are θ apart otherwise."""
    a = np.eye(4)[:, :2]
    b = np.array([[1, 0], [0, np.cos(theta)], [0, np.sin(theta)], [0, 0]])
    turn = rotation(0, 4)
    for left, right in ((a, b), (b, a), (turn @ a, turn @ b)):
        assert np.abs(principal_angles(left, right) - [0, theta]).max() < 1e-15 + 4 * np.finfo(float).eps


def test_a_subspace_has_no_angle_with_itself_in_any_basis() -> None:
    (a,) = bases(0, 30, 4)
    assert principal_angles(a, a @ (rotation(1, 4) * [1, 2, 3, 4])).max() < 1e-14


def test_a_line_within_a_plane_has_no_angle_with_it() -> None:
    (plane,) = bases(0, 10, 2)
    angles = principal_angles(plane, plane @ [[2.0], [-3.0]])
    assert angles.shape == (1,)
    assert angles[0] < 1e-14


def test_orthogonal_subspaces_are_at_right_angles() -> None:
    q = rotation(0, 8)
    assert np.abs(principal_angles(q[:, :3], q[:, 3:7]) - np.pi / 2).max() < 1e-14


@given(seed=SEEDS, p=RANKS, q=RANKS)
def test_angles_are_ascending_between_0_and_a_right_angle_and_as_many_as_the_smaller_rank(
    seed: int, p: int, q: int
) -> None:
    angles = principal_angles(*bases(seed, 7, p, q))
    assert angles.shape == (min(p, q),)
    assert (np.diff(angles) >= 0).all()
    assert angles.min() >= 0
    assert angles.max() <= np.pi / 2


@given(seed=SEEDS, p=RANKS, q=RANKS)
def test_neither_order_nor_rotation_nor_basis_matters(seed: int, p: int, q: int) -> None:
    a, b = bases(seed, 9, p, q)
    expected = principal_angles(a, b)
    turn, mixing = rotation(seed, 9), rotation(seed + 1, p) * np.linspace(1, 3, p)
    assert np.abs(principal_angles(b, a) - expected).max() < 1e-12
    assert np.abs(principal_angles(turn @ a, turn @ b) - expected).max() < 1e-12
    assert np.abs(principal_angles(a @ mixing, b) - expected).max() < 1e-12


E2 = np.eye(2)
REFUSALS: dict[str, tuple[ArrayLike, ArrayLike, str]] = {
    "a vector": ([1.0, 0.0], E2, r"a must be \(features, directions\), got shape \(2,\)"),
    "no directions": (E2, np.ones((2, 0)), r"b must be \(features, directions\), got shape \(2, 0\)"),
    "nan": (E2, [[1.0], [np.nan]], "b must be finite, got NaN or infinity"),
    "other features": (np.eye(3), E2, "a has 3 features and b 2"),
    "dependent columns": ([[1.0, 2.0], [1.0, 2.0]], E2, "a must have independent columns, got 2"),
    "a zero column": ([[1.0, 0.0], [1.0, 0.0]], E2, "a must have independent columns, got 2"),
    "more columns than features": (np.ones((2, 3)), E2, "a must have independent columns, got 3"),
}


@pytest.mark.parametrize(("a", "b", "text"), REFUSALS.values(), ids=REFUSALS)
def test_what_is_no_basis_is_refused(a: ArrayLike, b: ArrayLike, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        principal_angles(a, b)
