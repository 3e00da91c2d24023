"""Rounds of methods with soft clusters, by hand: FedEM, FedRC and FedSoft.

The model has two weights and tells two classes: logits (w0 x, w1 x). Models: (0, 0), which predicts halves, and
(1, -1), which predicts class 0 for x = 2 with p = sigmoid(4) = 0.98201.
"""

import math
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest
from torch import nn

from pacfl.algorithms import FedEM, FedRC, FedSoft, build
from pacfl.errors import ConfigError, InvalidReplyError
from pacfl.federation.aggregation import Aggregation
from pacfl.federation.algorithm import Algorithm, State, Upload
from pacfl.federation.rounds import rounds
from pacfl.federation.schedule import Schedule, round_plans
from pacfl.learning.client_context import ClientContext, LocalTraining, Samples
from pacfl.learning.eager import Eager
from pacfl.learning.mixture import Mixture
from pacfl.learning.model import Model, as_model
from tests.small_federation import SEED, local, model, same, side, two_groups

ONE_STEP = LocalTraining(epochs=1, batch_size=10, lr=0.1, momentum=0.0)
PAIR = np.array([[0, 0], [1, -1]], dtype=np.float32)
P = 1 / (1 + math.exp(-4))


def linear(bias: bool = False) -> Model:
    def net() -> nn.Module:
        layer = nn.Linear(1, 2, bias=bias)
        nn.init.zeros_(layer.weight)
        return layer

    return as_model(net, 0)


MODEL = linear()


def client(x: Sequence[float], y: Sequence[int], own: Model = MODEL) -> ClientContext:
    train = Samples(np.array(x, dtype=np.float32)[:, None], np.array(y))
    return ClientContext(own, train, ONE_STEP, Eager(own), (0, 0, 0), train.x)


def mixing(found: Any) -> Mixture:
    assert isinstance(found, Mixture)
    return found


# FedEM


def test_a_round_of_a_client_of_fedem_by_hand() -> None:
    """One sample, x = 2 of class 0: q = (1/2, P) / (1/2 + P). Gradients of the whole sample: (-1, 1) and, at the second
    model, 2 (P - 1) (1, -1). Each is multiplied by its q.
    """
    fedem, down = FedEM(clusters=2), {"models": PAIR}
    q = np.array([0.5, P]) / (0.5 + P)
    up, memory = fedem.train(client([2], [0]), down, {})
    assert memory["weights"].tolist() == pytest.approx(q)
    first, second = 0.1 * q[0], 1 + 0.1 * q[1] * 2 * (1 - P)
    np.testing.assert_allclose(up["w"], [[first, -first], [second, -second]], atol=1e-6)
    received = mixing(fedem.receive(client([2], [0]), down, memory))
    assert same(received.models, PAIR)
    assert received.weights.tolist() == pytest.approx(q)


def test_the_weights_of_fedem_are_the_means_of_its_samples_and_their_own_prior() -> None:
    """Samples of class 0 and class 1: q = (1/2, P) and (1/2, 1 - P) over their sums, with weights of 1/4 and 3/4."""
    memory = {"weights": np.array([0.25, 0.75])}
    shares = [np.array([0.25 / 2, 0.75 * p]) for p in (P, 1 - P)]
    _, after = FedEM(clusters=2).train(client([2, 2], [0, 1]), {"models": PAIR}, memory)
    assert after["weights"].tolist() == pytest.approx(np.mean([own / own.sum() for own in shares], axis=0))


def test_the_models_of_fedem_are_means_by_size_over_all_clients() -> None:
    state = State(PAIR, {0: 0, 1: 0})
    ups = [Upload(0, 1, {"w": PAIR}), Upload(1, 3, {"w": PAIR + np.float32(4)})]
    np.testing.assert_allclose(FedEM(clusters=2).aggregate(state, ups).models, PAIR + 3)


def test_a_newcomer_of_fedem_and_fedrc_takes_one_step_for_its_weights() -> None:
    down = {"models": PAIR, "shares": np.full((2, 2), 0.5, np.float32)}
    q = np.array([0.5, P]) / (0.5 + P)
    for algorithm in (FedEM(clusters=2), FedRC(clusters=2)):
        assert mixing(algorithm.receive(client([2], [0]), down, {})).weights.tolist() == pytest.approx(q)


def test_personal_models_of_fedem_are_trained_on_weighted_samples() -> None:
    fedem, task = FedEM(clusters=2), client([2], [0])
    up, memory = fedem.train(task, {"models": PAIR}, {})
    personal = mixing(fedem.personalise(task, {"models": PAIR}, {}))
    np.testing.assert_allclose(personal.models, up["w"], atol=1e-6)
    assert same(personal.weights, memory["weights"].astype(np.float32))


