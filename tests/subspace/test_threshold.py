from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import ArrayLike, NDArray
from scipy.spatial.distance import pdist, squareform
from scipy.stats import binom

from pacfl.subspace import (
    LINKAGES,
    Linkage,
    adjust,
    adjusted_rand_index,
    agglomerate,
    choose_threshold,
    floors,
    null,
    proximity,
    self_angles,
    signature,
    stability,
)
from pacfl.subspace.threshold import ERROR_RATE
from pacfl.subspace.units import RESOLUTION

Array = NDArray[np.float64]
Compared = tuple[Array, tuple[Array, ...]]  # proximity, and everybody's self-angles
RANK = 3
FEATURES = 60


@cache
def federation(seed: int, *sizes: int, samples: tuple[int, ...] = (60,)) -> Compared:
    """Clients of len(sizes) groups, each of low rank in a space of its own, with noise; they have `samples` in turn."""
    rng = np.random.default_rng(seed)
    clients = []
    for n_clients in sizes:
        space = np.linalg.qr(rng.standard_normal((FEATURES, 5)))[0] * [6, 4, 3, 2, 1.5]
        for i in range(n_clients):
            n = samples[i % len(samples)]
            clients.append(rng.standard_normal((n, 5)) @ space.T + 0.5 * rng.standard_normal((n, FEATURES)))
    angles = proximity([signature(x, RANK) for x in clients])
    return angles, tuple(self_angles(x, RANK)["smallest"] for x in clients)


def groups(*sizes: int) -> NDArray[np.intp]:
    return np.repeat(np.arange(len(sizes)), sizes)


def of_the_null(seed: int, n: int, dimensions: int) -> Compared:
    """Clients that are all alike, by the model itself: a common point and normal noise, as much as each floor says."""
    rng = np.random.default_rng(seed)
    floor = rng.uniform(1, 3, n)
    points = rng.standard_normal((n, dimensions)) * (floor / np.sqrt(2 * dimensions))[:, None]
    own = floor[:, None] * np.sqrt(rng.chisquare(dimensions, (n, 32)) / dimensions)
    return squareform(pdist(points)), tuple(own)


@pytest.fixture
def few_simulations(monkeypatch: pytest.MonkeyPatch) -> None:
    """For laws that hold whatever the limits are, or that need many choices."""
    monkeypatch.setattr(null, "SIMULATIONS", 50)


@st.composite
def compared(draw: st.DrawFn) -> tuple[Array, list[Array] | None]:
    """Any small federation: angles with and without ties, self-angles of all, some or none."""
    n = draw(st.integers(1, 8))
    pairs = n * (n - 1) // 2
    value = draw(st.sampled_from([st.integers(0, 5).map(float), st.floats(0.01, 90)]))
    angles = np.zeros((n, n))
    angles[np.triu_indices(n, 1)] = draw(st.lists(value, min_size=pairs, max_size=pairs))
    one = st.lists(st.floats(0.5, 2), max_size=4).map(np.asarray)
    own = draw(st.none() | st.lists(one, min_size=n, max_size=n) | st.just([np.array([0.8, 1.0, 1.2])] * n))
    return angles + angles.T, own


# What is found


@pytest.mark.parametrize("seed", range(3))
def test_clients_that_are_alike_stay_together(seed: int) -> None:
    choice = choose_threshold(*federation(seed, 14))
    assert not choice.labels.any()
    assert choice.evidence.finding == "alike"
    assert choice.evidence.reasons.startswith("One cluster")


@pytest.mark.parametrize("sizes", [(7, 7), (12, 2), (5, 5, 5), (8, 4, 2)])
@pytest.mark.parametrize("seed", range(2))
def test_groups_that_differ_are_found(sizes: tuple[int, ...], seed: int) -> None:
    choice = choose_threshold(*federation(seed, *sizes))
    assert adjusted_rand_index(choice.labels, groups(*sizes)) == 1
    assert choice.evidence.finding == "distinct"
    assert choice.evidence.reasons.startswith(f"{len(sizes)} clusters")


@pytest.mark.usefixtures("few_simulations")
@pytest.mark.parametrize("linkage", LINKAGES)
def test_every_linkage_finds_them(linkage: Linkage) -> None:
    for sizes in ((14,), (5, 5, 5)):
        choice = choose_threshold(*federation(0, *sizes), linkage)
        assert adjusted_rand_index(choice.labels, groups(*sizes)) == 1


@pytest.mark.parametrize("sizes", [(14,), (7, 7)])
def test_clients_with_few_samples_are_not_taken_for_others(sizes: tuple[int, ...]) -> None:
    choice = choose_threshold(*federation(0, *sizes, samples=(30, 60, 240)))
    assert adjusted_rand_index(choice.labels, groups(*sizes)) == 1


