"""Laws of clustering by landmarks."""

import numpy as np
import pytest
from numpy.typing import NDArray

from benchmarks.million import Simulated, simulated
from pacfl.subspace import adjusted_rand_index, cluster, evidence_of, landmarks
from pacfl.subspace.clustering import Clustering
from pacfl.subspace.landmarks import advance, begin, cluster_by_landmarks, completed
from pacfl.subspace.many import ManyClients

FEATURES = 32


def of(clients: Simulated, sample: int = 200, **how: object) -> Clustering:
    return cluster_by_landmarks(clients.bases, clients.split_half_angles, sample=sample, **how)  # type: ignore[arg-type]


def agreement(a: NDArray[np.intp], b: NDArray[np.intp]) -> float:
    return float(adjusted_rand_index(a, b))


@pytest.mark.parametrize("apart", [4.0, 8.0])
@pytest.mark.usefixtures("few_simulations")
def test_landmarks_find_what_all_pairs_show(apart: float) -> None:
    clients = simulated([500, 200, 30], FEATURES, apart=apart)
    exact = cluster(clients.bases, clients.split_half_angles, method="exact")
    assert agreement(exact.labels, clients.groups) == 1
    for sample in (150, 1000):
        assert agreement(of(clients, sample).labels, exact.labels) == 1


@pytest.mark.usefixtures("few_simulations")
def test_a_group_of_which_no_landmark_is_a_member_is_found() -> None:
    """20 of 20,000 clients; one in a hundred is in the first sample."""
    clients = simulated([19_980, 20], FEATURES)
    found = of(clients)
    assert agreement(found.labels, clients.groups) == 1
    assert found.landmarks is not None
    assert found.evidence["finding"] == "distinct"


@pytest.mark.usefixtures("few_simulations")
def test_many_small_groups_are_found_in_several_rounds() -> None:
    clients = simulated([1000, *[25] * 20], FEATURES, apart=12.0)
    assert agreement(of(clients, 60).labels, clients.groups) == 1


@pytest.mark.parametrize("seed", range(2))
def test_a_homogeneous_federation_is_one_cluster(seed: int) -> None:
    clients = simulated([6000], FEATURES, seed=seed)
    found = of(clients)
    assert found.labels.max() == 0
    assert found.evidence["finding"] == "homogeneous"


@pytest.mark.usefixtures("few_simulations")
def test_the_order_of_clients_changes_only_the_numbers() -> None:
    clients = simulated([900, 400, 20], FEATURES)
    order = np.random.default_rng(0).permutation(len(clients.bases))
    found, other = of(clients), of(Simulated(*(part[order] for part in clients)))
    assert found.landmarks is not None
    assert other.landmarks is not None
    assert np.array_equal(found.landmarks.clients, order[other.landmarks.clients])
    assert agreement(found.labels[order], other.labels) == 1
    assert other.labels[0] == 0


@pytest.mark.usefixtures("few_simulations")
def test_two_seeds_agree() -> None:
    clients = simulated([900, 400, 20], FEATURES)
    assert agreement(of(clients, seed=0).labels, of(clients, seed=1).labels) == 1


@pytest.mark.usefixtures("few_simulations")
def test_rounding_to_float16_is_within_the_noise() -> None:
    half, single = (simulated([900, 400, 20], FEATURES, dtype=dtype) for dtype in ("float16", "float32"))
    found, other = of(half), of(single)
    assert agreement(found.labels, other.labels) == 1
    assert np.allclose(found.noise_scale, other.noise_scale, rtol=1e-3)


@pytest.mark.usefixtures("few_simulations")
def test_who_has_no_split_half_angles_or_too_much_noise_joins_nobody() -> None:
    clients = simulated([900, 400], FEATURES)
    clients.split_half_angles[:2] = np.nan
    clients.split_half_angles[2] = 80.0
    found = of(clients)
    assert (found.labels[:3] == -1).all()
    assert (found.labels[3:] >= 0).all()
    assert set(found.evidence["not_judged"]) == {"0", "1", "2"}
    assert "noise of 80" in found.evidence["not_judged"]["2"]
    assert agreement(found.labels[3:], clients.groups[3:]) == 1


