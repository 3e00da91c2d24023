import numpy as np
import pytest

from pacfl.subspace import (
    Clustering,
    agglomerate,
    assign_newcomers,
    choose_threshold,
    cluster,
    proximity,
    signature,
    split_half_angles,
)


def samples(kind: int, seed: int) -> np.ndarray:
    """Data of 30 features along one of three directions."""
    rng = np.random.default_rng([kind, seed])
    x = rng.normal(size=(80, 30)) * np.linspace(1.5, 0.3, 30)
    x[:, 10 * kind : 10 * kind + 3] += 4
    return x


OLD = [samples(i % 2, i) for i in range(10)]
BASES = [signature(x, 2) for x in OLD]
OWN = [split_half_angles(x, 2)["smallest"] for x in OLD]


def grouped(**how: float) -> Clustering:
    return cluster(proximity(BASES), OWN, **how)


def test_without_orders_the_noise_decides() -> None:
    choice = choose_threshold(proximity(BASES), OWN)
    clustering = grouped()
    assert np.array_equal(clustering.labels, choice.labels)
    assert clustering.threshold == choice.threshold
    assert clustering.evidence["finding"] == choice.evidence.finding == "distinct"


@pytest.mark.parametrize("how", [{}, {"threshold": 20.0}, {"n_clusters": 1}, {"n_clusters": 4}, {"n_clusters": 10}])
def test_the_threshold_cuts_the_distances_into_the_labels(how: dict[str, float]) -> None:
    clustering = grouped(**how)
    assert np.array_equal(agglomerate(clustering.distances(), clustering.threshold), clustering.labels)


def test_two_orders_are_refused() -> None:
    with pytest.raises(ValueError, match="not both"):
        grouped(threshold=5.0, n_clusters=2)


def test_newcomers_are_placed_as_if_everybody_had_come_at_once() -> None:
    late = [samples(0, 98), samples(1, 99)]
    bases, own = [signature(x, 2) for x in late], [split_half_angles(x, 2)["smallest"] for x in late]
    larger, bridges = assign_newcomers(grouped(), BASES, bases, own)
    at_once = cluster(proximity([*BASES, *bases]), [*OWN, *own])
    assert np.array_equal(larger.labels, at_once.labels)
    assert np.allclose(larger.proximity, at_once.proximity, atol=1e-9)
    assert np.allclose(larger.noise_scale, at_once.noise_scale)
    assert bridges == ()


def test_a_newcomer_of_another_kind_opens_a_cluster() -> None:
    x = samples(2, 0)
    larger, _ = assign_newcomers(grouped(), BASES, [signature(x, 2)], [split_half_angles(x, 2)["smallest"]])
    assert larger.labels.tolist() == [*grouped().labels.tolist(), 2]