@pytest.mark.usefixtures("few_simulations")
@pytest.mark.parametrize("sizes", [(14,), (7, 7), (5, 5, 5)])
@pytest.mark.parametrize("linkage", LINKAGES)
def test_neighbours_stand_in_for_self_angles(sizes: tuple[int, ...], linkage: Linkage) -> None:
    choice = choose_threshold(federation(0, *sizes)[0], linkage=linkage)
    assert adjusted_rand_index(choice.labels, groups(*sizes)) == 1
    assert choice.evidence.floors_from == "neighbours"
    assert "nearest neighbours" in choice.evidence.reasons


def test_neighbours_stand_in_for_those_who_sent_nothing() -> None:
    angles, own = federation(0, 7, 7)
    some = [a if i % 3 else np.empty(0) for i, a in enumerate(own)]
    choice = choose_threshold(angles, some)
    assert adjusted_rand_index(choice.labels, groups(7, 7)) == 1
    assert choice.evidence.floors_from == "clients"
    assert "nearest neighbours" in choice.evidence.reasons
    assert "nearest neighbours" not in choose_threshold(angles, own).evidence.reasons


def test_one_client_is_one_cluster() -> None:
    angles, own = federation(0, 1)
    for sent in (own, None):
        choice = choose_threshold(angles, sent)
        assert choice.labels.tolist() == [0]
        assert choice.evidence.finding == "alike"


@pytest.mark.parametrize("seed", range(3))
def test_two_clients_are_told_apart_only_if_they_differ(seed: int) -> None:
    assert choose_threshold(*federation(seed, 2)).labels.tolist() == [0, 0]
    assert choose_threshold(*federation(seed, 1, 1)).labels.tolist() == [0, 1]


def test_two_clients_without_self_angles_are_each_others_neighbours_and_so_alike() -> None:
    assert choose_threshold([[0, 70], [70, 0]]).labels.tolist() == [0, 0]


def test_clients_with_the_same_signature_are_alike() -> None:
    for own in (None, [np.zeros(32)] * 5, [np.ones(32)] * 5):
        assert choose_threshold(np.zeros((5, 5)), own).labels.tolist() == [0] * 5


def test_a_federation_larger_than_the_panel_is_judged_by_a_panel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(null, "PANEL", 10)
    monkeypatch.setattr(stability, "PANEL", 10)
    for sizes in ((14,), (7, 7)):
        assert adjusted_rand_index(choose_threshold(*federation(0, *sizes)).labels, groups(*sizes)) == 1


def test_lone_clients_are_found_in_a_federation_far_larger_than_the_panel(monkeypatch: pytest.MonkeyPatch) -> None:
    """A panel of 10 out of 400 hardly ever meets one of eight lone clients; it must not be confused by that."""
    monkeypatch.setattr(null, "PANEL", 10)
    monkeypatch.setattr(stability, "PANEL", 10)
    rng = np.random.default_rng(0)
    points = rng.standard_normal((400, 10)) / np.sqrt(20)
    points[:8, :8] += 20 * np.eye(8)
    own = np.sqrt(rng.chisquare(10, (400, 32)) / 10)
    choice = choose_threshold(squareform(pdist(points)), list(own))
    assert adjusted_rand_index(choice.labels, groups(*[1] * 8, 392)) == 1
    assert 0 <= choice.evidence.reproducibility <= 1


def test_differences_without_a_gap_are_called_gradual() -> None:
    """40 clients anywhere in a square of three noise floors a side: no two groups with nothing between them."""
    rng = np.random.default_rng(0)
    points = rng.standard_normal((40, 10)) / np.sqrt(20)
    points[:, :2] += rng.uniform(0, 3, (40, 2))
    own = np.sqrt(rng.chisquare(10, (40, 32)) / 10)
    evidence = choose_threshold(squareform(pdist(points)), list(own)).evidence
    assert evidence.finding == "gradual"
    assert "gradually" in evidence.reasons


# Laws


def assert_consistent(angles: Array, own: list[Array] | None, linkage: Linkage) -> None:
    """The threshold gives the labels again, and the evidence is about them."""
    choice = choose_threshold(angles, own, linkage)
    adjusted = adjust(angles, floors(angles, own))
    assert np.array_equal(choice.labels, agglomerate(adjusted, choice.threshold, linkage))
    evidence = choice.evidence
    n_clusters = int(choice.labels.max()) + 1
    considered = {cut.n_clusters: cut for cut in evidence.cuts}
    assert n_clusters in considered
    assert evidence.reproducibility == considered[n_clusters].reproducibility
    assert (evidence.finding == "alike") == (n_clusters == 1)
    assert list(considered) == sorted(considered)
    assert list(evidence.heights) == sorted(evidence.heights, reverse=True)
    assert list(evidence.null_limits) == sorted(evidence.null_limits, reverse=True)
    assert np.isfinite([choice.threshold, evidence.floor, evidence.null_height, *evidence.null_limits]).all()


