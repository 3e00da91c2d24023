"""Laws of projections of signatures onto fewer dimensions."""

import numpy as np
import pytest

from benchmarks.million import simulated
from pacfl.subspace import adjusted_rand_index, cluster, proximity, rescale_by_noise
from pacfl.subspace.sketch import projection, sketched, widened

FEATURES, DIMENSIONS = 400, 64


def test_a_projection_is_orthonormal_and_that_of_its_seed() -> None:
    onto = projection(FEATURES, DIMENSIONS, seed=5)
    assert np.allclose(onto.T @ onto, np.eye(DIMENSIONS), atol=1e-5)
    assert np.array_equal(onto, projection(FEATURES, DIMENSIONS, seed=5))
    assert not np.allclose(onto, projection(FEATURES, DIMENSIONS, seed=6))


def test_a_projection_onto_all_dimensions_changes_no_angle() -> None:
    bases = simulated([20, 10], 30, dtype="float32").bases
    turned = sketched(bases, projection(30, 30))
    assert np.allclose(proximity(turned), proximity(bases), atol=2e-3)


def test_sketches_are_orthonormal_and_zeros_stay() -> None:
    bases = simulated([20], FEATURES, dtype="float32").bases
    bases[3, :, 2] = 0
    found = sketched(bases, projection(FEATURES, DIMENSIONS))
    gram = np.einsum("nfa,nfb->nab", found, found)
    assert np.allclose(np.delete(gram, 3, axis=0), np.eye(3), atol=1e-5)
    assert np.allclose(gram[3], np.diag([1, 1, 0]), atol=1e-5)


@pytest.mark.parametrize("dimensions", [32, 64, 256])
def test_noise_in_a_sketch_is_within_the_widened_noise(dimensions: int) -> None:
    """In the root mean square over pairs of one group, for each of eight projections; and not far below it.

    The smallest of three angles falls where noise has fewer dimensions: to 0.7 times in 32.
    """
    clients = simulated([60], FEATURES, dtype="float32")
    for seed in range(8):
        angles = proximity(sketched(clients.bases, projection(FEATURES, dimensions, seed)))
        own = widened(clients.split_half_angles, FEATURES, dimensions)
        ratios = rescale_by_noise(angles, np.sqrt((own**2).mean(axis=1)), 1.0)
        within = np.sqrt((ratios[~np.eye(60, dtype=bool)] ** 2).mean())
        assert 0.6 < within < 1.02


def test_split_half_angles_of_a_sketch_spread_more() -> None:
    angles = simulated([200], FEATURES).split_half_angles
    wide = widened(angles, FEATURES, DIMENSIONS)
    relative = [(a / a.mean(axis=1, keepdims=True)).std() for a in (angles, wide)]
    assert relative[1] > relative[0]
    assert np.array_equal(widened(angles, FEATURES, FEATURES), angles)
    missing = angles.copy()
    missing[0] = np.nan
    assert np.isnan(widened(missing, FEATURES, DIMENSIONS)[0]).all()
    assert widened(np.full((3, 32), 89.0), FEATURES, DIMENSIONS).max() == 90


@pytest.mark.usefixtures("few_simulations")
def test_groups_are_found_in_a_sketch_and_homogeneous_federations_are_not_split() -> None:
    onto = projection(FEATURES, DIMENSIONS)
    for sizes in ([300], [250, 50]):
        clients = simulated(sizes, FEATURES, dtype="float32")
        own = widened(clients.split_half_angles, FEATURES, DIMENSIONS)
        found = cluster(sketched(clients.bases, onto), own)
        assert adjusted_rand_index(found.labels, clients.groups) == 1


def test_what_is_no_sketch_is_refused() -> None:
    with pytest.raises(ValueError, match="got 80 of 60"):
        projection(60, 80)
    with pytest.raises(ValueError, match="needs 12 dimensions or more, got 8"):
        sketched(np.zeros((2, 60, 3)), projection(60, 8))
    with pytest.raises(ValueError, match="bases have 50 features, the projection 60"):
        sketched(np.zeros((2, 50, 3)), projection(60, 20))
