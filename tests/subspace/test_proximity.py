from importlib import import_module

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import subspace_angles

from pacfl.subspace import MEASURES, Measure, extend, newcomer_rows, proximity

module = import_module("pacfl.subspace.proximity")  # the package has a function of that name
Array = NDArray[np.float64]
SEEDS = st.integers(0, 2**32)
MIXED_RANKS = st.lists(st.integers(1, 4), min_size=1, max_size=6)
FEATURES = 9

# What the module promises in float64, in degrees. Cosines are good to a few eps, and arccos turns an error of eps
# near 1 into √(2 eps) = 1e-6 degrees; from 1 degree on it is eps / sin(1 degree) = 1e-12 degrees.
GOOD = 1e-5
GOOD_FROM_1_TO_89 = 1e-10


def orthonormal(rng: np.random.Generator, features: int, rank: int) -> Array:
    return np.asarray(np.linalg.qr(rng.standard_normal((features, rank)))[0])


def signatures(seed: int, ranks: list[int], features: int = FEATURES) -> list[Array]:
    rng = np.random.default_rng(seed)
    return [orthonormal(rng, features, rank) for rank in ranks]


def near_and_far(seed: int, n: int, features: int, rank: int) -> list[Array]:
    """Signatures whose distances reach from a hundredth of a degree to nearly a right angle."""
    rng = np.random.default_rng(seed)
    first = orthonormal(rng, features, rank)
    noise = np.geomspace(1e-4, 30, n) / np.sqrt(features)
    return [np.linalg.qr(first + e * rng.standard_normal((features, rank)))[0] for e in noise]


def by_scipy(us: list[Array], measure: str) -> Array:
    total = {"smallest": np.min, "sum": np.sum}[measure]
    return np.degrees([[total(subspace_angles(u, v)) for v in us] for u in us])


# All pairs


@given(seed=SEEDS, ranks=MIXED_RANKS, measure=st.sampled_from(["smallest", "sum"]))
def test_proximity_is_made_of_the_angles_of_scipy(seed: int, ranks: list[int], measure: Measure) -> None:
    us = signatures(seed, ranks)
    assert np.abs(proximity(us, measure) - by_scipy(us, measure)).max() < GOOD


def test_angles_between_1_and_89_degrees_have_ten_decimals() -> None:
    us = near_and_far(0, 30, 50, 3)
    expected = by_scipy(us, "smallest")
    between = (expected > 1) & (expected < 89)
    assert between.sum() > 500
    assert np.abs(proximity(us) - expected)[between].max() < GOOD_FROM_1_TO_89


@pytest.mark.parametrize("measure", MEASURES)
@pytest.mark.parametrize("theta", [1e-7, 1e-5, 0.01, 0.3, np.pi / 2 - 1e-7])
def test_two_lines_are_as_far_apart_as_they_were_turned(measure: Measure, theta: float) -> None:
    turn = orthonormal(np.random.default_rng(0), 200, 2)
    lines = [turn @ [[1.0], [0.0]], turn @ [[np.cos(theta)], [np.sin(theta)]]]
    assert proximity(lines, measure)[0, 1] == pytest.approx(np.degrees(theta), abs=GOOD)


@pytest.mark.parametrize("measure", ["smallest", "sum"])
def test_a_subspace_in_another_basis_is_no_angle_away(measure: Measure) -> None:
    (u,) = signatures(0, [3], 3072)
    assert proximity([u, u @ orthonormal(np.random.default_rng(1), 3, 3)], measure)[0, 1] < 3 * GOOD