@settings(max_examples=60)
@given(given_=compared(), linkage=st.sampled_from(LINKAGES))
def test_threshold_labels_and_evidence_agree(given_: tuple[Array, list[Array] | None], linkage: Linkage) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(null, "SIMULATIONS", 30)
        patch.setattr(stability, "RESAMPLINGS", 10)
        assert_consistent(*given_, linkage)


def test_the_threshold_gives_the_labels_when_pairs_are_equally_far() -> None:
    """Several pairs at 1 and 2 degrees: which of them is joined first must not hang on rounding."""
    angles = squareform([2.0, 5.0, 2.0, 1.0, 2.0, 1.0, 0.0, 1.0, 3.0, 1.0])
    assert_consistent(angles, [np.array([1.6, 2.0, 2.4])] * 5, "weighted")


def test_the_evidence_is_about_the_labels_when_two_merges_are_equally_high() -> None:
    """Complete linkage joins the last three groups at 5 degrees each: no threshold leaves two of them."""
    angles = squareform([1.0, 5.0, 3.0, 5.0, 2.0, 1.0, 5.0, 1.0, 1.0, 5.0])
    assert_consistent(angles, [np.array([0.8, 1.0, 1.2])] * 5, "complete")


def test_the_evidence_of_two_groups_can_be_checked() -> None:
    angles, own = federation(0, 7, 7)
    choice = choose_threshold(angles, own)
    evidence, floor = choice.evidence, floors(angles, own)
    adjusted = adjust(angles, floor)
    assert evidence.floor == np.median(floor)
    across = adjusted[:7, 7:].mean() / evidence.floor  # average linkage: the last merge is the mean of all pairs
    assert evidence.heights[0] == pytest.approx(across)
    assert evidence.cuts[0].height == pytest.approx(across)
    assert evidence.separation == pytest.approx(evidence.heights[0] / evidence.heights[1])
    assert evidence.heights[1] < choice.threshold / evidence.floor < evidence.heights[0]
    assert evidence.null_height < evidence.null_limits[0]
    assert evidence.error_rate == ERROR_RATE


@pytest.mark.usefixtures("few_simulations")
@pytest.mark.parametrize("sizes", [(14,), (8, 4, 2)])
@pytest.mark.parametrize("with_self_angles", [True, False])
@pytest.mark.parametrize("factor", [2.0, np.pi / 180])
def test_the_unit_of_angle_does_not_matter(sizes: tuple[int, ...], with_self_angles: bool, factor: float) -> None:
    angles, own = federation(0, *sizes)
    there = choose_threshold(angles, own if with_self_angles else None)
    here = choose_threshold(factor * angles, [factor * a for a in own] if with_self_angles else None)
    assert np.array_equal(here.labels, there.labels)
    assert here.threshold == pytest.approx(factor * there.threshold, rel=1e-9)


@pytest.mark.usefixtures("few_simulations")
@pytest.mark.parametrize("sizes", [(14,), (8, 4, 2)])
@pytest.mark.parametrize("linkage", LINKAGES)
def test_labels_follow_a_permutation_of_clients(sizes: tuple[int, ...], linkage: Linkage) -> None:
    angles, own = federation(0, *sizes)
    order = np.random.default_rng(0).permutation(len(angles))
    shuffled = choose_threshold(angles[np.ix_(order, order)], [own[i] for i in order], linkage)
    assert adjusted_rand_index(shuffled.labels, choose_threshold(angles, own, linkage).labels[order]) == 1


def test_equal_seeds_give_equal_choices_and_others_nearly_so() -> None:
    compared_ = federation(0, 7, 7)
    first, second, other = (choose_threshold(*compared_, seed=seed) for seed in (0, 0, 1))
    assert first.threshold == second.threshold
    assert first.evidence == second.evidence
    assert first.evidence.null_limits != other.evidence.null_limits
    assert first.evidence.null_limits[0] == pytest.approx(other.evidence.null_limits[0], rel=0.05)


def test_nothing_that_is_given_is_changed() -> None:
    angles, own = federation(0, 7, 7)
    before = angles.copy(), [a.copy() for a in own]
    choose_threshold(angles, own)
    assert np.array_equal(angles, before[0])
    assert all(np.array_equal(a, b) for a, b in zip(own, before[1], strict=True))


