"""Laws of clusters whose pairs carry unequal evidence, and of noise where it is hardly measured."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pacfl.subspace import ClientSignature, class_signatures, cluster_clients, signature
from pacfl.subspace.hierarchy import in_order_of_appearance
from pacfl.subspace.pairs import ClassPairs
from pacfl.subspace.weighted import _Clusters


def random_pairs(rng: np.random.Generator, n: int) -> ClassPairs:
    """Comparisons of n clients; half of the pairs have no evidence."""
    weights = np.triu(rng.gamma(2, 1, (n, n)) * (rng.random((n, n)) < 0.5), 1)
    weights += weights.T
    ratios = np.triu(rng.chisquare(3, (n, n)), 1)
    return ClassPairs(weights * (ratios + ratios.T), weights, weights**2)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 12), st.integers(1, 6))
def test_clusters_of_clients_that_moved_are_those_made_afresh(seed: int, n: int, most: int) -> None:
    rng = np.random.default_rng(seed)
    pairs, start = random_pairs(rng, n), in_order_of_appearance(rng.integers(0, most, n))
    to = np.where(rng.random(n) < 0.3, rng.integers(0, start.max() + 1, n), start)
    moved, afresh = _Clusters.of(pairs, start).moved(to), _Clusters.of(pairs, in_order_of_appearance(to))
    np.testing.assert_array_equal(moved.labels, afresh.labels)
    np.testing.assert_allclose(moved.sums, afresh.sums, atol=1e-12)
    np.testing.assert_array_equal(moved.sums == 0, afresh.sums == 0, "no evidence is none exactly")


@pytest.mark.parametrize("seed", [0, 2, 3])
def test_few_equal_samples_do_not_prove_that_a_class_has_no_noise(seed: int) -> None:
    """Four of five samples of class 1 are one point. Some clients have nothing else, and angles of 0 between halves."""
    rng = np.random.default_rng(seed)
    clients = []
    for _ in range(100):
        y = np.sort(rng.random(int(rng.integers(5, 21))) < rng.random())
        other = np.where(y, rng.random(len(y)) > 0.8, True)
        x = np.eye(5)[2] + 0.4 * np.abs(rng.standard_normal((len(y), 5))) * other[:, None]
        clients.append(ClientSignature(signature(x, 1), np.empty(0), class_signatures(x, y.astype(int))))
    found = cluster_clients(clients, "classes")
    assert found.labels.max() == 0
    assert found.evidence["guaranteed"]
