from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import ArrayLike

from pacfl.subspace import adjusted_rand_index, match
from pacfl.subspace.agreement import best_jaccard

TWO_CLUSTERINGS = st.integers(1, 12).flatmap(
    lambda n: st.tuples(*(st.lists(st.integers(0, 3), min_size=n, max_size=n) for _ in range(2)))
)


@given(TWO_CLUSTERINGS)
def test_the_index_is_that_of_sklearn(clusterings: tuple[list[int], list[int]]) -> None:
    metrics = pytest.importorskip("sklearn.metrics", reason="scikit-learn is the oracle of this test")
    assert adjusted_rand_index(*clusterings) == pytest.approx(metrics.adjusted_rand_score(*clusterings), abs=1e-12)


def test_the_index_worked_by_hand() -> None:
    """Clusters {0, 1, 2}, {3, 4, 5} against {0, 1}, {2, 3}, {4, 5}.

    Together in both: the pairs 01 and 45, 2. In the first: 3 + 3 = 6, in the second 1 + 1 + 1 = 3, of 15 pairs.
    By chance 6 × 3 / 15 = 1.2, at most (6 + 3) / 2 = 4.5: (2 - 1.2) / (4.5 - 1.2) = 8 / 33.
    """
    assert adjusted_rand_index([0, 0, 0, 1, 1, 1], [0, 0, 1, 1, 2, 2]) == pytest.approx(8 / 33)


@given(TWO_CLUSTERINGS)
def test_the_index_is_symmetric_and_1_only_for_equal_clusterings(clusterings: tuple[list[int], list[int]]) -> None:
    a, b = clusterings
    assert adjusted_rand_index(a, b) == adjusted_rand_index(b, a)
    assert adjusted_rand_index(a, [f"cluster {9 - label}" for label in a]) == 1.0
    same = np.array_equal(np.equal.outer(a, a), np.equal.outer(b, b))
    assert (adjusted_rand_index(a, b) == 1.0) == same


def test_the_index_of_independent_clusterings_is_0_on_average() -> None:
    """2,000 draws of 30 clients in 3 and 4 clusters: the mean is within 4 standard errors of 0."""
    rng = np.random.default_rng(0)
    drawn = [adjusted_rand_index(rng.integers(0, 3, 30), rng.integers(0, 4, 30)) for _ in range(2000)]
    assert abs(np.mean(drawn)) < 4 * np.std(drawn) / np.sqrt(len(drawn))


def test_the_most_similar_cluster_worked_by_hand() -> None:
    """Clusters {0, 1, 2}, {3, 4} and an empty one, against {0, 1}, {2, 3, 4}.

    {0, 1, 2}: 2 / 3 with the first, 1 / 5 with the second. {3, 4}: 0 / 4 and 2 / 3. The third has no members.
    """
    found = best_jaccard(np.array([0, 0, 0, 1, 1]), np.array([0, 0, 1, 1, 1]), 3)
    assert found[:2] == pytest.approx([2 / 3, 2 / 3])
    assert np.isnan(found[2])


def test_matching_worked_by_hand() -> None:
    """New 7 shares three clients with old 0 and one with old 4, new 8 two with old 4, new 9 one: it is left over."""
    assert match([7, 7, 7, 7, 8, 8, 9], old=[0, 0, 0, 4, 4, 4, 4]).tolist() == [0, 0, 0, 0, 4, 4, 5]


def test_matching_maximises_the_labels_that_do_not_change() -> None:
    """New 0 shares 3 with old 0 and 2 with old 1, new 1 shares 2 with old 0 and none with old 1.

    Greedily 0 -> 0 preserves 3 labels; 0 -> 1 and 1 -> 0 preserve 2 + 2 = 4.
    """
    assert match([0, 0, 0, 0, 0, 1, 1], old=[0, 0, 0, 1, 1, 0, 0]).tolist() == [1, 1, 1, 1, 1, 0, 0]


@given(TWO_CLUSTERINGS)
def test_matching_does_not_change_the_clusters(clusterings: tuple[list[int], list[int]]) -> None:
    new, old = clusterings
    matched = match(new, old)
    assert np.array_equal(np.equal.outer(matched, matched), np.equal.outer(new, new))
    unused = set(matched.tolist()) - set(old)
    assert all(label > max(old) for label in unused)


@given(TWO_CLUSTERINGS)
def test_no_other_matching_preserves_more_labels(clusterings: tuple[list[int], list[int]]) -> None:
    new, old = (np.asarray(labels) for labels in clusterings)
    names = [*np.unique(old).tolist(), -1, -2, -3, -4]  # negative: a label that is not in use
    found = np.unique(new)
    most = max(
        sum(int((old[new == name] == label).sum()) for name, label in zip(found, chosen, strict=True))
        for chosen in permutations(names, len(found))
    )
    assert (match(new, old) == old).sum() == most


@given(st.lists(st.integers(0, 5), min_size=1, max_size=12), st.permutations(range(6)))
def test_renamed_clusters_get_their_old_labels_back(old: list[int], names: list[int]) -> None:
    assert match([names[label] for label in old], old).tolist() == old


@pytest.mark.parametrize(("a", "b"), [([0, 1], [0, 1, 2]), ([], []), ([[0, 1]], [[0, 1, 1]])])
def test_clusterings_of_different_clients_are_refused(a: ArrayLike, b: ArrayLike) -> None:
    with pytest.raises(ValueError, match="two clusterings of the same clients are wanted"):
        adjusted_rand_index(a, b)


def test_labels_of_different_clients_are_not_matched() -> None:
    with pytest.raises(ValueError, match=r"the same clients are wanted, got shapes \(2,\) and \(3,\)"):
        match([0, 1], old=[0, 1, 2])


@pytest.mark.parametrize("old", [[-1, 0], [0.5, 1.0], ["a", "b"]])
def test_old_labels_that_are_no_whole_numbers_from_0_are_refused(old: ArrayLike) -> None:
    with pytest.raises(ValueError, match="old labels must be integers from 0, got"):
        match([0, 1], old)