@pytest.mark.usefixtures("few_simulations")
def test_nothing_is_found_where_nobody_can_be_judged() -> None:
    clients = simulated([30], FEATURES)
    clients.split_half_angles[:] = 85.0
    found = of(clients)
    assert (found.labels == -1).all()
    assert found.evidence["finding"] == "undetermined"


@pytest.mark.usefixtures("few_simulations")
def test_a_placing_that_was_interrupted_resumes(monkeypatch: pytest.MonkeyPatch) -> None:
    """After any step, from what `Placing` has."""
    monkeypatch.setattr(landmarks, "AT_ONCE", 500)
    data = simulated([1500, 600, 15], FEATURES)
    clients = ManyClients(data.bases, data.split_half_angles, "smallest")
    steps = [begin(clients, sample=150)]
    while not steps[-1].finished:
        steps.append(advance(clients, steps[-1], 150))
    whole = completed(clients, steps[-1])
    assert len(steps) > 5
    for step in (steps[1], steps[-3]):
        placing, again = step, ManyClients(data.bases, data.split_half_angles, "smallest")
        while not placing.finished:
            placing = advance(again, placing, 150)
        assert np.array_equal(completed(again, placing).labels, whole.labels)
    assert agreement(whole.labels, data.groups) == 1


@pytest.mark.usefixtures("few_simulations")
def test_the_threshold_cuts_the_angles_between_landmarks() -> None:
    clients = simulated([900, 400], FEATURES)
    found = of(clients)
    assert found.landmarks is not None
    own = found.labels[found.landmarks.clients]
    assert found.distances().shape == (200, 200)
    same = np.equal.outer(own, own)
    assert found.distances()[~same].min() > found.threshold > np.median(found.distances()[same])
    assert evidence_of(found).reasons.startswith("2 clusters of 1,300 clients by landmarks: 200 were clustered")
    assert not evidence_of(found).guaranteed


@pytest.mark.usefixtures("few_simulations")
def test_signatures_with_fewer_directions_end_in_zeros() -> None:
    clients = simulated([300, 100], FEATURES, apart=15.0)
    clients.bases[::7, :, 2] = 0
    exact = cluster(clients.bases, clients.split_half_angles, method="exact")
    assert agreement(of(clients, 100).labels, exact.labels) == 1
    assert agreement(exact.labels, clients.groups) == 1


def test_what_landmarks_cannot_do_is_refused() -> None:
    clients = simulated([20], FEATURES)
    own = clients.split_half_angles
    with pytest.raises(ValueError, match="average linkage at the automatic threshold"):
        cluster(clients.bases, own, method="landmarks", n_clusters=2)
    with pytest.raises(ValueError, match=r"landmarks need bases \(n, features, rank\), got an array of shape \(2, 2\)"):
        cluster(np.zeros((2, 2)), None, method="landmarks")
    with pytest.raises(ValueError, match="method must be one of auto, exact, landmarks, got 'fast'"):
        cluster(clients.bases, own, method="fast")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="no client has split-half angles"):
        cluster(clients.bases, own * np.nan, method="landmarks")
    with pytest.raises(ValueError, match=r"must be \(20, splits\), one row a client, got \(3, 32\)"):
        cluster(clients.bases, own[:3], method="landmarks")


@pytest.mark.slow
def test_a_hundred_thousand_clients() -> None:
    """The reduced form of the benchmark of a million."""
    clients = simulated([66_517, 33_333, 100, 50], 64)
    found = cluster(clients.bases, clients.split_half_angles)
    assert found.landmarks is not None
    assert agreement(found.labels, clients.groups) > 0.99
    assert int(found.labels.max()) + 1 == 4
