"""Rounds of personalised methods by hand, on the model of `test_algorithm_steps`: logits (w0 x, w1 x) from 0.

At w = (a, -a) a sample x of class 0 has probability p = s(2 a x), s the sigmoid, and the gradient (p - 1) x; one of
class 1 has the gradient p x. With a body b before it, logits (a b x, -a b x), p = s(2 a b x): class 0 has the gradient
(p - 1) b x at a and 2 (p - 1) a x at b, for both logits lead to b. The learning rate is 0.1.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from pacfl.algorithms import APFL, Ditto, FedALA, FedBABU, FedBN, FedPer, FedRep, PFedMe
from pacfl.errors import ConfigError, ModelError
from pacfl.federation.algorithm import Algorithm, State
from pacfl.federation.message import Message
from pacfl.learning.client_context import ClientContext, LocalTraining, Samples
from pacfl.learning.eager import Eager
from pacfl.learning.model import as_model
from tests.algorithms.test_algorithm_steps import MODEL, ONE_STEP, assert_mirrored, client, one_round
from tests.algorithms.test_algorithm_steps import sigmoid as s


def mirrored(a: float) -> np.ndarray:
    return np.array([a, -a], dtype=np.float32)


def test_ditto_by_hand() -> None:
    """Round 1: x = 2 of class 0 leads from 0 to 0.1, w and v alike; x = 4 of class 1 to -0.2; w = (0.1 - 0.2) / 2.

    Round 2, client 0, lam = 3: v has the gradient 2 (s(0.4) - 1) at 0.1, and 3 · (0.1 + 0.05) pulls it to w.
    """
    ditto, tasks = Ditto(lam=3.0), [client([2], 0), client([4], 1, key=1)]
    state, memory = one_round(ditto, tasks)
    assert_mirrored(state.models[0], -0.05)
    assert_mirrored(memory[0]["v"], 0.1)
    down = ditto.download(state, 0)
    up, after = ditto.train(tasks[0], down, memory[0])
    assert_mirrored(after["v"], 0.1 - 0.1 * (2 * (s(0.4) - 1) + 3 * 0.15))
    assert_mirrored(up["w"], -0.05 - 0.1 * 2 * (s(-0.2) - 1))
    assert_mirrored(ditto.personalise(tasks[0], down, after), after["v"][0])
    assert ditto.personalise(tasks[0], down, {}).tolist() == up["w"].tolist(), "a newcomer's v starts at w"


def test_pfedme_by_hand() -> None:
    """lam = 2, eta = 0.25, two inner steps: θ goes to 0.1, where the prox is 2 · 0.1, and on; w goes half the way.

    The server goes half the way to the mean: beta = 0.5.
    """
    method = PFedMe(lam=2.0, eta=0.25, inner_steps=2, beta=0.5)
    state, _ = one_round(method, [client([2], 0)])
    theta = 0.1 - 0.1 * (2 * (s(0.4) - 1) + 2 * 0.1)
    assert_mirrored(state.models[0], 0.5 * 0.5 * theta)


def test_the_next_batch_of_pfedme_is_pulled_to_the_moved_w() -> None:
    """Two batches of x = 2: θ and w after the first as above, θ then goes on from where it is, pulled to w = θ / 2."""
    method = PFedMe(lam=2.0, eta=0.25, inner_steps=1)
    single = replace(ONE_STEP, batch_size=1)
    up, _ = method.train(client([2, 2], 0, single), {"w": MODEL.initial}, {})
    theta, w = 0.1, 0.05
    theta -= 0.1 * (2 * (s(4 * theta) - 1) + 2 * (theta - w))
    assert_mirrored(up["w"], 0.5 * w + 0.5 * theta)


def test_the_own_model_of_pfedme_is_trained_near_the_received_one() -> None:
    """Two steps from w = 0: to 0.1, and from there with a prox of 3 · 0.1."""
    task = client([2], 0, replace(ONE_STEP, epochs=2))
    theta = PFedMe(lam=3.0).personalise(task, {"w": MODEL.initial}, {})
    assert_mirrored(theta, 0.1 - 0.1 * (2 * (s(0.4) - 1) + 0.3))


def test_apfl_by_hand() -> None:
    """Round 1, alpha = 1/4: all start at 0, gradient -1. w goes to 0.1, v to 0.1 / 4; v - w was 0, so alpha stays.

    Round 2: mixed = 0.025 / 4 + 0.1 · 3/4 = 0.08125, gradient g = 2 (s(0.325) - 1). v moves by -0.1 g / 4, w as in
    FedAvg. <v - w, g> is 2 · (0.025 - 0.1) g, over two mirrored weights, and alpha falls by a tenth of it.
    """
    apfl, task = APFL(alpha=0.25), client([2], 0)
    state, memory = one_round(apfl, [task])
    assert_mirrored(state.models[0], 0.1)
    assert_mirrored(memory[0]["v"], 0.025)
    assert memory[0]["alpha"].tolist() == [0.25]
    up, after = apfl.train(task, apfl.download(state, 0), memory[0])
    g = 2 * (s(0.325) - 1)
    alpha = 0.25 - 0.1 * 2 * (0.025 - 0.1) * g
    w, v = 0.1 - 0.1 * 2 * (s(0.4) - 1), 0.025 - 0.1 * 0.25 * g
    assert_mirrored(up["w"], w)
    assert_mirrored(after["v"], v)
    assert after["alpha"][0] == pytest.approx(alpha, abs=1e-7)
    assert_mirrored(apfl.personalise(task, {"w": up["w"]}, after), alpha * v + (1 - alpha) * w)
    _, fixed = APFL(alpha=0.25, adaptive=False).train(task, apfl.download(state, 0), memory[0])
    assert fixed["alpha"].tolist() == [0.25]


def test_apfl_has_momentum_in_both_models() -> None:
    """x = 0.001 hardly moves the weights: every gradient is -0.0005. Momentum 1/2: velocities 1, 3/2, 7/4 of it."""
    task = client([0.001], 0, LocalTraining(epochs=3, batch_size=1, lr=0.1, momentum=0.5))
    up, memory = APFL(alpha=0.5, adaptive=False).train(task, {"w": MODEL.initial}, {})
    assert up["w"][0] == pytest.approx(0.1 * 0.0005 * 4.25, rel=1e-4)
    assert memory["v"][0] == pytest.approx(0.5 * 0.1 * 0.0005 * 4.25, rel=1e-4)


def test_apfl_is_for_sgd() -> None:
    with pytest.raises(ConfigError, match="APFL derives gradients from the distance of SGD steps"):
        APFL().check_training(LocalTraining(optimiser="adamw"))


def test_fedala_by_hand() -> None:
    """The client is at 0.1, the global model at -0.05; all layers are adaptive, eta = 2, one epoch of one batch.

    At a = 1 training would start at -0.05: g = 2 (s(-0.2) - 1), way = -0.15, and a falls by 2 · g · way. The start is
    -0.05 + 0.15 (1 - a), and one step leads on.
    """
    method = FedALA(adaptive_layers=1, share=1.0, eta=2.0, first_epochs=1)
    task, down = client([2], 0), {"w": mirrored(-0.05)}
    a = 1 - 2 * (2 * (s(-0.2) - 1)) * -0.15
    start = -0.05 + 0.15 * (1 - a)
    assert 0 < a < 1
    assert_mirrored(method.receive(task, down, {"w": mirrored(0.1)}), start)
    up, memory = method.train(task, down, {"w": mirrored(0.1)})
    assert_mirrored(up["w"], start - 0.1 * 2 * (s(4 * start) - 1))
    assert memory["w"].tolist() == up["w"].tolist()
    assert memory["a"].tolist() == pytest.approx([a, a], abs=1e-6)
    first, begun = method.train(task, down, {})
    assert_mirrored(first["w"], -0.05 - 0.1 * 2 * (s(-0.2) - 1))
    assert set(begun) == {"w"}, "there was no model of its own to mix with"


def test_fedala_ends_at_its_own_model_where_the_global_one_is_worse() -> None:
    """A large eta: a goes to 0 at once and stays, for it is learned from then on from where it was."""
    method, task = FedALA(eta=1e6, share=1.0), client([2], 0)
    assert_mirrored(method.receive(task, {"w": mirrored(-0.05)}, {"w": mirrored(0.1)}), 0.1)
    assert_mirrored(method.receive(task, {"w": mirrored(3.0)}, {"w": mirrored(0.1)}), 3.0)


# A body of one weight, 1, and a head (1/2, -1/2)


def two_layers() -> nn.Module:
    net = nn.Sequential(nn.Linear(1, 1, bias=False), nn.Linear(1, 2, bias=False))
    with torch.no_grad():
        net[0].weight.fill_(1.0)  # type: ignore[operator]  # a layer
        net[1].weight.copy_(torch.tensor([[0.5], [-0.5]]))  # type: ignore[operator]
    return net


LAYERED = as_model(two_layers, 0)


def layered(key: int = 0, learning: LocalTraining = ONE_STEP) -> ClientContext:
    """x = 2, of the class of the client's number."""
    train = Samples(np.array([[2.0]], dtype=np.float32), np.array([key]))
    return ClientContext(LAYERED, train, learning, Eager(LAYERED), (0, 0, key), train.x)


