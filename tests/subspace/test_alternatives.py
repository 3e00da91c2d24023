import sys

import numpy as np
import pytest
from scipy.spatial.distance import pdist, squareform

from pacfl.subspace import adjusted_rand_index
from pacfl.subspace.alternatives import communities, density

METHODS = {"density": density, "communities": lambda proximity: communities(proximity, scale=1.0)}


@pytest.fixture(params=METHODS)
def method(request):
    pytest.importorskip("sklearn")
    pytest.importorskip("networkx")
    return METHODS[request.param]


def noisy_clients(centres, seed=0, dimensions=30):
    """Proximity, in units of noise, of clients around the given centres along one direction."""
    noise = np.random.default_rng(seed).standard_normal((len(centres), dimensions)) / np.sqrt(2 * dimensions)
    noise[:, 0] += centres
    return squareform(pdist(noise))


def test_blocks_are_found(method):
    true_cluster = np.repeat([0, 1, 2], [20, 12, 5])
    assert adjusted_rand_index(method(noisy_clients(true_cluster * 8.0)), true_cluster) == 1.0


@pytest.mark.parametrize("seed", range(5))
def test_a_homogeneous_federation_is_one_cluster(method, seed):
    assert not method(noisy_clients(np.zeros(40), seed)).any()


def test_labels_are_named_in_order_of_appearance(method):
    true_cluster = np.array([0, 1, 1, 0, 2, 2, 0, 1, 2])
    np.testing.assert_array_equal(method(noisy_clients(true_cluster * 20.0)), true_cluster)


def test_the_order_of_clients_does_not_matter_to_blocks(method):
    true_cluster = np.repeat([0, 1, 2], [20, 12, 5])
    order = np.random.default_rng(1).permutation(len(true_cluster))
    angles = noisy_clients(true_cluster * 8.0)
    assert adjusted_rand_index(method(angles[np.ix_(order, order)]), true_cluster[order]) == 1.0


def test_the_same_proximity_gives_the_same_clusters(method):
    angles = noisy_clients(np.random.default_rng(2).normal(0, 2, 50))
    before = angles.copy()
    np.testing.assert_array_equal(method(angles), method(angles))
    np.testing.assert_array_equal(angles, before)


def test_a_client_alone_is_a_cluster(method):
    np.testing.assert_array_equal(method([[0.0]]), [0])


def test_equal_clients_are_one_cluster(method):
    np.testing.assert_array_equal(method(np.zeros((6, 6))), np.zeros(6))


def test_an_invalid_proximity_is_refused(method):
    with pytest.raises(ValueError, match="square"):
        method(np.zeros((2, 3)))


def test_density_leaves_no_client_unclustered():
    """A client without neighbours is noise to HDBSCAN; it joins the nearest cluster."""
    pytest.importorskip("sklearn")
    angles = noisy_clients(np.array([*[0.0] * 10, *[30.0] * 10, 24.0]))
    labels = density(angles)
    assert labels[-1] == labels[10] != labels[0]


def test_communities_find_a_single_client_of_its_own_distribution():
    pytest.importorskip("networkx")
    labels = communities(noisy_clients(np.array([*[0.0] * 20, 6.0])), scale=1.0)
    np.testing.assert_array_equal(labels, [*[0] * 20, 1])


def test_communities_join_where_the_difference_is_below_the_noise():
    """Pairs of two groups at √(1 + d²) noise scales are merged below √2 of them, that is d = 1, and not above."""
    pytest.importorskip("networkx")
    true_cluster = np.repeat([0, 1], 30)
    assert not communities(noisy_clients(true_cluster * 0.8), scale=1.0).any()
    assert adjusted_rand_index(communities(noisy_clients(true_cluster * 1.2), scale=1.0), true_cluster) == 1.0


def test_communities_do_not_depend_on_the_unit():
    pytest.importorskip("networkx")
    angles = noisy_clients(np.random.default_rng(3).normal(0, 2, 50))
    np.testing.assert_array_equal(communities(angles, scale=1.0), communities(angles * 7, scale=7.0))


@pytest.mark.parametrize("scale", [0.0, -1.0, np.nan, np.inf])
def test_a_scale_that_is_none_is_refused(scale):
    with pytest.raises(ValueError, match="scale"):
        communities(np.zeros((3, 3)), scale=scale)


def test_a_cluster_of_one_is_not_dense():
    with pytest.raises(ValueError, match="at least 2"):
        density(np.zeros((3, 3)), min_cluster_size=1)


@pytest.mark.parametrize(("name", "module"), [("density", "sklearn.cluster"), ("communities", "networkx")])
def test_a_missing_library_is_named_with_the_way_to_get_it(monkeypatch, name, module):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=r"pip install 'pacfl\[methods\]'"):
        METHODS[name](np.zeros((3, 3)))
