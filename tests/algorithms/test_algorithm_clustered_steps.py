"""Clusterings and rounds of methods whose clusters are found from what clients report on joining, by hand.

The model has two weights and tells two classes, as in test_algorithm_steps.py: logits (w0 x, w1 x), starting at 0.
There, the gradient of a sample x of class 0 is (-x/2, x/2), of class 1 (x/2, -x/2).
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from torch import nn

from pacfl.algorithms import FLIS, CLoVE, FedClust, FeSEM, FlexCFL, StoCFL, build
from pacfl.algorithms.flexcfl import decomposed_cosines
from pacfl.algorithms.stocfl import merged
from pacfl.errors import ConfigError
from pacfl.federation.algorithm import Algorithm, Upload
from pacfl.federation.founding import kmeans
from pacfl.federation.message import Message
from pacfl.federation.schedule import Schedule
from pacfl.learning.client_context import ClientContext, LocalTraining, Samples
from pacfl.learning.eager import Eager
from pacfl.learning.model import as_model
from tests.small_federation import run_rounds, two_groups

ONE_STEP = LocalTraining(epochs=1, batch_size=10, lr=0.1, momentum=0.0)
TWO_STEPS = LocalTraining(epochs=2, batch_size=10, lr=0.1, momentum=0.0)


def linear() -> nn.Module:
    layer = nn.Linear(1, 2, bias=False)
    nn.init.zeros_(layer.weight)
    return layer


MODEL = as_model(linear, 0)


def client(x: Sequence[float], y: int, learning: LocalTraining = ONE_STEP) -> ClientContext:
    train = Samples(np.array(x, dtype=np.float32)[:, None], np.full(len(x), y))
    return ClientContext(MODEL, train, learning, Eager(MODEL), (0, 0, 0), train.x)


def profiles(name: str, reports: Mapping[int, Sequence[float]], dtype: type = np.float32) -> dict[int, Message]:
    return {c: {name: np.array(report, dtype=dtype)} for c, report in reports.items()}


def upload(c: int, w: Sequence[float], size: int = 1, **more: Sequence[float]) -> Upload:
    return Upload(c, size, {"w": np.float32(w), **{name: np.float32(values) for name, values in more.items()}})


def start(algorithm: Algorithm, first: Mapping[int, Message]) -> Any:
    return algorithm.admit(algorithm.init_server(MODEL), first)


def sigmoid(z: float) -> float:
    return 1 / (1 + math.exp(-z))


# FeSEM


def test_fesem_by_hand() -> None:
    """Local models at 0, 1, 10 and 11 have the centres 0.5 and 10.5.

    Then client 0 uploads 8: it is 7.5 from 0.5 and 2.5 from 10.5, and changes its centre. With client 3, three times as
    large, at 12, the mean is (8 + 3 · 12) / 4 = 11. Nobody is left to move 0.5.
    """
    fesem = FeSEM(clusters=2)
    state = start(fesem, profiles("w", {0: (0, 0), 1: (1, 0), 2: (10, 0), 3: (11, 0)}))
    assert state.models.tolist() == [[0.5, 0], [10.5, 0]]
    assert state.cluster_of == {0: 0, 1: 0, 2: 1, 3: 1}
    after = fesem.aggregate(state, [upload(0, (8, 0)), upload(3, (12, 0), size=3)])
    assert after.models.tolist() == [[0.5, 0], [11, 0]]
    assert after.cluster_of == {0: 1, 1: 0, 2: 1, 3: 1}


def test_fesem_places_newcomers_by_the_first_local_models() -> None:
    """The models are far from where they started, at 100 and 200; a first local model at 9 is that of centre 10.5."""
    fesem = FeSEM(clusters=2)
    state = start(fesem, profiles("w", {0: (0, 0), 1: (1, 0), 2: (10, 0), 3: (11, 0)}))
    moved = fesem.aggregate(fesem.aggregate(state, [upload(0, (5, 0))]), [upload(2, (200, 0))])
    assert fesem.admit(moved, profiles("w", {7: (9, 0)})).cluster_of[7] == 1


def test_what_clients_of_fesem_report_is_their_first_local_model() -> None:
    """x = 2 of class 0: gradient -1, one step of 0.1."""
    assert FeSEM().profile(client([2], 0))["w"].tolist() == pytest.approx([0.1, -0.1])


# FlexCFL


def test_the_decomposed_cosines_by_hand() -> None:
    """Updates (3, 0), (0, 1) and (6, 0) have the leading directions ±(1, 0), with singular value √45, and ±(0, 1)."""
    updates = np.array([[3.0, 0.0], [0.0, 1.0], [6.0, 0.0]])
    assert np.abs(decomposed_cosines(updates, 2)).tolist() == [[1, 0], [0, 1], [1, 0]]
    assert np.abs(decomposed_cosines(updates, 1)).tolist() == [[1], [0], [1]]
    assert decomposed_cosines(np.zeros((3, 2)), 2).shape == (3, 0)


def test_flexcfl_groups_by_direction_and_newcomers_too() -> None:
    """The groups' mean updates are (4.5, 0) and (0, 1). A newcomer's (10, 20) is nearer to the first, 20.7 < 21.5, but
    its cosine with the second is larger: 2/√5 > 1/√5.
    """
    flexcfl = FlexCFL(clusters=2)
    state = start(flexcfl, profiles("direction", {0: (3, 0), 1: (0, 1), 2: (6, 0)}))
    assert state.cluster_of == {0: 0, 1: 1, 2: 0}
    assert state.models.tolist() == [[0, 0], [0, 0]]
    assert state.centres.tolist() == [[4.5, 0], [0, 1]]
    assert flexcfl.admit(state, profiles("direction", {9: (10, 20)})).cluster_of[9] == 1


def test_a_step_between_the_groups_of_flexcfl_by_hand() -> None:
    """Models (3, 4), of length 5, and (0, 2), of length 2, with rate 1.

    ((3, 4) + (0, 2)/2) / (1 + 1/2) = (3, 5) / 1.5, and ((0, 2) + (3, 4)/5) / (1 + 1/5) = (0.6, 2.8) / 1.2.
    """
    flexcfl = FlexCFL(clusters=2, inter_group_lr=1.0)
    state = start(flexcfl, profiles("direction", {0: (1, 0), 1: (0, 1)}))
    after = flexcfl.aggregate(state, [upload(0, (3, 4)), upload(1, (0, 2))])
    assert after.models[0].tolist() == pytest.approx([2, 10 / 3])
    assert after.models[1].tolist() == pytest.approx([0.5, 7 / 3])


def test_what_clients_of_flexcfl_report_is_their_first_update() -> None:
    assert FlexCFL().profile(client([4], 1))["direction"].tolist() == pytest.approx([-0.2, 0.2])


# FLIS

INFERRED = {0: (0, 1, 2, 3), 1: (0, 1, 2, 0), 2: (3, 3, 3, 3)}


@pytest.mark.parametrize(
    ("settings", "clusters"),
    [
        ({"clusters": 2}, {0: 0, 1: 0, 2: 1}),
        ({"threshold": 0.2}, {0: 0, 1: 1, 2: 2}),
        ({"threshold": 0.3}, {0: 0, 1: 0, 2: 1}),
        ({"threshold": 0.9}, {0: 0, 1: 0, 2: 0}),
    ],
)
def test_flis_by_hand(settings: dict[str, Any], clusters: dict[int, int]) -> None:
    """0 and 1 agree on 3 of 4 inputs, 0 and 2 on 1, 1 and 2 on none: 1 - A is 1/4, 3/4 and 1. The two join at 1/4,
    and all three at (3/4 + 1) / 2 = 0.875.
    """
    assert start(FLIS(inputs=4, **settings), profiles("inferred", INFERRED, np.int32)).cluster_of == clusters


def test_flis_places_newcomers_where_they_agree_most() -> None:
    """Most founders of the clusters infer 0, 1, 2, 0 (of 3 and 0 the smaller) and 3, 3, 3, 3."""
    flis = FLIS(inputs=4)
    state = start(flis, profiles("inferred", INFERRED, np.int32))
    after = flis.admit(state, profiles("inferred", {5: (0, 3, 2, 0), 6: (3, 1, 3, 3)}, np.int32))
    assert (after.cluster_of[5], after.cluster_of[6]) == (0, 1)


def test_the_agreement_of_flis_is_the_cosine_of_the_paper() -> None:
    """<B_i, B_j> / (|B_i| |B_j|) of matrices with a 1 at every inferred class."""
    classes = np.random.default_rng(0).integers(0, 3, (5, 40))
    b = np.eye(3)[classes]
    norms = np.sqrt((b**2).sum(axis=(1, 2)))
    cosine = np.einsum("inc,jnc->ij", b, b) / np.outer(norms, norms)
    agreement = (classes[:, None] == classes).mean(axis=2)
    np.testing.assert_allclose(agreement, cosine, atol=1e-12)


def test_the_public_inputs_of_flis_are_the_same_for_all() -> None:
    """Two clients with equal models infer the same, and the local model of one sample of class 0, at x = 2, infers 0
    where the input is positive.
    """
    one, other = (FLIS(inputs=50).profile(client([2], 0))["inferred"] for _ in range(2))
    reverse = FLIS(inputs=50).profile(client([2], 1))["inferred"]
    assert one.tolist() == other.tolist() == (1 - reverse).tolist()
    assert 10 < one.sum() < 40


def test_flis_refuses_what_has_no_classes() -> None:
    with pytest.raises(ConfigError, match=r"FLIS compares inferred classes, and the loss .* is for values"):
        FLIS().check_training(LocalTraining(loss="squared-error"))
    tokens = Samples(np.zeros((2, 1), dtype=np.int64), np.zeros(2, dtype=np.int64))
    with pytest.raises(ConfigError, match="FLIS draws real numbers as inputs, and the samples are int64"):
        FLIS().profile(ClientContext(MODEL, tokens, ONE_STEP, Eager(MODEL), (0, 0, 0), tokens.x))


# FedClust


@pytest.mark.parametrize(
    ("settings", "clusters"),
    [
        ({"clusters": 2}, {0: 0, 1: 1, 2: 0}),
        ({"threshold": 0.9}, {0: 0, 1: 1, 2: 2}),
        ({"threshold": 4.6}, {0: 0, 1: 1, 2: 0}),
        ({"threshold": 4.7}, {0: 0, 1: 0, 2: 0}),
    ],
)
def test_fedclust_by_hand(settings: dict[str, Any], clusters: dict[int, int]) -> None:
    """Heads (0, 0), (3, 4) and (0, 1): distances 5, 1 and √18. 0 and 2 join at 1, all at (5 + √18) / 2 = 4.62."""
    assert start(FedClust(**settings), profiles("head", {0: (0, 0), 1: (3, 4), 2: (0, 1)})).cluster_of == clusters


def test_fedclust_places_newcomers_by_the_mean_head_of_a_cluster() -> None:
    """(2, 3) is √2 from (3, 4) and √10.25 from the mean (0, 0.5) of the others."""
    fedclust = FedClust()
    state = start(fedclust, profiles("head", {0: (0, 0), 1: (3, 4), 2: (0, 1)}))
    assert fedclust.admit(state, profiles("head", {4: (2, 3), 5: (0.1, 2)})).cluster_of == {
        0: 0,
        1: 1,
        2: 0,
        4: 1,
        5: 0,
    }


def test_fedclust_reports_the_last_layer_alone() -> None:
    model = as_model(lambda: nn.Sequential(nn.Linear(1, 3), nn.ReLU(), nn.Linear(3, 2)), 0)
    train = Samples(np.ones((2, 1), dtype=np.float32), np.zeros(2, dtype=np.int64))
    task = ClientContext(model, train, ONE_STEP, Eager(model), (0, 0, 0), train.x)
    trained, _ = task.sgd(model.initial, purpose="profile")
    assert FedClust().profile(task)["head"].tolist() == trained[-8:].tolist()


# CLoVE

LOSSES = {0: (1.0, 2.0), 1: (3.0, 3.5), 2: (1.1, 2.1), 3: (3.1, 3.6)}


def test_clove_by_hand() -> None:
    """The first model is best for all, and IFCA would give it to all. The vectors of 0 and 2, and of 1 and 3 are close.
    Their sums are (2.1, 4.1) and (6.1, 7.1). As they are, models cost 2.1 + 7.1 = 9.2; exchanged, 4.1 + 6.1 = 10.2.
    """
    state = start(CLoVE(), profiles("losses", LOSSES))
    assert state.cluster_of == {0: 0, 1: 1, 2: 0, 3: 1}
    assert state.centres.tolist() == [pytest.approx([1.05, 2.05]), pytest.approx([3.05, 3.55])]
    assert CLoVE().admit(state, profiles("losses", {8: (2.5, 3.0)})).cluster_of[8] == 1


def test_clove_averages_what_was_trained_and_clusters_for_the_next_time() -> None:
    """All change sides: 0 and 2 trained the first model, and their losses under the second are least now."""
    state = start(CLoVE(), profiles("losses", LOSSES))
    losses = {0: (3.0, 1.0), 1: (1.0, 4.0), 2: (3.1, 1.1), 3: (1.1, 4.1)}
    after = CLoVE().aggregate(state, [upload(c, (c, 0), losses=vector) for c, vector in losses.items()])
    assert after.models.tolist() == [[1, 0], [2, 0]]  # (0 + 2) / 2 and (1 + 3) / 2
    assert after.cluster_of == {0: 1, 1: 0, 2: 1, 3: 0}
    alone = CLoVE().aggregate(state, [upload(0, (5, 0), losses=(3.0, 1.0))])
    assert alone.cluster_of == state.cluster_of, "one vector says nothing about clusters"


def test_a_client_of_clove_trains_its_model_and_reports_its_losses_under_all() -> None:
    """x = 2 of class 0, models at (0, 0) and (1, -1): losses log 2 and log (1 + exp(-4)), before the training."""
    down = {"models": np.array([[0, 0], [1, -1]], dtype=np.float32), "choice": np.array([1])}
    up, _ = CLoVE().train(client([2], 0), down, {})
    assert up["losses"].tolist() == pytest.approx([math.log(2), math.log1p(math.exp(-4))], rel=1e-5)
    step = 0.1 * 2 * (1 - sigmoid(4.0))
    assert up["w"].tolist() == pytest.approx([1 + step, -1 - step], abs=1e-6)


# StoCFL


@pytest.mark.parametrize(("tau", "labels"), [(0.8, [0, 1, 2]), (0.5, [0, 1, 0]), (0.4, [0, 0, 0])])
def test_merging_by_hand(tau: float, labels: list[int]) -> None:
    """(1, 0), (0, 1), (1, 1): cosines 0, 0.71, 0.71. The first and the last merge, to a sum of (2, 1), whose cosine
    with (0, 1) is 1/√5 = 0.45.
    """
    gradients = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    assert merged(gradients @ gradients.T, tau).tolist() == labels


def test_stocfl_places_newcomers_or_opens_a_cluster_from_the_global_model() -> None:
    """Mean gradients (1, 0.5) and (0, 1). (2, 1) has the cosine 1 with the first; the best of (1, -1) is
    0.5 / √2.5 = 0.32, which is below 0.5. (2, -2), which comes with it, joins it.
    """
    stocfl = StoCFL(tau=0.5)
    state = start(stocfl, profiles("gradient", {0: (1, 0), 1: (0, 1), 2: (1, 1)}))
    state = stocfl.aggregate(state, [upload(0, (5, 0), omega=(3, 4))])
    assert state.models.tolist() == [[5, 0], [0, 0]]
    after = stocfl.admit(state, profiles("gradient", {6: (2, 1), 7: (1, -1), 8: (2, -2)}))
    assert after.cluster_of == {0: 0, 1: 1, 2: 0, 6: 0, 7: 2, 8: 2}
    assert after.models.tolist() == [[5, 0], [0, 0], [3, 4]]


def test_a_round_of_stocfl_by_hand() -> None:
    """x = 2 of class 0: Ψ = (-1, 1). Two steps, mu = 3. The first, of both models, leads to 0.1. Then p = sigmoid(0.4),
    and the gradient is 2 (p - 1); for θ, 3 · (0.1 - 0) is added to it, since the global model that was sent is 0.
    """
    stocfl, task = StoCFL(mu=3.0), client([2], 0, TWO_STEPS)
    state = start(stocfl, {4: stocfl.profile(task)})
    assert state.centres.tolist() == [[-1, 1]]
    up, _ = stocfl.train(task, stocfl.download(state, 4), {})
    after = stocfl.aggregate(state, [Upload(4, 1, up)])
    free, drawn = (0.1 - 0.1 * (2 * (sigmoid(0.4) - 1) + pull) for pull in (0.0, 0.3))
    assert after.omega.tolist() == pytest.approx([free, -free], abs=1e-6)
    assert after.models[0].tolist() == pytest.approx([drawn, -drawn], abs=1e-6)


def test_the_global_model_of_stocfl_is_the_mean_over_all_clusters() -> None:
    stocfl = StoCFL()
    state = start(stocfl, profiles("gradient", {0: (1, 0), 1: (0, 1)}))
    after = stocfl.aggregate(state, [upload(0, (4, 0), omega=(1, 1)), upload(1, (8, 0), size=3, omega=(5, 5))])
    assert after.models.tolist() == [[4, 0], [8, 0]]
    assert after.omega.tolist() == [4, 4]  # (1 + 3 · 5) / 4


# k-means


@pytest.mark.parametrize("seed", range(5))
def test_kmeans_finds_what_is_far_apart(seed: int) -> None:
    rng = np.random.default_rng(seed)
    wanted = np.concatenate([np.arange(4), rng.integers(0, 4, 26)])
    points = 100 * np.eye(4)[wanted] + rng.normal(size=(30, 4))
    assert kmeans(points, 4).tolist() == wanted.tolist()


def test_kmeans_has_no_more_clusters_than_distinct_points() -> None:
    assert kmeans(np.array([[1.0], [1.0], [2.0]]), 5).tolist() == [0, 0, 1]
    assert kmeans(np.ones((4, 3)), 2).tolist() == [0, 0, 0, 0]


# Two groups of clients that give the same images other classes


@pytest.mark.parametrize("name", ["fesem", "flexcfl", "flis", "fedclust", "clove", "stocfl", "feddag-clusters"])
def test_the_clusters_are_the_groups(name: str) -> None:
    """Of founders, and of a client that joins after the last round."""
    learning = LocalTraining(epochs=3, batch_size=8, lr=0.1, momentum=0.5)
    n_rounds, participation = (4, 1.0) if name == "clove" else (1, 0.5)  # CLoVE clusters again in every round
    schedule = Schedule(n_rounds, participation, newcomers=1, fine_tune=1, final_personal=False)
    run = run_rounds(build(name), schedule, two_groups(), learning)
    groups = [{c for c, k in run[-1].state.cluster_of.items() if k == row} for row in (0, 1)]
    assert sorted(map(sorted, groups)) == [[0, 2, 4, 6], [1, 3, 5, 7]]
