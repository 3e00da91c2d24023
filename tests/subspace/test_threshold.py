"""What the automatic threshold finds, and what it refuses."""

import numpy as np
import pytest
from numpy.typing import ArrayLike
from scipy.spatial.distance import pdist, squareform

from pacfl.subspace import (
    LINKAGES,
    Linkage,
    adjusted_rand_index,
    choose_threshold,
    null,
    proximity,
    signature,
    split_half_angles,
    stability,
)
from tests.subspace.federations import Array, federation, groups


@pytest.mark.parametrize("seed", range(3))
def test_a_homogeneous_federation_is_one_cluster(seed: int) -> None:
    choice = choose_threshold(*federation(seed, 14))
    assert not choice.labels.any()
    assert choice.evidence.finding == "homogeneous"
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
def test_clients_with_few_samples_are_not_split_off(sizes: tuple[int, ...]) -> None:
    choice = choose_threshold(*federation(0, *sizes, samples=(30, 60, 240)))
    assert adjusted_rand_index(choice.labels, groups(*sizes)) == 1


@pytest.mark.usefixtures("few_simulations")
@pytest.mark.parametrize("sizes", [(14,), (7, 7), (5, 5, 5)])
@pytest.mark.parametrize("linkage", LINKAGES)
def test_neighbours_replace_missing_split_half_angles(sizes: tuple[int, ...], linkage: Linkage) -> None:
    choice = choose_threshold(federation(0, *sizes)[0], linkage=linkage)
    assert adjusted_rand_index(choice.labels, groups(*sizes)) == 1
    assert choice.evidence.floors_from == "neighbours"
    assert "nearest neighbours" in choice.evidence.reasons


def test_clients_without_split_half_angles_join_nobody_where_others_have_them() -> None:
    angles, own = federation(0, 7, 7)
    has = np.arange(14) % 3 > 0
    choice = choose_threshold(angles, [a if known else np.empty(0) for a, known in zip(own, has, strict=True)])
    assert (choice.labels[~has] == -1).all()
    assert adjusted_rand_index(choice.labels[has], groups(7, 7)[has]) == 1
    assert choice.evidence.floors_from == "clients"
    assert list(choice.evidence.not_judged) == [str(i) for i in np.flatnonzero(~has)]
    assert all("sign more samples" in why for why in choice.evidence.not_judged.values())
    assert "5 cannot be judged and joined nobody" in choice.evidence.reasons
    without = choose_threshold(angles[np.ix_(has, has)], [a for a, known in zip(own, has, strict=True) if known])
    assert np.array_equal(without.labels, choice.labels[has])
    assert without.threshold == choice.threshold


def test_one_client_is_one_cluster() -> None:
    angles, own = federation(0, 1)
    for sent in (own, None):
        choice = choose_threshold(angles, sent)
        assert choice.labels.tolist() == [0]
        assert choice.evidence.finding == "homogeneous"


@pytest.mark.parametrize("seed", range(3))
def test_two_clients_are_separated_only_if_they_differ(seed: int) -> None:
    assert choose_threshold(*federation(seed, 2)).labels.tolist() == [0, 0]
    assert choose_threshold(*federation(seed, 1, 1)).labels.tolist() == [0, 1]


def test_two_clients_without_split_half_angles_are_each_others_neighbours_and_so_one_cluster() -> None:
    assert choose_threshold([[0, 70], [70, 0]]).labels.tolist() == [0, 0]


def test_clients_with_the_same_signature_are_one_cluster() -> None:
    for own in (None, [np.zeros(32)] * 5, [np.ones(32)] * 5):
        assert choose_threshold(np.zeros((5, 5)), own).labels.tolist() == [0] * 5


def test_a_federation_larger_than_the_panel_is_simulated_by_a_panel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(null, "PANEL", 10)
    monkeypatch.setattr(stability, "PANEL", 10)
    for sizes in ((14,), (7, 7)):
        assert adjusted_rand_index(choose_threshold(*federation(0, *sizes)).labels, groups(*sizes)) == 1


# What one client can do


HUGE = np.full(32, 270.0)
LIES = {
    "all huge": HUGE,
    "rather large": HUGE / 30,
    "one huge": np.where(np.arange(32) == 0, 270.0, 0.0),
    "one huge, others small": np.where(np.arange(32) == 0, 270.0, 0.01),
    "all tiny": np.full(32, 1e-9),
    "half huge": np.where(np.arange(32) % 2, 270.0, 0.0),
    "growing": np.geomspace(1e-3, 270, 32),
    "none": np.empty(0),
}


