"""Clusters by classes and updates together, by hand."""

from collections.abc import Sequence

import numpy as np
import pytest
from scipy.special import softmax

from pacfl.algorithms import FedDAGClusters
from pacfl.errors import ConfigError, InvalidReplyError
from pacfl.federation.joint_angles import class_angles, combined, learned, scaled, update_angles
from pacfl.federation.message import Message
from pacfl.learning.settings import LocalTraining
from tests.small_federation import model, side

NORTH, EAST, BETWEEN = (0.0, 1.0), (1.0, 0.0), (0.5**0.5, 0.5**0.5)


def report(
    classes: dict[int, tuple[int, tuple[float, float]]], update: Sequence[float] = (1.0, 0.0), rank: int = 1
) -> Message:
    """Counts and one direction in the plane by class; other directions are missing."""
    directions = np.zeros((len(classes), 2, rank), dtype=np.float16)
    for k, (_, direction) in enumerate(classes.values()):
        directions[k, :, 0] = direction
    return {
        "class_names": np.array(list(classes), dtype=np.int64),
        "class_sizes": np.array([n for n, _ in classes.values()], dtype=np.int64),
        "class_directions": directions,
        "update": np.float32(update),
    }


THREE = (
    report({0: (1, EAST), 1: (1, EAST)}),
    report({0: (3, NORTH)}),
    report({1: (1, BETWEEN)}),
)


def test_class_angles_by_hand() -> None:
    """ln(n + 1) of class 0 are ln 2 and ln 4, with ratio 2, of class 1 twice ln 2, with ratio 1: weights of 1.5 and
    0.5. A class that one of two has alone counts 90 · 1.5. So (135 + 135) / 2, (135 + 22.5) / 2 and (135 + 135) / 2.
    """
    expected = [[0, 135, 78.75], [135, 0, 135], [78.75, 135, 0]]
    np.testing.assert_allclose(class_angles(THREE, 0.5), expected, atol=0.05)
    np.testing.assert_allclose(class_angles(THREE, 0.0)[0], [0, 90, 67.5], atol=0.05)


def test_the_smallest_principal_angle_counts_and_missing_directions_do_not() -> None:
    """The planes of east with up, and north with up, share a line; a direction of zeros is none."""
    one, other = np.zeros((1, 3, 2), np.float16), np.zeros((1, 3, 2), np.float16)
    one[0, [0, 2], [0, 1]] = other[0, [1, 2], [0, 1]] = 1
    base = report({0: (5, EAST)})
    assert class_angles([{**base, "class_directions": one}, {**base, "class_directions": other}], 0.0)[0, 1] == 0
    one[0, 2, 1] = 0
    assert class_angles([{**base, "class_directions": one}, {**base, "class_directions": other}], 0.0)[0, 1] == 90


def test_update_angles_and_scales_by_hand() -> None:
    """45, 90 and 135 degrees become 0, 0.5 and 1. An update of zeros is at 90 degrees to all."""
    angles = update_angles(np.float32([[1, 0], [1, 1], [-1, 1]]))
    np.testing.assert_allclose(angles[np.triu_indices(3, 1)], [45, 135, 90], atol=1e-5)
    np.testing.assert_allclose(scaled(angles), [[0, 0, 1], [0, 0, 0.5], [1, 0.5, 0]], atol=1e-6)
    assert update_angles(np.float32([[0, 0], [1, 1]]))[0, 1] == 90
    assert scaled(np.ones((3, 3))).tolist() == np.zeros((3, 3)).tolist()


def entropy(updates: np.ndarray, data: np.ndarray, w: np.ndarray) -> float:
    shares = softmax(combined(updates, data, w), axis=1)
    return float(-(shares * np.log(shares)).sum())


@pytest.mark.parametrize("seed", range(3))
def test_no_other_weight_of_a_client_has_less_entropy_nearby(seed: int) -> None:
    rng = np.random.default_rng(seed)
    updates, data = (scaled(half + half.T) for half in rng.random((2, 6, 6)))
    w = learned(updates, data)
    least = entropy(updates, data, w)
    assert least < entropy(updates, data, np.full(6, 0.5))
    for i in range(6):
        for step in (-0.01, 0.01):
            moved = w.copy()
            moved[i] = np.clip(w[i] + step, 0, 1)
            assert entropy(updates, data, moved) >= least - 1e-9