# FedRC


def test_a_round_of_a_client_of_fedrc_by_hand() -> None:
    """As for FedEM, but likelihoods are divided by the share of class 0 in each model: 0.9 and 0.3."""
    fedrc = FedRC(clusters=2)
    down = {"models": PAIR, "shares": np.array([[0.9, 0.1], [0.3, 0.7]], dtype=np.float32)}
    gamma = np.array([0.5 / 0.9, P / 0.3])
    gamma /= gamma.sum()
    up, memory = fedrc.train(client([2], [0]), down, {})
    assert memory["weights"].tolist() == pytest.approx(gamma)
    np.testing.assert_allclose(up["parts"], np.stack([gamma, [0, 0]], axis=1), atol=1e-6)
    first, second = 0.1 * gamma[0], 1 + 0.1 * gamma[1] * 2 * (1 - P)
    np.testing.assert_allclose(up["w"], [[first, -first], [second, -second]], atol=1e-6)


def test_models_that_differ_in_their_class_shares_alone_divide_nobody_in_fedrc() -> None:
    """They predict class 0 with 0.9 and 0.2, whatever x, and have it as often. A client with class 0 alone stays
    undivided; in FedEM it would belong to the first.
    """
    own, shares = linear(bias=True), np.array([[0.9, 0.1], [0.2, 0.8]], dtype=np.float32)
    models = np.concatenate([np.zeros((2, 2)), np.log(shares)], axis=1).astype(np.float32)
    task, down = client([1, 2, 3], [0, 0, 0], own), {"models": models, "shares": shares}
    _, memory = FedRC(clusters=2).train(task, down, {})
    assert memory["weights"].tolist() == pytest.approx([0.5, 0.5], abs=1e-6)
    _, memory = FedEM(clusters=2).train(task, down, {})
    assert memory["weights"].tolist() == pytest.approx([0.9 / 1.1, 0.2 / 1.1], abs=1e-6)


def test_the_class_shares_of_fedrc_are_those_of_all_clients_by_their_last_uploads() -> None:
    """Client 0 has 10 samples: 4 of class 0 and 1 of class 1 in the first model, 5 of class 1 in the second. Client 1
    has 10 of class 0 in the second one.
    """
    fedrc = FedRC(clusters=2)
    state = fedrc.admit(fedrc.init_server(MODEL), {0: {}, 1: {}})
    ups = [
        Upload(0, 10, {"w": PAIR, "parts": np.array([[0.4, 0.1], [0, 0.5]], np.float32)}),
        Upload(1, 10, {"w": PAIR, "parts": np.array([[0.0], [1.0]], np.float32)}),
    ]
    after = fedrc.aggregate(fedrc.aggregate(state, ups[:1]), ups[1:])
    np.testing.assert_allclose(after.shares, [[0.8, 0.2], [10 / 15, 5 / 15]], atol=1e-6)
    assert after.cluster_of == {0: 0, 1: 1}
    np.testing.assert_allclose(fedrc.aggregate(fedrc.forget(after, {0}), ups[1:]).shares, [[0], [1]])


def test_a_class_that_no_model_has_seen_does_not_decide() -> None:
    down = {"models": PAIR, "shares": np.array([[1.0], [1.0]], dtype=np.float32)}
    weights = mixing(FedRC(clusters=2).receive(client([2], [1]), down, {})).weights
    assert weights.tolist() == pytest.approx([0.5 / (1.5 - P), (1 - P) / (1.5 - P)], abs=1e-5)


def test_fedrc_refuses_what_it_cannot_divide() -> None:
    with pytest.raises(ConfigError, match=r"FedRC divides classes among models, and the loss .* is for values"):
        FedRC().check_training(LocalTraining(loss="squared-error"))
    down = {"models": PAIR, "shares": np.full((2, 2), 0.5, np.float32)}
    for parts in ([[0.5, -0.5], [0.5, 0.5]], [[1.0, 0.0], [1.0, 0.0]]):
        with pytest.raises(InvalidReplyError, match="parts"):
            FedRC(clusters=2).check_upload(MODEL, down, {"w": PAIR, "parts": np.array(parts, np.float32)})


# FedSoft