# The error rate


@pytest.mark.usefixtures("few_simulations")
@pytest.mark.parametrize(("linkage", "dimensions"), [("average", 5), ("average", 20), ("complete", 5)])
def test_clients_that_are_all_alike_are_split_no_more_often_than_the_error_rate(
    linkage: Linkage, dimensions: int
) -> None:
    """60 federations of the model itself: if the rate is kept, more splits than this have a chance of 1 in 1,000."""
    drawn = [of_the_null(seed, 12, dimensions) for seed in range(60)]
    splits = sum(choose_threshold(*one, linkage, error_rate=0.05).labels.any() for one in drawn)
    assert splits <= binom.isf(0.001, 60, 0.05)


@pytest.mark.usefixtures("few_simulations")
def test_clients_that_are_all_alike_are_split_if_errors_are_allowed() -> None:
    """The bound above is no empty one: with an error rate of one half, at least 10 of 60 are split."""
    splits = sum(choose_threshold(*of_the_null(seed, 12, 5), error_rate=0.5).labels.any() for seed in range(60))
    assert 10 <= splits <= binom.isf(0.001, 60, 0.5)


def test_fewer_errors_are_bought_with_higher_limits() -> None:
    compared_ = federation(0, 7, 7)
    limits = [choose_threshold(*compared_, error_rate=rate).evidence.null_limits for rate in (0.2, 0.05, 0.001)]
    assert (np.diff(limits, axis=0) > 0).all()


# Floors


def test_floors_are_root_mean_squares_or_nearest_neighbours() -> None:
    """√((3² + 4² + 0²) / 3) = 5 / √3; client 1 sent nothing, its nearest is at 2; client 2 has no measurable noise."""
    angles = [[0, 7, 9], [7, 0, 2], [9, 2, 0]]
    assert floors(angles, [[3, 4, 0], [], [0, 0]]) == pytest.approx([5 / np.sqrt(3), 2, RESOLUTION])
    assert floors(angles) == pytest.approx([7, 2, 2])


def test_adjusting_divides_by_the_noise_of_both_and_multiplies_by_the_typical() -> None:
    """Floors 1, 7, 5: the typical one is 5. The noise of 0 and 1 is √((1 + 49) / 2) = 5, so their angle stays as it is.

    Of 1 and 2 it is √((49 + 25) / 2) = √37, of 0 and 2 √((1 + 25) / 2) = √13.
    """
    angles = np.array([[0, 10, 13], [10, 0, 37], [13, 37, 0]])
    expected = np.array([[0, 10, 5 * 13**0.5], [10, 0, 5 * 37**0.5], [5 * 13**0.5, 5 * 37**0.5, 0]])
    assert np.abs(adjust(angles, np.array([1.0, 7.0, 5.0])) - expected).max() < 1e-12


def test_equal_floors_leave_angles_as_they_are() -> None:
    angles = federation(0, 7, 7)[0]
    assert np.abs(adjust(angles, np.full(14, 3.0)) - angles).max() < 1e-12


# Refusals


TWO = np.array([[0.0, 3.0], [3.0, 0.0]])


@pytest.mark.parametrize("rate", [0.0, 1.0, -0.1, 2.0, np.nan])
def test_an_error_rate_that_is_no_share_is_refused(rate: float) -> None:
    with pytest.raises(ValueError, match=f"error_rate must lie between 0 and 1, got {rate}"):
        choose_threshold(TWO, error_rate=rate)


REFUSALS: dict[str, tuple[ArrayLike, list[ArrayLike] | None, str]] = {
    "too few self-angles": (TWO, [[1.0]], "self_angles must be one array for each of 2 clients, got 1"),
    "too many self-angles": (TWO, [[1.0]] * 3, "self_angles must be one array for each of 2 clients, got 3"),
    "nan among self-angles": (TWO, [[1.0], [np.nan]], "self_angles must be finite and not negative"),
    "negative self-angles": (TWO, [[1.0], [-1.0]], "self_angles must be finite and not negative"),
    "nan among angles": (TWO * np.nan, None, "proximity must be finite and not negative"),
    "not square": (TWO[:1], None, r"proximity must be square, .*, got shape \(1, 2\)"),
}


@pytest.mark.parametrize(("angles", "own", "text"), REFUSALS.values(), ids=REFUSALS)
def test_what_cannot_be_compared_is_refused(angles: ArrayLike, own: list[ArrayLike] | None, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        choose_threshold(angles, own)


def test_an_unknown_linkage_is_told_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"linkage must be one of average, .* got 'centroid'"):
        choose_threshold(TWO, linkage="centroid")  # type: ignore[arg-type]