# Clients 0 and 1 have the same classes, as 2 and 3 have; 0 and 2 have the same updates, as 1 and 3 have
FOUR = {
    0: report({0: (5, EAST)}, (1, 0), rank=3),
    1: report({0: (5, EAST)}, (0, 1), rank=3),
    2: report({0: (5, NORTH)}, (1, 0), rank=3),
    3: report({0: (5, NORTH)}, (0, 1), rank=3),
}


@pytest.mark.parametrize(("weight", "clusters"), [(0.0, [0, 0, 1, 1]), (0.4, [0, 0, 1, 1]), (0.6, [0, 1, 0, 1])])
def test_the_weight_decides_between_classes_and_updates(weight: float, clusters: list[int]) -> None:
    feddag = FedDAGClusters(gradient_weight=weight)
    assert list(feddag.admit(feddag.init_server(model()), FOUR).cluster_of.values()) == clusters


def test_a_threshold_may_take_the_place_of_a_number() -> None:
    """With a weight of 0.4 distances are 0.4, 0.6 and 1: pairs at 0.4, and all at (0.6 + 1) / 2."""
    for threshold, n_clusters in ((0.39, 4), (0.41, 2), (0.79, 2), (0.81, 1)):
        feddag = FedDAGClusters(threshold=threshold, gradient_weight=0.4)
        state = feddag.admit(feddag.init_server(model()), FOUR)
        assert len(state.models) == len(set(state.cluster_of.values())) == n_clusters


def test_newcomers_are_in_the_nearest_cluster_and_nobody_else_moves() -> None:
    feddag = FedDAGClusters(gradient_weight=0.0)
    state = feddag.admit(feddag.init_server(model()), FOUR)
    new = {8: report({0: (5, (0.6, 0.8))}, (1, 0), rank=3), 9: report({0: (5, (0.8, 0.6))}, (0, 1), rank=3)}
    assert feddag.admit(state, new).cluster_of == {0: 0, 1: 0, 2: 1, 3: 1, 8: 1, 9: 0}
    assert feddag.admit(state, {0: FOUR[3]}).cluster_of == {0: 1, 1: 0, 2: 1, 3: 1}


# What clients send


def test_a_report_has_every_class_and_a_part_of_the_update_that_is_the_same_for_all() -> None:
    feddag = FedDAGClusters(coordinates=0.1)
    clients = side(feddag)
    sent = [clients.profile(0, c) for c in range(3)]
    for c, own in enumerate(sent):
        y = clients.pool.train.y[clients.pool.client_indices[c].train]
        names, counts = np.unique(y, return_counts=True)
        assert own["class_names"].tolist() == names.tolist()
        assert own["class_sizes"].tolist() == counts.tolist()
        assert own["class_directions"].shape == (len(names), 64, 3)
        assert own["update"].shape == (61,)
        feddag.check_profile(model(), own)
    whole = side(FedDAGClusters(coordinates=1.0)).profile(0, 0)["update"]
    assert np.isin(sent[0]["update"], whole).all()


@pytest.mark.parametrize(
    ("arrays", "why"),
    [
        ({"class_sizes": np.array([5, 5])}, "has 1 classes, 2 counts"),
        ({"class_sizes": np.array([0])}, "counts of 0 or more"),
        ({"class_directions": np.full((1, 2, 3), 2.0, np.float16)}, "lengths up to 2.83"),
        ({"update": np.zeros(3, np.float32)}, "'update' is float32 of shape"),
    ],
)
def test_reports_that_are_none_are_refused(arrays: Message, why: str) -> None:
    feddag = FedDAGClusters()
    valid = {**FOUR[0], "update": np.zeros(12, np.float32)}
    feddag.check_profile(model(), valid)
    with pytest.raises(InvalidReplyError, match=why):
        feddag.check_profile(model(), {**valid, **arrays})


def test_clients_with_other_features_cannot_join_and_values_have_no_classes() -> None:
    feddag = FedDAGClusters()
    other = {**FOUR[0], "class_directions": np.zeros((1, 5, 3), np.float16)}
    state = feddag.init_server(model())
    assert feddag.incompatible(state, {**FOUR, 7: other}) == {7: "has 5 features, and others have 2"}
    with pytest.raises(ConfigError, match="FedDAGClusters compares classes, and the loss"):
        feddag.check_training(LocalTraining(loss="squared-error"))
