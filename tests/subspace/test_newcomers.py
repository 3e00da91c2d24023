import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import ArrayLike, NDArray
from scipy.spatial.distance import squareform

from pacfl.subspace import LINKAGES, Linkage, MergeSuggestion, agglomerate, place
from pacfl.subspace.hierarchy import dendrogram

Array = NDArray[np.float64]
SEEDS = st.integers(0, 2**32)
WORDS = st.sampled_from(LINKAGES)
THRESHOLDS = st.floats(0, 100)


def distances(seed: int, n: int) -> Array:
    return np.asarray(squareform(np.random.default_rng(seed).uniform(1, 90, n * (n - 1) // 2)))


def separated(seed: int, groups: NDArray[np.intp]) -> Array:
    """Angles of 1 to 9 degrees within groups and 60 to 80 between them."""
    n = len(groups)
    rng = np.random.default_rng(seed)
    near, far = (squareform(rng.uniform(*span, n * (n - 1) // 2)) for span in ((1, 9), (60, 80)))
    return np.where(np.equal.outer(groups, groups), near, far)


def together(labels: ArrayLike) -> NDArray[np.bool_]:
    return np.equal.outer(np.asarray(labels), np.asarray(labels))


@given(
    seed=SEEDS, old=st.lists(st.integers(0, 4), max_size=6), m=st.integers(0, 5), threshold=THRESHOLDS, linkage=WORDS
)
def test_old_labels_never_change_and_newcomers_get_theirs_or_new_ones(
    seed: int, old: list[int], m: int, threshold: float, linkage: Linkage
) -> None:
    if not old and not m:
        m = 1
    placement = place(distances(seed, len(old) + m), old, threshold, linkage)
    assert placement.labels[: len(old)].tolist() == old
    assert placement.labels.shape == (len(old) + m,)
    first_new = max(old, default=-1) + 1
    assert placement.opened == tuple(range(first_new, first_new + len(placement.opened)))
    assert set(placement.labels[len(old) :].tolist()) - set(old) == set(placement.opened)


@given(seed=SEEDS, n=st.integers(1, 8), threshold=THRESHOLDS, linkage=WORDS)
def test_with_no_old_clients_placing_is_agglomerating(seed: int, n: int, threshold: float, linkage: Linkage) -> None:
    square = distances(seed, n)
    found = place(square, [], threshold, linkage)
    assert np.array_equal(together(found.labels), together(agglomerate(square, threshold, linkage)))
    assert found.merge_suggestions == ()


@given(seed=SEEDS, n_old=st.integers(1, 10), m=st.integers(0, 6), linkage=WORDS)
def test_placing_is_agglomerating_from_scratch_where_groups_are_apart(
    seed: int, n_old: int, m: int, linkage: Linkage
) -> None:
    groups = np.random.default_rng(seed).integers(0, 4, n_old + m)
    square = separated(seed, groups)
    placement = place(square, agglomerate(square[:n_old, :n_old], 30.0, linkage), 30.0, linkage)
    assert np.array_equal(together(placement.labels), together(groups))
    assert np.array_equal(placement.labels, agglomerate(square, 30.0, linkage))
    assert len(placement.opened) == len(set(groups[n_old:]) - set(groups[:n_old]))
    assert placement.merge_suggestions == ()


@given(seed=SEEDS, threshold=THRESHOLDS, linkage=WORDS)
def test_newcomers_follow_a_permutation_of_newcomers(seed: int, threshold: float, linkage: Linkage) -> None:
    square = distances(seed, 8)
    old = [0, 1, 1, 2]
    order = np.concatenate([np.arange(4), 4 + np.random.default_rng(seed).permutation(4)])
    labels = place(square, old, threshold, linkage).labels
    shuffled = place(square[np.ix_(order, order)], old, threshold, linkage).labels
    assert np.array_equal(together(shuffled), together(labels[order]))


@pytest.mark.parametrize("linkage", LINKAGES)
def test_a_newcomer_within_the_threshold_of_no_cluster_opens_one(linkage: Linkage) -> None:
    square = separated(0, np.array([0, 0, 1, 2]))
    placement = place(square, [0, 0, 1], 30.0, linkage)
    assert placement.labels.tolist() == [0, 0, 1, 2]
    assert placement.opened == (2,)


@pytest.mark.parametrize("linkage", LINKAGES)
def test_newcomers_of_one_distribution_open_one_cluster_together(linkage: Linkage) -> None:
    square = separated(0, np.array([0, 0, 1, 2, 2, 0, 2]))
    placement = place(square, [0, 0, 1], 30.0, linkage)
    assert placement.labels.tolist() == [0, 0, 1, 2, 2, 0, 2]
    assert placement.opened == (2,)


@pytest.mark.parametrize("linkage", LINKAGES)
def test_a_merge_suggestion_is_reported_and_its_newcomer_joins_the_nearer_cluster(linkage: Linkage) -> None:
    """The newcomer is at 6 from clusters 3 and at 4 from cluster 1, which are at 9 from each other."""
    square = np.array([[0, 9, 6], [9, 0, 4], [6, 4, 0]])
    placement = place(square, [3, 1], 7.0, linkage)
    assert placement.labels.tolist() == [3, 1, 1]
    assert placement.merge_suggestions == (MergeSuggestion(newcomer=0, clusters=(1, 3), distances=(4.0, 6.0)),)
    assert placement.opened == ()


@pytest.mark.parametrize("linkage", LINKAGES)
def test_a_merge_suggestion_numbers_newcomers_from_0(linkage: Linkage) -> None:
    square = squareform([9.0, 50, 4, 50, 5, 50])  # clients 0 and 1 are old, 2 is far from all, 3 is between
    placement = place(square, [0, 1], 7.0, linkage)
    assert placement.labels.tolist() == [0, 1, 2, 0]
    assert placement.merge_suggestions == (MergeSuggestion(newcomer=1, clusters=(0, 1), distances=(4.0, 5.0)),)


BY_LINKAGE: dict[Linkage, float] = {"average": 5.0, "weighted": 5.0, "complete": 8.0, "single": 2.0, "ward": 45**0.5}


@pytest.mark.parametrize(("linkage", "distance"), BY_LINKAGE.items())
def test_the_distance_to_a_cluster_is_that_of_the_linkage_and_may_equal_the_threshold(
    linkage: Linkage, distance: float
) -> None:
    """Two old clients of one cluster, 1 apart, 2 and 8 from the newcomer: mean 5, greatest 8, least 2.

    ward: √((2 · 2² + 2 · 8² - 1²) / 3) = √45.
    """
    square = [[0, 1, 2], [1, 0, 8], [2, 8, 0]]
    assert place(square, [0, 0], distance, linkage).labels.tolist() == [0, 0, 0]
    assert place(square, [0, 0], np.nextafter(distance, 0), linkage).labels.tolist() == [0, 0, 1]


def test_average_counts_clients_and_weighted_does_not() -> None:
    """Newcomers 0, 1, 2 join in two steps and are at 2, 8, 8 from newcomer 3.

    average: (2 + 8 + 8) / 3 = 6. weighted: 0 and 1 are at (2 + 8) / 2 = 5, and with 2 at (5 + 8) / 2 = 6.5.
    """
    square = squareform([1.0, 1.5, 2.0, 1.5, 8.0, 8.0])
    assert place(square, [], 6.2, "average").labels.tolist() == [0, 0, 0, 0]
    assert place(square, [], 6.2, "weighted").labels.tolist() == [0, 0, 0, 1]


def test_a_newcomer_may_bring_another_within_the_threshold() -> None:
    """Single linkage: newcomer 1 is at 9 from the old client, but at 2 from newcomer 0, which is at 3 from it."""
    assert place([[0, 3, 9], [3, 0, 2], [9, 2, 0]], [0], 4.0, "single").labels.tolist() == [0, 0, 0]
    assert place([[0, 3, 9], [3, 0, 2], [9, 2, 0]], [0], 4.0, "complete").labels.tolist() == [0, 1, 1]


def test_old_clusters_stay_apart_however_near() -> None:
    assert place([[0, 1, 1], [1, 0, 1], [1, 1, 0]], [0, 1], 50.0).labels.tolist()[:2] == [0, 1]


def test_new_clusters_are_numbered_after_the_last_old_one() -> None:
    square = separated(0, np.array([0, 1, 2, 3]))
    placement = place(square, [5, 2], 30.0)
    assert placement.labels.tolist() == [5, 2, 6, 7]
    assert placement.opened == (6, 7)


def test_without_newcomers_nothing_happens() -> None:
    placement = place(distances(0, 4), [0, 1, 1, 7], 50.0)
    assert placement.labels.tolist() == [0, 1, 1, 7]
    assert (placement.opened, placement.merge_suggestions) == ((), ())


def test_nothing_that_is_given_is_changed() -> None:
    square, old = distances(0, 6), np.array([0, 1, 1])
    before = square.copy(), old.copy()
    place(square, old, 50.0).labels[:] = 9
    assert np.array_equal(square, before[0])
    assert np.array_equal(old, before[1])


def test_an_infinite_threshold_lets_all_join() -> None:
    """In a process of its own with little memory and time: a loop that does not end would take all of both."""
    program = """
import resource
resource.setrlimit(resource.RLIMIT_AS, (2**30, 2**30))
from pacfl.subspace import place
print(place([[0, 9, 1, 8], [9, 0, 9, 2], [1, 9, 0, 5], [8, 2, 5, 0]], [0, 1], float("inf")).labels.tolist())
"""
    done = subprocess.run(
        [sys.executable, "-c", program], env={"PYTHONPATH": ":".join(sys.path), "OPENBLAS_NUM_THREADS": "1"},
        capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip
    assert done.stdout.strip() == "[0, 1, 0, 1]", done.stderr


@given(seed=SEEDS, sizes=st.lists(st.integers(1, 5), min_size=1, max_size=4), m=st.integers(1, 5))
def test_ward_places_newcomers_as_scipy_merges_them(seed: int, sizes: list[int], m: int) -> None:
    """Old clusters far below every other distance are scipy's first merges; its later ones are those of newcomers.

    Cut where the first two old clusters meet, or where everything has: until then `place` merges as scipy does.
    """
    old = np.repeat(np.arange(len(sizes)), sizes)
    square = distances(seed, len(old) + m)
    square[: len(old), : len(old)][np.equal.outer(old, old)] *= 1e-3
    tree = dendrogram(square, "ward")
    thresholds = [0.5, *(h * (1 + 1e-9) for h in tree[:, 2] if h > 0.5)]
    for threshold in thresholds:
        expected = agglomerate(square, threshold, "ward")
        if len(set(expected[: len(old)])) < len(sizes):
            break
        assert np.array_equal(together(place(square, old, threshold, "ward").labels), together(expected))


def test_ward_needs_the_whole_proximity() -> None:
    square = distances(0, 4)
    assert place(square, [0, 0, 1], 50.0, "ward").labels.shape == (4,)
    with pytest.raises(ValueError, match="ward linkage needs the whole proximity to place newcomers"):
        place(square[3:], [0, 0, 1], 50.0, "ward")


def test_an_unknown_linkage_is_refused() -> None:
    with pytest.raises(ValueError, match=r"linkage must be one of average, .*, ward, got 'centroid'"):
        place(np.zeros((2, 2)), [0], 1.0, "centroid")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "labels",
    [[0, -1], [0, 1, 2, 3], [[0], [1]], [0.5, 1.5], 3],
    ids=["negative", "too many", "two-dimensional", "no integers", "a number"],
)
def test_labels_that_are_no_clusters_of_old_clients_are_refused(labels: ArrayLike) -> None:
    with pytest.raises(ValueError, match="labels must be integers from 0, one for each old client"):
        place(distances(0, 3), labels, 1.0)


def test_a_threshold_of_nan_is_refused() -> None:
    with pytest.raises(ValueError, match="threshold must not be NaN, got nan"):
        place(distances(0, 3), [0], np.nan)


def test_an_invalid_proximity_is_refused() -> None:
    with pytest.raises(ValueError, match="proximity must be symmetric with a zero diagonal"):
        place([[0, 1], [2, 0]], [0], 1.0)


@given(SEEDS)
def test_rows_of_newcomers_are_all_that_placing_looks_at(seed: int) -> None:
    square = distances(seed, 9)
    whole = place(square, [0, 0, 1, 2, 1], 40.0)
    rows = place(square[5:], [0, 0, 1, 2, 1], 40.0)
    assert np.array_equal(rows.labels, whole.labels)
    assert (rows.opened, rows.merge_suggestions) == (whole.opened, whole.merge_suggestions)


def test_rows_that_are_not_those_of_newcomers_are_refused() -> None:
    with pytest.raises(ValueError, match=r"square, or a row for each newcomer after 2 clients; got \(2, 3\)"):
        place([[1, 2, 0], [1, 2, 0]], [0, 1], 1.0)
    with pytest.raises(ValueError, match="finite and not negative"):
        place([[-1, 2, 0]], [0, 1], 1.0)
    with pytest.raises(ValueError, match="symmetric with a zero diagonal"):
        place([[1, 2, 3]], [0, 1], 1.0)