def test_a_round_of_a_client_of_fedsoft_by_hand() -> None:
    """x = 2 of classes 0, 0, 1: the second centre is best for class 0, so u = (1/3, 2/3), and the mean of the centres
    is (2/3, -2/3). The initial model is at 0, where F has the gradient (-1/3, 1/3), and the pull is 3 · 2/3.
    """
    fedsoft, task, down = FedSoft(lam=3.0), client([2, 2, 2], [0, 0, 1]), {"models": PAIR}
    up, memory = fedsoft.train(task, down, {})
    assert up["importance"].tolist() == pytest.approx([1 / 3, 2 / 3])
    assert up["w"].tolist() == pytest.approx([0.1 * (1 / 3 + 2), -0.1 * (1 / 3 + 2)])
    assert same(memory["w"], up["w"])
    assert fedsoft.receive(task, down, memory).tolist() == pytest.approx([2 / 3, -2 / 3])
    assert same(fedsoft.personalise(task, down, memory), up["w"])


def test_no_centre_is_without_importance_and_all_of_them_pull() -> None:
    """All of class 0: u = (0.25, 1). The pull of both is lam (0.25 (w - 0) + 1 (w - 1)), at w = 0: -lam."""
    up, _ = FedSoft(lam=2.0, sigma=0.25).train(client([2], [0]), {"models": PAIR}, {})
    assert up["importance"].tolist() == [0.25, 1]
    assert up["w"].tolist() == pytest.approx([0.1 * (1 + 2), -0.1 * (1 + 2)])


def test_clients_of_fedsoft_go_on_from_their_own_model_and_late_ones_from_trained_centres() -> None:
    """Without a pull, one step of 0.1 from where they start."""
    fedsoft, task, moved = FedSoft(lam=0.0), client([2], [0]), PAIR + np.float32([[1, -1], [0, 0]])
    up, _ = fedsoft.train(task, {"models": moved}, {"w": np.zeros(2, np.float32)})
    assert up["w"].tolist() == pytest.approx([0.1, -0.1])
    late, _ = fedsoft.train(task, {"models": moved}, {})
    assert late["w"][0] > 1


def test_the_centres_of_fedsoft_by_hand() -> None:
    """v of the first: 10 · 0.2 and 5 · 0.8, so 1/3 and 2/3; of the second: 10 · 0.8 and 5 · 0.2, so 8/9 and 1/9."""
    ups = [
        Upload(0, 10, {"w": np.float32([3, 0]), "importance": np.float32([0.2, 0.8])}),
        Upload(1, 5, {"w": np.float32([0, 9]), "importance": np.float32([0.8, 0.2])}),
    ]
    after = FedSoft().aggregate(State(PAIR, {0: 0, 1: 0, 2: 1}), ups)
    np.testing.assert_allclose(after.models, [[1, 6], [8 / 3, 1]], rtol=1e-6)
    assert after.cluster_of == {0: 1, 1: 0, 2: 1}
    uniform = FedSoft(aggregation=Aggregation("uniform")).aggregate(State(PAIR, {0: 0, 1: 0}), ups)
    np.testing.assert_allclose(uniform.models, [[0.2 * 3, 0.8 * 9], [0.8 * 3, 0.2 * 9]], rtol=1e-6)


def test_fedsoft_refuses_what_knows_no_weights_and_shares_that_are_none() -> None:
    with pytest.raises(ConfigError, match=r"weighs the uploads.*'median' knows no weights"):
        FedSoft(aggregation=Aggregation("median"))
    for u in ([0.0, 1.0], [0.2, 0.2], [1.5, 0.5]):
        with pytest.raises(InvalidReplyError, match="importance"):
            FedSoft().check_upload(MODEL, {"models": PAIR}, {"w": PAIR[0], "importance": np.float32(u)})


# Two groups of clients that give the same images other classes


@cache
def most(name: str) -> list[int]:
    """The model that every client has most of, after some rounds of all; FedRC is the slowest."""
    algorithm: Algorithm = build(name, clusters=2)
    learning = LocalTraining(epochs=3, batch_size=8, lr=0.1, momentum=0.5)
    with local(algorithm, model(), two_groups(), learning, SEED) as backend:
        plans = round_plans(Schedule(9, 1.0, evaluate_every=0, final_personal=False), 8, SEED)
        *_, end = rounds(algorithm, backend, algorithm.init_server(model()), plans)
        memory = dict(backend.memory)
    if name == "fedsoft":
        return [end.state.cluster_of[c] for c in range(8)]
    clients = side(algorithm, two_groups(), learning)
    down = algorithm.download(end.state, 0)
    return [int(mixing(clients.received(9, c, down, memory[c])).weights.argmax()) for c in range(8)]


@pytest.mark.parametrize("name", ["fedem", "fedrc", "fedsoft"])
def test_the_models_are_those_of_the_groups(name: str) -> None:
    assert most(name)[::2] == [most(name)[0]] * 4
    assert most(name)[1::2] == [1 - most(name)[0]] * 4
