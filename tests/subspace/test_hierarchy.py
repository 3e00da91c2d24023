from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import ArrayLike, NDArray
from scipy.cluster.hierarchy import fcluster
from scipy.cluster.hierarchy import linkage as scipy_linkage
from scipy.spatial.distance import squareform

from pacfl.subspace import LINKAGES, Linkage, agglomerate, agglomerate_into
from pacfl.subspace.hierarchy import dendrogram, in_order_of_appearance

Array = NDArray[np.float64]
SEEDS = st.integers(0, 2**32)
SIZES = st.integers(2, 10)
WORDS = st.sampled_from(LINKAGES)


def distances(seed: int, n: int) -> Array:
    """No two are equal, so that there is one dendrogram."""
    return np.asarray(squareform(np.random.default_rng(seed).uniform(1, 90, n * (n - 1) // 2)))


@st.composite
def with_ties(draw: st.DrawFn) -> Array:
    n = draw(SIZES)
    pairs = n * (n - 1) // 2
    return np.asarray(squareform(draw(st.lists(st.integers(0, 3), min_size=pairs, max_size=pairs))), dtype=np.float64)


def together(labels: ArrayLike) -> NDArray[np.bool_]:
    """Which pairs share a cluster, whatever the names of clusters."""
    return np.equal.outer(np.asarray(labels), np.asarray(labels))


def agglomerated_by_hand(square: Array, threshold: float, linkage: Linkage) -> list[int]:
    """The textbook loop: join the two nearest groups while they are within the threshold."""
    n = len(square)
    groups = {i: [i] for i in range(n)}
    d = {(i, j): square[i, j] for i, j in combinations(range(n), 2)}

    def between(i: int, j: int) -> float:
        return d[min(i, j), max(i, j)]

    while d:
        (a, b), height = min(d.items(), key=lambda item: item[1])
        if height > threshold:
            break
        n_a, n_b = len(groups[a]), len(groups[b])
        joined = {}
        for c in groups.keys() - {a, b}:
            n_c, to_a, to_b = len(groups[c]), between(a, c), between(b, c)
            joined[c] = {
                "average": np.mean([square[i, j] for i in groups[a] + groups[b] for j in groups[c]]),
                "weighted": (to_a + to_b) / 2,
                "complete": max(to_a, to_b),
                "single": min(to_a, to_b),
                "ward": np.sqrt(((n_a + n_c) * to_a**2 + (n_b + n_c) * to_b**2 - n_c * height**2) / (n_a + n_b + n_c)),
            }[linkage]
        groups[a] += groups.pop(b)
        d = {pair: v for pair, v in d.items() if a not in pair and b not in pair}
        d.update({(min(a, c), max(a, c)): float(v) for c, v in joined.items()})
    label_of = {i: name for name, members in groups.items() for i in members}
    return [label_of[i] for i in range(n)]


@given(seed=SEEDS, n=SIZES, threshold=st.floats(0, 120), linkage=WORDS)
def test_agglomerate_is_the_textbook_loop(seed: int, n: int, threshold: float, linkage: Linkage) -> None:
    square = distances(seed, n)
    found = agglomerate(square, threshold, linkage)
    assert np.array_equal(together(found), together(agglomerated_by_hand(square, threshold, linkage)))


@given(seed=SEEDS, n=SIZES, threshold=st.floats(0, 120), linkage=WORDS)
def test_agglomerate_is_the_cut_of_scipy(seed: int, n: int, threshold: float, linkage: Linkage) -> None:
    square = distances(seed, n)
    expected = fcluster(scipy_linkage(squareform(square), linkage), threshold, "distance")
    assert np.array_equal(together(agglomerate(square, threshold, linkage)), together(expected))


@given(square=with_ties(), linkage=WORDS)
def test_agglomerate_into_gives_exactly_k_clusters_with_ties_too(square: Array, linkage: Linkage) -> None:
    for k in range(1, len(square) + 1):
        assert len(set(agglomerate_into(square, k, linkage))) == k


@pytest.mark.parametrize("linkage", LINKAGES)
def test_agglomerate_into_gives_exactly_k_clusters_when_all_are_equally_far(linkage: Linkage) -> None:
    for square in (np.zeros((7, 7)), 1 - np.eye(7)):
        assert [len(set(agglomerate_into(square, k, linkage))) for k in range(1, 8)] == list(range(1, 8))


@given(seed=SEEDS, n=SIZES, linkage=WORDS)
def test_agglomerate_into_is_scipys_maxclust_where_there_are_no_ties(seed: int, n: int, linkage: Linkage) -> None:
    square = distances(seed, n)
    tree = scipy_linkage(squareform(square), linkage)
    for k in range(1, n + 1):
        expected = fcluster(tree, k, "maxclust")
        assert np.array_equal(together(agglomerate_into(square, k, linkage)), together(expected))


@given(square=with_ties(), linkage=WORDS)
def test_every_number_of_clusters_refines_the_one_below(square: Array, linkage: Linkage) -> None:
    for k in range(2, len(square) + 1):
        coarse, fine = (together(agglomerate_into(square, j, linkage)) for j in (k - 1, k))
        assert (fine <= coarse).all()


@given(square=with_ties(), linkage=WORDS, threshold=st.floats(0, 5))
def test_labels_count_from_0_in_the_order_of_first_members(square: Array, linkage: Linkage, threshold: float) -> None:
    for labels in (agglomerate(square, threshold, linkage), agglomerate_into(square, len(square) // 2, linkage)):
        assert labels.dtype == np.intp
        assert list(dict.fromkeys(labels)) == list(range(labels.max() + 1))


@given(seed=SEEDS, n=SIZES, threshold=st.floats(0, 120), linkage=WORDS)
def test_labels_follow_a_permutation_of_clients(seed: int, n: int, threshold: float, linkage: Linkage) -> None:
    square = distances(seed, n)
    order = np.random.default_rng(seed).permutation(n)
    shuffled = square[np.ix_(order, order)]
    expected = together(agglomerate(square, threshold, linkage))[np.ix_(order, order)]
    assert np.array_equal(together(agglomerate(shuffled, threshold, linkage)), expected)
    expected = together(agglomerate_into(square, 2, linkage))[np.ix_(order, order)]
    assert np.array_equal(together(agglomerate_into(shuffled, 2, linkage)), expected)


@pytest.mark.parametrize("linkage", LINKAGES)
def test_a_merge_at_the_threshold_is_done_and_one_above_it_undone(linkage: Linkage) -> None:
    square = [[0, 5], [5, 0]]
    assert agglomerate(square, 5.0, linkage).tolist() == [0, 0]
    assert agglomerate(square, np.nextafter(5.0, 0), linkage).tolist() == [0, 1]


@pytest.mark.parametrize("linkage", LINKAGES)
def test_an_infinite_threshold_joins_all_and_one_below_every_angle_none(linkage: Linkage) -> None:
    square = distances(0, 6)
    assert agglomerate(square, np.inf, linkage).tolist() == [0] * 6
    assert agglomerate(square, 0.0, linkage).tolist() == list(range(6))


def test_weighted_and_average_differ_by_sizes() -> None:
    """Clients 0, 1, 2 join first, in two steps. To client 3 they are at 2, 8, 8.

    average: (2 + 8 + 8) / 3 = 6. weighted: 0 and 1 are at (2 + 8) / 2 = 5, and with 2 at (5 + 8) / 2 = 6.5.
    """
    square = squareform([1.0, 1.5, 2.0, 1.5, 8.0, 8.0])
    assert dendrogram(square, "average")[-1, 2] == 6
    assert dendrogram(square, "weighted")[-1, 2] == 6.5
    assert agglomerate(square, 6.2, "average").tolist() == [0, 0, 0, 0]
    assert agglomerate(square, 6.2, "weighted").tolist() == [0, 0, 0, 1]


@pytest.mark.parametrize("linkage", LINKAGES)
def test_one_client_is_one_cluster(linkage: Linkage) -> None:
    assert agglomerate([[0.0]], 1.0, linkage).tolist() == [0]
    assert agglomerate_into([[0.0]], 1, linkage).tolist() == [0]


@given(st.lists(st.sampled_from("abcde"), min_size=1, max_size=12))
def test_names_in_order_of_appearance_preserve_the_clusters(names: list[str]) -> None:
    labels = in_order_of_appearance(names)
    assert np.array_equal(together(labels), together(names))
    assert list(dict.fromkeys(labels)) == list(range(len(set(names))))


REFUSALS: dict[str, tuple[ArrayLike, str]] = {
    "not square": (np.zeros((2, 3)), r"must be square, .*, got shape \(2, 3\)"),
    "condensed": ([1.0, 2.0, 3.0], r"must be square, .*, got shape \(3,\)"),
    "empty": (np.zeros((0, 0)), r"must be square, .*, got shape \(0, 0\)"),
    "nan": ([[0, np.nan], [np.nan, 0]], "must be finite and not negative"),
    "infinite": ([[0, np.inf], [np.inf, 0]], "must be finite and not negative"),
    "negative": ([[0, -1], [-1, 0]], "must be finite and not negative"),
    "not symmetric": ([[0, 1], [2, 0]], "must be symmetric with a zero diagonal"),
    "a similarity": ([[1, 0.5], [0.5, 1]], "must be symmetric with a zero diagonal"),
}


@pytest.mark.parametrize(("square", "text"), REFUSALS.values(), ids=REFUSALS)
def test_an_invalid_proximity_is_refused(square: ArrayLike, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        agglomerate(square, 1.0)
    with pytest.raises(ValueError, match=text):
        agglomerate_into(square, 1)


@pytest.mark.parametrize("threshold", [np.nan, -np.inf])
def test_a_threshold_that_is_nan_or_minus_infinity_is_refused(threshold: float) -> None:
    with pytest.raises(ValueError, match=f"threshold must not be NaN or -infinity, got {threshold}"):
        agglomerate(np.zeros((2, 2)), threshold)


@pytest.mark.parametrize("k", [0, -1, 4])
def test_a_number_of_clusters_that_cannot_be_is_refused(k: int) -> None:
    with pytest.raises(ValueError, match=f"between 1 and the number of clients, 3; got {k}"):
        agglomerate_into(np.zeros((3, 3)), k)


def test_the_error_for_an_unknown_linkage_names_the_known_ones() -> None:
    with pytest.raises(ValueError, match="one of average, weighted, complete, single, ward, got 'centroid'"):
        agglomerate(np.zeros((2, 2)), 1.0, "centroid")  # type: ignore[arg-type]