U = np.eye(4)[:, :2]
V1, V2 = np.array([[np.sqrt(3) / 2, 0, 0.5, 0], [0, 0.5, 0, np.sqrt(3) / 2]])
WORKED: dict[str, tuple[Array, dict[Measure, float]]] = {
    # UᵀV = [[cos 30, 0], [0, cos 60]]: singular values cos 30 and cos 60, which is also the diagonal
    "in order": (np.column_stack([V1, V2]), {"smallest": 30, "sum": 90, "trace": 90, "entrywise": 30}),
    # UᵀV = [[0, cos 30], [cos 60, 0]]: the same singular values and entries, but a diagonal of right angles
    "swapped": (np.column_stack([V2, V1]), {"smallest": 30, "sum": 90, "trace": 180, "entrywise": 30}),
    # UᵀV = [[c, -c], [c, c]] with c = cos 45: a rotation, so the same subspace; every entry is at 45 degrees
    "turned": (
        U @ [[np.sqrt(0.5), -np.sqrt(0.5)], [np.sqrt(0.5), np.sqrt(0.5)]],
        {"smallest": 0, "sum": 0, "trace": 90, "entrywise": 45},
    ),
    # UᵀV = 0
    "orthogonal": (np.eye(4)[:, 2:], {"smallest": 90, "sum": 180, "trace": 180, "entrywise": 90}),
    # One direction against two: UᵀV = [cos 30, 0]ᵀ, one angle and no more
    "a line": (V1[:, None], {"smallest": 30, "sum": 30, "trace": 30, "entrywise": 30}),
}


@pytest.mark.parametrize("measure", MEASURES)
@pytest.mark.parametrize(("v", "degrees"), WORKED.values(), ids=WORKED)
def test_small_cases_worked_by_hand(v: Array, degrees: dict[Measure, float], measure: Measure) -> None:
    assert np.abs(proximity([U, v], measure) - degrees[measure] * (1 - np.eye(2))).max() < GOOD


@given(seed=SEEDS, ranks=MIXED_RANKS, measure=st.sampled_from(MEASURES))
def test_proximity_is_symmetric_to_the_bit_with_a_diagonal_of_zeros(
    seed: int, ranks: list[int], measure: Measure
) -> None:
    angles = proximity(signatures(seed, ranks), measure)
    assert np.array_equal(angles, angles.T)
    assert not np.diagonal(angles).any()


