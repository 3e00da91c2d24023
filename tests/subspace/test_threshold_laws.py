"""Laws of the automatic threshold, and how often it splits homogeneous federations."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import pdist, squareform
from scipy.stats import binom

from pacfl.subspace import (
    LINKAGES,
    Linkage,
    adjusted_rand_index,
    agglomerate,
    choose_threshold,
    noise_scale,
    null,
    rescale_by_noise,
    stability,
)
from pacfl.subspace.threshold import ERROR_RATE
from tests.subspace.federations import Array, Compared, federation


@st.composite
def compared(draw: st.DrawFn) -> tuple[Array, list[Array] | None]:
    """Any small federation: angles with and without ties, split-half angles of all, some or none."""
    n = draw(st.integers(1, 8))
    pairs = n * (n - 1) // 2
    value = draw(st.sampled_from([st.integers(0, 5).map(float), st.floats(0.01, 90)]))
    angles = np.zeros((n, n))
    angles[np.triu_indices(n, 1)] = draw(st.lists(value, min_size=pairs, max_size=pairs))
    one = st.lists(st.floats(0.5, 2), max_size=4).map(np.asarray)
    own = draw(st.none() | st.lists(one, min_size=n, max_size=n) | st.just([np.array([0.8, 1.0, 1.2])] * n))
    return angles + angles.T, own


def assert_consistent(angles: Array, own: list[Array] | None, linkage: Linkage) -> None:
    """The threshold gives the labels again, and the evidence is about them."""
    choice = choose_threshold(angles, own, linkage)
    evidence = choice.evidence
    has = np.array([own is None or all(len(a) == 0 for a in own) or len(own[i]) > 0 for i in range(len(angles))])
    assert ((choice.labels >= 0) == has).all()
    assert set(evidence.not_judged) == {str(i) for i in np.flatnonzero(~has)}
    rescaled = rescale_by_noise(angles, noise_scale(angles, own), evidence.floor)[np.ix_(has, has)]
    assert np.array_equal(choice.labels[has], agglomerate(rescaled, choice.threshold, linkage))
    n_clusters = int(choice.labels.max()) + 1
    considered = {cut.n_clusters: cut for cut in evidence.cuts}
    assert n_clusters in considered
    enough = has.sum() >= stability.FEWEST
    assert evidence.reproducibility == (considered[n_clusters].reproducibility if enough else None)
    assert (evidence.finding == "homogeneous") == (n_clusters == 1)
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
    evidence, noise = choice.evidence, noise_scale(angles, own)
    rescaled = rescale_by_noise(angles, noise)
    assert evidence.floor == np.median(noise)
    across = rescaled[:7, 7:].mean() / evidence.floor  # average linkage: the last merge is the mean of all pairs
    assert evidence.heights[0] == pytest.approx(across)
    assert evidence.cuts[0].height == pytest.approx(across)
    assert evidence.separation == pytest.approx(evidence.heights[0] / evidence.heights[1])
    assert evidence.heights[1] < choice.threshold / evidence.floor < evidence.heights[0]
    assert evidence.null_height < evidence.null_limits[0]
    assert evidence.error_rate == ERROR_RATE


@pytest.mark.usefixtures("few_simulations")
@pytest.mark.parametrize("sizes", [(14,), (8, 4, 2)])
@pytest.mark.parametrize("with_split_half_angles", [True, False])
@pytest.mark.parametrize("factor", [2.0, np.pi / 180])
def test_the_unit_of_angle_does_not_matter(sizes: tuple[int, ...], with_split_half_angles: bool, factor: float) -> None:
    angles, own = federation(0, *sizes)
    there = choose_threshold(angles, own if with_split_half_angles else None)
    here = choose_threshold(factor * angles, [factor * a for a in own] if with_split_half_angles else None)
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


def of_the_null(seed: int, n: int, dimensions: int) -> Compared:
    """A homogeneous federation of the model itself: a common point and normal noise of each client's scale."""
    rng = np.random.default_rng(seed)
    noise = rng.uniform(1, 3, n)
    points = rng.standard_normal((n, dimensions)) * (noise / np.sqrt(2 * dimensions))[:, None]
    own = noise[:, None] * np.sqrt(rng.chisquare(dimensions, (n, 32)) / dimensions)
    return squareform(pdist(points)), tuple(own)


@pytest.mark.usefixtures("few_simulations")
@pytest.mark.parametrize(("linkage", "dimensions"), [("average", 5), ("average", 20), ("complete", 5)])
def test_homogeneous_federations_are_split_no_more_often_than_the_error_rate(linkage: Linkage, dimensions: int) -> None:
    """60 federations of the model itself: at the stated rate, more splits than this have a chance of 1 in 1,000."""
    drawn = [of_the_null(seed, 12, dimensions) for seed in range(60)]
    splits = sum(choose_threshold(*one, linkage, error_rate=0.05).labels.any() for one in drawn)
    assert splits <= binom.isf(0.001, 60, 0.05)


@pytest.mark.usefixtures("few_simulations")
def test_a_thousand_clients_of_one_distribution_are_split_no_more_often_than_the_error_rate() -> None:
    """Simulations have 300 of them. 20 federations: more splits than this have a chance of 1 in 1,000."""
    drawn = [(of_the_null(seed, 1000, (3, 10)[seed % 2]), LINKAGES[seed % 5]) for seed in range(20)]
    splits = sum(choose_threshold(*one, linkage, error_rate=0.05).labels.any() for one, linkage in drawn)
    assert splits <= binom.isf(0.001, 20, 0.05)


@pytest.mark.usefixtures("few_simulations")
def test_homogeneous_federations_are_split_if_errors_are_allowed() -> None:
    """The test above can fail: with an error rate of one half, at least 10 of 60 are split."""
    splits = sum(choose_threshold(*of_the_null(seed, 12, 5), error_rate=0.5).labels.any() for seed in range(60))
    assert 10 <= splits <= binom.isf(0.001, 60, 0.5)


def test_a_lower_error_rate_has_higher_limits() -> None:
    compared_ = federation(0, 7, 7)
    limits = [choose_threshold(*compared_, error_rate=rate).evidence.null_limits for rate in (0.2, 0.05, 0.001)]
    assert (np.diff(limits, axis=0) >= 0).all()  # limits that are 15 % above typical heights are no lower
    assert (np.array(limits[-1]) > limits[0]).all()


def test_no_limit_is_nearer_to_what_chance_shows_than_noise_is_known() -> None:
    """In many dimensions all heights of chance are nearly equal, and noise that is 10 % too low would split all."""
    rng = np.random.default_rng(0)
    noise = rng.standard_normal((30, 1000))
    halves = [np.sqrt(2 * rng.chisquare(1000, 32)) for _ in range(30)]
    angles = squareform(pdist(noise))
    for error in (1.0, 0.9):
        chosen = choose_threshold(angles, [own * error for own in halves], "complete")
        assert chosen.labels.max() == 0


@pytest.mark.parametrize("linkage", ["average", "ward"])
def test_noise_that_is_strong_in_one_direction_splits_nobody(linkage: Linkage) -> None:
    """A direction with a quarter of the noise pulls groups of clients apart, as the share of a class does."""
    rng = np.random.default_rng(1)
    scales = np.sqrt(np.concatenate([[0.25], np.full(40, 0.75 / 40)]))
    for _ in range(10):
        angles = squareform(pdist(rng.standard_normal((30, 41)) * scales))
        halves = [np.sqrt(2 * (rng.standard_normal((32, 41)) ** 2 @ scales**2)) for _ in range(30)]
        assert choose_threshold(angles, halves, linkage).labels.max() == 0