def of_a_round(method: Algorithm) -> tuple[State, dict[int, Message]]:
    """After a round of a client of class 0 and one of class 1."""
    state = method.admit(method.init_server(LAYERED), {0: {}, 1: {}})
    memory = dict.fromkeys((0, 1), method.init_client(LAYERED))
    return one_round(method, [layered(0), layered(1)], state, memory)


P = s(2.0)  # of class 0 at the start: 2 · 1/2 · 1 · 2


def test_fedper_by_hand() -> None:
    """Body 1 - 0.1 · 2 (P - 1) · 1/2 · 2 at the client of class 0, 1 - 0.1 · 2 P · 1/2 · 2 at that of class 1."""
    state, memory = of_a_round(FedPer())
    assert state.models.tolist() == [[pytest.approx(1 - 0.1 * ((P - 1) + P), abs=1e-6)]]
    assert_mirrored(memory[0]["head"], 0.5 - 0.1 * 2 * (P - 1))
    assert_mirrored(memory[1]["head"], 0.5 - 0.1 * 2 * P)
    received = FedPer().receive(layered(), FedPer().download(state, 0), memory[0])
    assert received.tolist() == [*state.models[0].tolist(), *memory[0]["head"].tolist()]


def test_fedrep_by_hand() -> None:
    """The head first, as FedPer's: h = 1/2 - 0.1 · 2 (P - 1). Then the body at that head, where p = s(4 h)."""
    state, memory = of_a_round(FedRep())
    heads = {0: 0.5 - 0.1 * 2 * (P - 1), 1: 0.5 - 0.1 * 2 * P}
    for c, h in heads.items():
        assert_mirrored(memory[c]["head"], h)
    bodies = [1 - 0.1 * 2 * (s(4 * heads[0]) - 1) * 2 * heads[0], 1 - 0.1 * 2 * s(4 * heads[1]) * 2 * heads[1]]
    assert state.models[0][0] == pytest.approx(np.mean(bodies), abs=1e-6)
    personal = FedRep().personalise(layered(), FedRep().download(state, 0), memory[0])
    b, h = float(state.models[0][0]), heads[0]
    assert personal[0] == state.models[0][0]
    assert_mirrored(personal[1:], h - 0.1 * 2 * b * (s(4 * b * h) - 1))


