import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.cluster.hierarchy import dendrogram as scipy_dendrogram
from scipy.cluster.hierarchy import fcluster

from pacfl.report.dendrogram import MOST_CELLS, drawing, heat, neighbours
from pacfl.subspace import agreement
from pacfl.subspace.hierarchy import LINKAGES, Linkage, dendrogram


def square(values: np.ndarray) -> np.ndarray:
    both = values + values.T
    np.fill_diagonal(both, 0.0)
    return both


# Few different angles, so that many merges stand at equal heights
squares = (
    st.integers(2, 14).flatmap(lambda n: arrays(np.float64, (n, n), elements=st.integers(0, 6).map(float))).map(square)
)


def labels_between_walls(walls: np.ndarray, order: np.ndarray, beta: float) -> np.ndarray:
    labels = np.empty(len(order), dtype=int)
    labels[order] = np.concatenate([[0], np.cumsum(walls > beta)])
    return labels


@given(squares, st.sampled_from(LINKAGES), st.data())
def test_clusters_between_walls_are_those_of_scipys_cut(
    proximity: np.ndarray, linkage: Linkage, data: st.DataObject
) -> None:
    merges = dendrogram(proximity, linkage)
    drawn = drawing(merges)
    at_a_merge = st.sampled_from(merges[:, 2].tolist())
    beta = data.draw(st.one_of(at_a_merge, st.floats(0, float(merges[-1, 2]) * 1.1)))
    expected = fcluster(merges, beta, "distance")
    assert agreement.adjusted_rand_index(labels_between_walls(drawn.walls, drawn.order, beta), expected) == 1.0
    assert 1 + (drawn.walls > beta).sum() == len(np.unique(expected))


@given(squares, st.sampled_from(LINKAGES))
def test_brackets_are_those_that_scipy_draws(proximity: np.ndarray, linkage: Linkage) -> None:
    """scipy's leaves stand at 5, 15, 25, ..."""
    merges = dendrogram(proximity, linkage)
    drawn = drawing(merges)
    scipys = scipy_dendrogram(merges, no_plot=True)
    assert drawn.order.tolist() == scipys["leaves"]
    feet, (low, top) = drawn.feet * 10 + 5, (drawn.starts, drawn.tops)
    ours = sorted((a, low_a, h, b, low_b) for (a, b), (low_a, low_b), h in zip(feet, low, top, strict=True))
    theirs = sorted((x[0], y[0], y[1], x[2], y[3]) for x, y in zip(scipys["icoord"], scipys["dcoord"], strict=True))
    np.testing.assert_allclose(ours, theirs)


def test_a_small_heat_map_is_the_matrix_itself() -> None:
    proximity = square(np.random.default_rng(0).random((5, 5)))
    order = np.array([3, 1, 4, 0, 2])
    assert heat(proximity, order).tolist() == [[proximity[a, b] for b in order] for a in order]


def test_a_large_heat_map_keeps_the_sum_and_what_stands_where() -> None:
    n = MOST_CELLS * 2 + 100
    proximity = np.zeros((n, n))
    proximity[: n // 2, n // 2 :] = proximity[n // 2 :, : n // 2] = 8.0
    blocks = heat(proximity, np.arange(n))
    assert blocks.shape == (MOST_CELLS, MOST_CELLS)
    assert blocks[0, 0] == 0.0
    assert blocks[0, -1] == 8.0
    sizes = np.diff([*(np.arange(MOST_CELLS) * n // MOST_CELLS), n])
    assert (blocks * np.outer(sizes, sizes)).sum() == pytest.approx(proximity.sum())


@given(squares)
def test_neighbours_are_the_nearest_others_nearest_first(proximity: np.ndarray) -> None:
    near, angles = neighbours(proximity, most=3)
    for i, row in enumerate(proximity):
        others = np.delete(np.arange(len(row)), i)
        assert i not in near[i]
        assert len(set(near[i].tolist())) == min(3, len(others))
        assert angles[i].tolist() == sorted(row[others])[: len(near[i])]
        assert angles[i].tolist() == row[near[i]].tolist()