@pytest.mark.parametrize("sizes", [(4, 4), (8,), (8, 8), (5, 3)])
@pytest.mark.parametrize("lie", LIES)
def test_false_split_half_angles_of_one_client_leave_groups_of_three_and_more_as_they_are(
    lie: str, sizes: tuple[int, ...]
) -> None:
    """The liar is one more client of the first group."""
    angles, own = federation(1, sizes[0] + 1, *sizes[1:])
    shape = [np.zeros((60, 3))] * len(own)
    honest = choose_threshold(angles[1:, 1:], own[1:], signatures=shape[1:])
    choice = choose_threshold(angles, [LIES[lie], *own[1:]], signatures=shape)
    assert adjusted_rand_index(honest.labels, groups(*sizes)) == 1
    assert adjusted_rand_index(choice.labels[1:], honest.labels) == 1
    if lie in ("all huge", "none"):
        assert choice.labels[0] == -1


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
    """40 clients anywhere in a square of three noise scales a side: no two groups with nothing between them."""
    rng = np.random.default_rng(0)
    points = rng.standard_normal((40, 10)) / np.sqrt(20)
    points[:, :2] += rng.uniform(0, 3, (40, 2))
    own = np.sqrt(rng.chisquare(10, (40, 32)) / 10)
    evidence = choose_threshold(squareform(pdist(points)), list(own)).evidence
    assert evidence.finding == "gradual"
    assert "Differences are gradual" in evidence.reasons
    assert "compare with fewer" in evidence.reasons


# Clients that cannot be compared


def noisy_federation(n_noise: int) -> tuple[list[Array], list[Array]]:
    """Seven clients of each of two groups, and some whose samples have no leading direction."""
    rng = np.random.default_rng(0)
    spaces = [np.linalg.qr(rng.standard_normal((60, 5)))[0] * [6, 4, 3, 2, 1.5] for _ in range(2)]
    data = [rng.standard_normal((60, 5)) @ spaces[i // 7].T + 0.5 * rng.standard_normal((60, 60)) for i in range(14)]
    data += [rng.standard_normal((60, 60)) for _ in range(n_noise)]
    return [signature(x, 3) for x in data], [split_half_angles(x, 3)["smallest"] for x in data]


def test_pure_noise_joins_nobody_and_changes_nothing() -> None:
    bases, own = noisy_federation(3)
    choice = choose_threshold(proximity(bases), own, signatures=bases)
    without = choose_threshold(proximity(bases[:14]), own[:14], signatures=bases[:14])
    assert choice.labels[14:].tolist() == [-1] * 3
    assert np.array_equal(choice.labels[:14], groups(7, 7))
    assert np.array_equal(without.labels, groups(7, 7))
    assert list(choice.evidence.not_judged) == ["14", "15", "16"]
    assert "as large as a difference could be" in choice.evidence.not_judged["14"]


def test_where_nobody_can_be_compared_nothing_is_claimed() -> None:
    bases, own = (part[14:] for part in noisy_federation(8))
    choice = choose_threshold(proximity(bases), own, signatures=bases)
    assert choice.labels.tolist() == [-1] * 8
    assert choice.evidence.finding == "undetermined"
    assert not choice.evidence.guaranteed
    assert choice.evidence.reasons.startswith("No client can be compared with others")


def test_bases_that_always_share_a_direction_are_not_compared() -> None:
    """Any two planes through the origin of a space of three dimensions meet in a line: angles are rounding errors."""
    rng = np.random.default_rng(0)
    data = [rng.standard_normal((50, 3)) * [3, 2, 1] for _ in range(10)]
    bases, own = [signature(x, 2) for x in data], [split_half_angles(x, 2)["smallest"] for x in data]
    choice = choose_threshold(proximity(bases), own, signatures=bases)
    assert choice.labels.tolist() == [-1] * 10
    assert "lower rank" in choice.evidence.not_judged["0"]


# Refusals


TWO = np.array([[0.0, 3.0], [3.0, 0.0]])


@pytest.mark.parametrize("rate", [0.0, 1.0, -0.1, 2.0, np.nan])
def test_an_error_rate_that_is_no_share_is_refused(rate: float) -> None:
    with pytest.raises(ValueError, match=f"error_rate must lie between 0 and 1, got {rate}"):
        choose_threshold(TWO, error_rate=rate)


REFUSALS: dict[str, tuple[ArrayLike, list[ArrayLike] | None, str]] = {
    "too few split-half angles": (TWO, [[1.0]], "split_half_angles must be one array for each of 2 clients, got 1"),
    "too many split-half angles": (
        TWO,
        [[1.0]] * 3,
        "split_half_angles must be one array for each of 2 clients, got 3",
    ),
    "nan among split-half angles": (TWO, [[1.0], [np.nan]], "split_half_angles must be finite and not negative"),
    "negative split-half angles": (TWO, [[1.0], [-1.0]], "split_half_angles must be finite and not negative"),
    "nan among angles": (TWO * np.nan, None, "proximity must be finite and not negative"),
    "not square": (TWO[:1], None, r"proximity must be square, .*, got shape \(1, 2\)"),
}


@pytest.mark.parametrize(("angles", "own", "text"), REFUSALS.values(), ids=REFUSALS)
def test_what_cannot_be_compared_is_refused(angles: ArrayLike, own: list[ArrayLike] | None, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        choose_threshold(angles, own)


def test_the_error_for_an_unknown_linkage_names_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"linkage must be one of average, .* got 'centroid'"):
        choose_threshold(TWO, linkage="centroid")  # type: ignore[arg-type]