def test_fedrep_trains_heads_for_the_local_epochs_and_bodies_for_its_own() -> None:
    """Local epochs 3: the body moves as often as body_epochs says, at most 3 times; the head is the same."""
    learning = replace(ONE_STEP, epochs=3)
    ends = [
        FedRep(body_epochs=n).train(layered(0, learning), {"w": LAYERED.initial[:1]}, {"head": LAYERED.initial[1:]})
        for n in (1, 2, 3, 4)
    ]
    assert len({memory["head"].tobytes() for _, memory in ends}) == 1
    bodies = [float(up["w"][0]) for up, _ in ends]
    assert bodies[0] < bodies[1] < bodies[2] == bodies[3]


def test_fedbabu_by_hand() -> None:
    """Bodies as FedPer's; the head stays 1/2, and is trained only when clients fine-tune all layers."""
    method = FedBABU(epochs=1)
    state, _ = of_a_round(method)
    b = 1 - 0.1 * ((P - 1) + P)
    assert state.models.tolist() == [[pytest.approx(b, abs=1e-6)]]
    down = method.download(state, 0)
    assert method.receive(layered(), down, {})[1:].tolist() == [0.5, -0.5]
    personal, p = method.personalise(layered(), down, {}), s(2 * 0.5 * b * 2)
    assert personal[0] == pytest.approx(b - 0.1 * 2 * (p - 1), abs=1e-6)
    assert_mirrored(personal[1:], 0.5 - 0.1 * 2 * b * (p - 1))


def test_fedbn_by_hand() -> None:
    """x = 3 of class 0 and x = 1 of class 1: mean 2, variance 1, so they are +1 and -1 after normalisation.

    The linear layer is 0: its first gradient is (-1/2 · 1 + 1/2 · -1) / 2 = -1/2, and none reaches the normalisation.
    Its statistics go a tenth of the way from 0 and 1 to the mean 2 and the unbiased variance 2.
    """

    def normed() -> nn.Module:
        net = nn.Sequential(nn.BatchNorm1d(1), nn.Linear(1, 2, bias=False))
        nn.init.zeros_(net[1].weight)  # type: ignore[arg-type]  # a layer
        return net

    model = as_model(normed, 0)
    train = Samples(np.array([[3.0], [1.0]], dtype=np.float32), np.array([0, 1]))
    task = ClientContext(model, train, ONE_STEP, Eager(model), (0, 0, 0), train.x)
    method = FedBN()
    assert method.init_server(model).models.tolist() == [[0, 0]]
    up, memory = method.train(task, {"w": mirrored(0)}, method.init_client(model))
    assert up["w"].tolist() == pytest.approx([0.05, -0.05], abs=1e-6)
    assert memory["norm"].tolist() == pytest.approx([1, 0, 0.2, 1.1])
    assert method.receive(task, {"w": mirrored(7)}, memory).tolist() == [*memory["norm"].tolist(), 7, -7]


@pytest.mark.parametrize("method", [FedPer(head_layers=2), FedRep(head_layers=2), FedBABU(head_layers=5)], ids=repr)
def test_a_head_of_all_layers_is_refused(method: Algorithm) -> None:
    with pytest.raises(
        ModelError, match=r"has 2 layers with weights, so its head can have 1 .* nothing would be shared"
    ):
        method.init_server(LAYERED)
