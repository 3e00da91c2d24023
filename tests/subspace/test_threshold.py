"""What the automatic threshold finds, and what it refuses."""

import numpy as np
import pytest
from numpy.typing import ArrayLike
from scipy.spatial.distance import pdist, squareform

from pacfl.subspace import LINKAGES, Linkage, adjusted_rand_index, choose_threshold, null, stability
from tests.subspace.federations import federation, groups


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


def test_neighbours_replace_the_missing_split_half_angles_of_some() -> None:
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