@pytest.mark.parametrize("block_bytes", [1, 4000, 2**25])
def test_proximity_is_symmetric_to_the_bit_for_large_federations(
    block_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BLOCK_BYTES", block_bytes)
    angles = proximity(near_and_far(0, 60, 50, 3), "sum")
    assert np.array_equal(angles, angles.T)
    assert not np.diagonal(angles).any()


@given(seed=SEEDS, ranks=MIXED_RANKS)
def test_angles_lie_between_0_and_90_degrees_and_their_sums_below_as_many_right_angles(
    seed: int, ranks: list[int]
) -> None:
    us = signatures(seed, ranks)
    most = 90.0 * np.minimum.outer(ranks, ranks)
    for measure, limit in {"smallest": 90, "entrywise": 90, "sum": most, "trace": most}.items():
        angles = proximity(us, measure)
        assert angles.min() >= 0
        assert (angles <= limit).all()


@given(seed=SEEDS, ranks=MIXED_RANKS, measure=st.sampled_from(MEASURES))
def test_a_rotation_of_the_space_changes_nothing(seed: int, ranks: list[int], measure: Measure) -> None:
    us = signatures(seed, ranks)
    turn = orthonormal(np.random.default_rng(seed), FEATURES, FEATURES)
    assert np.abs(proximity([turn @ u for u in us], measure) - proximity(us, measure)).max() < GOOD


@given(seed=SEEDS, ranks=MIXED_RANKS, measure=st.sampled_from(["smallest", "sum"]))
def test_the_basis_of_a_subspace_does_not_matter(seed: int, ranks: list[int], measure: Measure) -> None:
    us = signatures(seed, ranks)
    rng = np.random.default_rng(seed)
    others = [u @ orthonormal(rng, u.shape[1], u.shape[1]) for u in us]
    assert np.abs(proximity(others, measure) - proximity(us, measure)).max() < 4 * GOOD


@pytest.mark.parametrize("measure", ["entrywise", "trace"])
def test_entrywise_and_trace_take_one_subspace_in_two_bases_for_two(measure: Measure) -> None:
    (u,) = signatures(0, [2], 50)
    for degrees in (10, 30, 45):
        c, s = np.cos(np.radians(degrees)), np.sin(np.radians(degrees))
        assert proximity([u, u @ [[c, -s], [s, c]]], measure)[0, 1] > 9


@given(seed=SEEDS, ranks=MIXED_RANKS, measure=st.sampled_from(MEASURES))
def test_signs_of_singular_vectors_are_ignored(seed: int, ranks: list[int], measure: Measure) -> None:
    us = signatures(seed, ranks)
    rng = np.random.default_rng(seed)
    flipped = [u * rng.choice([-1.0, 1.0], u.shape[1]) for u in us]
    assert np.abs(proximity(flipped, measure) - proximity(us, measure)).max() < GOOD


@given(seed=SEEDS, ranks=MIXED_RANKS, measure=st.sampled_from(MEASURES))
def test_proximity_follows_a_permutation_of_clients(seed: int, ranks: list[int], measure: Measure) -> None:
    us = signatures(seed, ranks)
    order = np.random.default_rng(seed).permutation(len(us))
    expected = proximity(us, measure)[np.ix_(order, order)]
    assert np.abs(proximity([us[i] for i in order], measure) - expected).max() < GOOD


def test_the_smallest_angle_is_at_most_the_sum_and_entrywise() -> None:
    us = signatures(0, [3] * 20)
    smallest, total, entrywise = (proximity(us, measure) for measure in ("smallest", "sum", "entrywise"))
    assert (smallest <= total + GOOD).all()
    assert (smallest <= entrywise + GOOD).all()


@pytest.mark.parametrize("measure", MEASURES)
@pytest.mark.parametrize("block_bytes", [1, 1000])
def test_blocks_do_not_change_the_result(measure: Measure, block_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    us = signatures(0, [1, 2, 3, 3, 2, 1, 3, 3, 3])
    whole, extended = proximity(us, measure), extend(proximity(us[:4], measure), us[:4], us[4:], measure)
    monkeypatch.setattr(module, "BLOCK_BYTES", block_bytes)
    steps: list[int] = []
    assert np.abs(proximity(us, measure, on_rows=steps.append) - whole).max() < GOOD_FROM_1_TO_89
    assert sum(steps) == len(us)
    assert len(steps) > 1
    assert np.abs(extend(whole[:4, :4], us[:4], us[4:], measure) - extended).max() < GOOD_FROM_1_TO_89


def test_float32_is_good_to_two_thousandths_of_a_degree(monkeypatch: pytest.MonkeyPatch) -> None:
    us = near_and_far(0, 60, 200, 3)
    exact = {measure: proximity(us, measure) for measure in MEASURES}
    monkeypatch.setattr(module, "EXACT_MULTIPLICATIONS", 0)
    for measure in ("smallest", "entrywise"):
        error = np.abs(proximity(us, measure) - exact[measure])
        between = (exact[measure] > 1) & (exact[measure] < 89)
        assert 0.5 < between.mean() < 1
        assert 0 < error[between].max() < 0.002
        assert error.max() < 0.1
    for measure in ("sum", "trace"):  # three angles, each within 0.1 degrees wherever it lies
        assert 0 < np.abs(proximity(us, measure) - exact[measure]).max() < 3 * 0.1


def test_signatures_that_travelled_as_float32_show_no_angle_of_their_own() -> None:
    (u,) = signatures(0, [3], 3072)
    travelled = u.astype(np.float32)
    assert np.abs(proximity([travelled, travelled, travelled])).max() < GOOD


def test_one_client_is_at_no_angle_to_itself() -> None:
    assert np.array_equal(proximity([U]), [[0.0]])


def test_signatures_of_one_shape_may_come_as_one_array() -> None:
    us = signatures(0, [2, 2, 2])
    assert proximity(np.stack(us)).tobytes() == proximity(us).tobytes()


# Newcomers' rows only


@given(seed=SEEDS, old=MIXED_RANKS, new=MIXED_RANKS, measure=st.sampled_from(MEASURES))
def test_extension_equals_recomputation(seed: int, old: list[int], new: list[int], measure: Measure) -> None:
    us = signatures(seed, old + new)
    known = proximity(us[: len(old)], measure)
    extended = extend(known, us[: len(old)], us[len(old) :], measure)
    assert np.abs(extended - proximity(us, measure)).max() < GOOD
    assert np.array_equal(extended, extended.T)
    assert not np.diagonal(extended).any()


def test_extension_preserves_the_known_part_to_the_bit() -> None:
    us = signatures(0, [2, 2, 2, 2])
    known = np.array([[0.0, 1.25], [1.25, 0.0]])  # not their angle: it would show if it were computed again
    assert np.array_equal(extend(known, us[:2], us[2:])[:2, :2], known)


def test_extension_in_steps_equals_extension_at_once() -> None:
    us = signatures(0, [3, 1, 2, 3, 2, 1])
    known = proximity(us[:2])
    for i in range(2, 6):
        known = extend(known, us[:i], us[i : i + 1])
    assert np.abs(known - proximity(us)).max() < GOOD


# Refusals


NOT_ORTHONORMAL = np.array([[1.0, 0.5], [0.0, 0.5], [0.0, 0.0], [0.0, 0.0]])
REFUSALS: dict[str, tuple[list[ArrayLike], str]] = {
    "none": ([], "got no signatures; give at least one"),
    "unequal rows": ([U, np.eye(3)[:, :2]], r"must have equal rows, got \[3, 4\]"),
    "not orthogonal": ([U, NOT_ORTHONORMAL], "signature 1 is not an orthonormal basis"),
    "not of length 1": ([U, U, U * 1.1], r"signature 2 is not an orthonormal basis \(its columns are off by 0.21\)"),
    "nan": ([U * np.nan, U], "signature 0 is not an orthonormal basis"),
    "all zeros": ([U, U * 0], "signature 1 is not an orthonormal basis"),
    "a column of zeros": ([U, U * [1, 0]], "signature 1 is not an orthonormal basis"),
    "a vector": ([U, U[:, 0]], r"signature 1 must be \(features, directions\), got shape \(4,\)"),
    "no directions": ([U[:, :0]], r"signature 0 must be \(features, directions\), got shape \(4, 0\)"),
    "samples first": ([U.T], r"signature 0 must be \(features, directions\), got shape \(2, 4\)"),
}


@pytest.mark.parametrize(("us", "text"), REFUSALS.values(), ids=REFUSALS)
def test_what_is_no_signature_is_refused(us: list[ArrayLike], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        proximity(us)
    with pytest.raises(ValueError, match=text):
        extend([[0.0]], [U], us)
    if us:
        with pytest.raises(ValueError, match=text):
            extend(np.zeros((len(us), len(us))), us, [U])


def test_the_first_clients_are_newcomers_too() -> None:
    us = [U, np.eye(4)[:, :1]]
    assert np.array_equal(extend(np.zeros((0, 0)), [], us), proximity(us))


def test_old_clients_in_several_blocks_are_as_in_one(monkeypatch: pytest.MonkeyPatch) -> None:
    us = signatures(0, [1, 2, 3, 1, 2, 3, 1, 2])
    whole = newcomer_rows(us[:6], us[6:])
    monkeypatch.setattr(module, "OLD_AT_ONCE", 4)
    assert np.allclose(newcomer_rows(us[:6], us[6:]), whole, rtol=0, atol=GOOD)
    broken = [*us[:5], 2 * us[5]]
    with pytest.raises(ValueError, match="signature 5 is not an orthonormal basis"):
        newcomer_rows(broken, us[6:])


def test_the_error_for_an_unknown_measure_names_the_known_ones() -> None:
    with pytest.raises(ValueError, match="measure must be one of smallest, sum, trace, entrywise, got 'largest'"):
        proximity([U, U], "largest")  # type: ignore[arg-type]


def test_known_angles_of_other_clients_are_refused() -> None:
    with pytest.raises(ValueError, match=r"known must be \(2, 2\) for 2 old signatures, got \(3, 3\)"):
        extend(np.zeros((3, 3)), [U, U], [U])


def test_newcomers_with_other_features_are_refused() -> None:
    with pytest.raises(ValueError, match="old signatures have 4 features and new ones 3"):
        extend([[0.0]], [U], [np.eye(3)[:, :1]])


@given(seed=st.integers(0, 2**32), rank=st.integers(1, 4), more=st.integers(1, 4))
def test_a_wider_signature_is_no_further_from_any_other(seed: int, rank: int, more: int) -> None:
    """So signatures of unequal rank are not comparable: one with more directions is nearer to all others."""
    rng = np.random.default_rng(seed)
    wide, other = (np.linalg.qr(rng.standard_normal((12, k)))[0] for k in (rank + more, rank))
    for measure in ("smallest", "sum"):
        to_wide, to_narrow = (proximity([u, other], measure)[0, 1] for u in (wide, wide[:, :rank]))
        assert to_wide <= to_narrow + 1e-5
