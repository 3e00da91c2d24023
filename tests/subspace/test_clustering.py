import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.distance import squareform

from pacfl.subspace import (
    LINKAGES,
    Clustering,
    Linkage,
    agglomerate,
    assign_newcomers,
    choose_threshold,
    cluster,
    proximity,
    signature,
    split_half_angles,
)
from pacfl.subspace.hierarchy import dendrogram


def samples(kind: int, seed: int) -> np.ndarray:
    """Data of 30 features along one of three directions."""
    rng = np.random.default_rng([kind, seed])
    x = rng.normal(size=(80, 30)) * np.linspace(1.5, 0.3, 30)
    x[:, 10 * kind : 10 * kind + 3] += 4
    return x


OLD = [samples(i % 2, i) for i in range(10)]
BASES = [signature(x, 2) for x in OLD]
OWN = [split_half_angles(x, 2)["smallest"] for x in OLD]


def clustered(**how: float) -> Clustering:
    return cluster(proximity(BASES), OWN, **how)


def test_without_threshold_and_number_the_noise_decides() -> None:
    choice = choose_threshold(proximity(BASES), OWN)
    clustering = clustered()
    assert np.array_equal(clustering.labels, choice.labels)
    assert clustering.threshold == choice.threshold
    assert clustering.evidence["finding"] == choice.evidence.finding == "distinct"


@pytest.mark.parametrize("how", [{}, {"threshold": 20.0}, {"n_clusters": 1}, {"n_clusters": 4}, {"n_clusters": 10}])
def test_the_threshold_cuts_the_distances_into_the_labels(how: dict[str, float]) -> None:
    clustering = clustered(**how)
    assert np.array_equal(agglomerate(clustering.distances(), clustering.threshold), clustering.labels)


def test_a_threshold_and_a_number_together_are_refused() -> None:
    with pytest.raises(ValueError, match="not both"):
        clustered(threshold=5.0, n_clusters=2)


def test_newcomers_are_placed_as_if_all_had_come_at_once() -> None:
    late = [samples(0, 98), samples(1, 99)]
    bases, own = [signature(x, 2) for x in late], [split_half_angles(x, 2)["smallest"] for x in late]
    larger, suggestions = assign_newcomers(clustered(), BASES, bases, own)
    at_once = cluster(proximity([*BASES, *bases]), [*OWN, *own])
    assert np.array_equal(larger.labels, at_once.labels)
    assert np.allclose(larger.proximity, at_once.proximity, atol=1e-9)
    assert np.allclose(larger.noise_scale, at_once.noise_scale)
    assert suggestions == ()


def noise_alone(seed: int, n: int = 80) -> np.ndarray:
    return np.random.default_rng([9, seed]).normal(size=(n, 30))


@pytest.mark.parametrize("linkage", LINKAGES)
def test_newcomers_that_cannot_be_compared_join_nobody_and_suggest_nothing(linkage: Linkage) -> None:
    """Pure noise, too few samples for halves, and between them one of a known kind."""
    late = [noise_alone(0), samples(1, 99), samples(0, 98)[:3], noise_alone(1)]
    bases, own = [signature(x, 2) for x in late], [split_half_angles(x, 2)["smallest"] for x in late]
    before = cluster(proximity(BASES), OWN, linkage=linkage, signatures=BASES)
    larger, suggestions = assign_newcomers(before, BASES, bases, own)
    assert larger.labels[10:].tolist() == [-1, before.labels[1], -1, -1]
    assert suggestions == ()
    assert list(larger.evidence["not_judged"]) == ["10", "12", "13"]
    again, _ = assign_newcomers(larger, [*BASES, *bases], [bases[1]], [own[1]])
    assert again.labels.tolist() == [*larger.labels, before.labels[1]]
    assert list(again.subset([12, 11, 0, 13]).evidence["not_judged"]) == ["0", "3"]
    alone, _ = assign_newcomers(before, BASES, bases[:1], own[:1])
    assert alone.labels.tolist() == [*before.labels, -1]


def test_a_given_threshold_places_everybody() -> None:
    late = noise_alone(0)
    larger, _ = assign_newcomers(clustered(threshold=20.0), BASES, [signature(late, 2)], [np.empty(0)])
    assert larger.labels[10] == 2


def test_a_newcomer_of_another_kind_opens_a_cluster() -> None:
    x = samples(2, 0)
    larger, _ = assign_newcomers(clustered(), BASES, [signature(x, 2)], [split_half_angles(x, 2)["smallest"]])
    assert larger.labels.tolist() == [*clustered().labels.tolist(), 2]


@st.composite
def tied(draw: st.DrawFn) -> np.ndarray:
    """Angles of few values, so that merges tie."""
    n = draw(st.integers(1, 8))
    pairs = n * (n - 1) // 2
    angles = draw(st.lists(st.sampled_from([0.0, 1.0, 2.0, 3.0, 0.1 + 0.2, 0.3]), min_size=pairs, max_size=pairs))
    return np.zeros((1, 1)) if n == 1 else np.asarray(squareform(angles))


@given(angles=tied(), linkage=st.sampled_from(LINKAGES), equal_noise=st.booleans())
def test_the_threshold_gives_the_labels_for_any_number_of_clusters(
    angles: np.ndarray, linkage: Linkage, equal_noise: bool
) -> None:
    n = len(angles)
    own = [[1.0 if equal_noise else 1.0 + i] for i in range(n)]
    for k in range(1, n + 1):
        found = cluster(angles, own, linkage=linkage, n_clusters=k)
        assert np.array_equal(agglomerate(found.distances(), found.threshold, linkage), found.labels)
        assert found.labels.max() + 1 <= k
        possible = {
            int(agglomerate(found.distances(), t, linkage).max()) + 1
            for t in [0.0, *dendrogram(found.distances(), linkage)[:, 2]]
        }
        assert found.labels.max() + 1 == max((c for c in possible if c <= k), default=1)


def test_ties_that_forbid_a_number_of_clusters_are_named() -> None:
    found = cluster(1 - np.eye(3), [[1.0]] * 3, n_clusters=2)
    assert found.labels.tolist() == [0, 0, 0]
    assert "no threshold gives 2 clusters" in found.evidence["reasons"]
    exact = cluster(proximity(BASES), OWN, n_clusters=2)
    assert "no threshold" not in exact.evidence["reasons"]


def test_a_number_of_clusters_that_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match="between 1 and the number of clients, 3; got 4"):
        cluster(1 - np.eye(3), None, n_clusters=4)
