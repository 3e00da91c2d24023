"""One round by hand. The model has two weights and tells two classes: logits (w0 x, w1 x), starting at 0.

At w = (0, 0) both classes have probability 1/2, so the gradient of the loss of a sample x of class 0 is
(1/2 - 1, 1/2) x = (-x/2, x/2), and of class 1 (x/2, -x/2). Later, with w = (a, -a), class 0 has probability
p = 1 / (1 + exp(-2 a x)) and the gradient of a sample of class 0 is (p - 1, 1 - p) x. Both weights always mirror each
other, and only the first is worked out.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from torch import nn

from pacfl.algorithms import CFL, IFCA, FedAvg, FedAvgFT, FedNova, FedProx, LGFedAvg, PerFedAvg, Scaffold
from pacfl.federation.algorithm import Algorithm, State, Upload, effective_steps
from pacfl.federation.message import Message
from pacfl.learning.client_context import ClientContext, LocalTraining, Samples
from pacfl.learning.eager import Eager
from pacfl.learning.model import Model, Vector, as_model

ONE_STEP = LocalTraining(epochs=1, batch_size=10, lr=0.1, momentum=0.0)


def linear() -> nn.Module:
    layer = nn.Linear(1, 2, bias=False)
    nn.init.zeros_(layer.weight)
    return layer


MODEL = as_model(linear, 0)


def client(x: Sequence[float], y: int, learning: LocalTraining = ONE_STEP, key: int = 0) -> ClientContext:
    train = Samples(np.array(x, dtype=np.float32)[:, None], np.full(len(x), y))
    return ClientContext(MODEL, train, learning, Eager(MODEL), (0, 0, key), train.x)


def sigmoid(z: float) -> float:
    return 1 / (1 + math.exp(-z))


def one_round(
    algorithm: Algorithm, tasks: Sequence[ClientContext], state: Any = None, memory: dict[int, Message] | None = None
) -> tuple[Any, dict[int, Message]]:
    """State and memory after a round of all the tasks."""
    if state is None:
        state = algorithm.admit(algorithm.init_server(MODEL), {c: {} for c in range(len(tasks))})
    memory = memory or {}
    uploads = []
    for c, task in enumerate(tasks):
        known = memory[c] if c in memory else algorithm.init_client(MODEL)
        up, memory[c] = algorithm.train(task, algorithm.download(state, c), known)
        uploads.append(Upload(c, task.n_samples, up))
    return algorithm.aggregate(state, uploads), memory


def assert_mirrored(w: Vector, first: float) -> None:
    assert w.tolist() == pytest.approx([first, -first], abs=1e-7)


def test_the_gradient_at_zero_is_the_one_written_above() -> None:
    assert client([2], 0).gradient(MODEL.initial).tolist() == [-1, 1]
    assert client([4], 1).gradient(MODEL.initial).tolist() == [2, -2]


def test_fedavg_by_hand() -> None:
    """Client 0 has x = 2 of class 0: gradient -1, one step of 0.1 leads to 0.1. Client 1 has x = 4 of class 1, three
    times: gradient 2, one step leads to -0.2. Mean by sizes 1 and 3: 0.1 / 4 - 0.2 · 3 / 4 = -0.125.
    """
    state, _ = one_round(FedAvg(), [client([2], 0), client([4, 4, 4], 1)])
    assert_mirrored(state.models[0], -0.125)


def test_fedprox_by_hand() -> None:
    """x = 2 of class 0, two steps, mu = 3. First: no distance yet, 0 + 0.1 · 1 = 0.1. Second: p = sigmoid(2 · 0.1 · 2),
    gradient 2 (p - 1), and the prox 3 · (0.1 - 0): 0.1 - 0.1 · (2 (p - 1) + 0.3).
    """
    state, _ = one_round(
        FedProx(mu=3.0), [client([2], 0, LocalTraining(epochs=2, batch_size=10, lr=0.1, momentum=0.0))]
    )
    p = sigmoid(0.4)
    assert_mirrored(state.models[0], 0.1 - 0.1 * (2 * (p - 1) + 0.3))


def test_fednova_by_hand() -> None:
    """Client 0 takes one step, to 0.1: direction (0 - 0.1) / 1 = -0.1. Client 1 takes three, in any order, but two of
    its samples are x = 0 and move nothing: x = 4 of class 1 leads to -0.2, direction (0 + 0.2) / 3. Shares 1/4 and 3/4:
    mean of directions -0.1 / 4 + 0.2 / 3 · 3/4 = 0.025, mean of steps 1/4 + 3 · 3/4 = 2.5; 0 - 2.5 · 0.025 = -0.0625.
    FedAvg would be at 0.1 / 4 - 0.2 · 3/4 = -0.125: the three steps count as three votes.
    """
    single = LocalTraining(epochs=1, batch_size=1, lr=0.1, momentum=0.0)
    tasks = [client([2], 0, single), client([0, 4, 0], 1, single, key=1)]
    assert_mirrored(one_round(FedNova(), tasks)[0].models[0], -0.0625)
    assert_mirrored(one_round(FedAvg(), tasks)[0].models[0], -0.125)


def test_scaffold_by_hand() -> None:
    """Round 1, controls 0, three clients of which two take part. Client 0, x = 2 of class 0, goes to 0.1, and its
    control becomes (0 - 0.1) / (1 · 0.1) = -1, its gradient. Client 1, x = 4 of class 1, goes to -0.2, control 2. The
    server is at (0.1 - 0.2) / 2 = -0.05, its control (-1 + 2) / 3 = 1/3: divided by all, not by those who took part.

    Round 2, client 0: gradient 2 (p - 1) with p = sigmoid(2 · -0.05 · 2), corrected by 1/3 + 1. Client 1: gradient of
    class 1 4 q with q = sigmoid(2 · -0.05 · 4), corrected by 1/3 - 2.
    """
    scaffold, tasks = Scaffold(), [client([2], 0), client([4], 1, key=1)]
    state = scaffold.admit(scaffold.init_server(MODEL), {0: {}, 1: {}, 2: {}})
    state, memory = one_round(scaffold, tasks, state)
    assert_mirrored(state.models[0], -0.05)
    assert_mirrored(state.control, 1 / 3)
    assert_mirrored(memory[0]["c"], -1)
    assert_mirrored(memory[1]["c"], 2)

    state, memory = one_round(scaffold, tasks, state, memory)
    g0, g1 = 2 * (sigmoid(-0.2) - 1), 4 * sigmoid(-0.4)
    w0, w1 = -0.05 - 0.1 * (g0 + 1 / 3 + 1), -0.05 - 0.1 * (g1 + 1 / 3 - 2)
    assert state.models[0].tolist() == pytest.approx([(w0 + w1) / 2, -(w0 + w1) / 2], abs=1e-6)
    # ci - c + (w0 - w) / (steps lr) is the gradient again: the correction cancels
    assert memory[0]["c"].tolist() == pytest.approx([g0, -g0], abs=1e-6)
    assert memory[1]["c"].tolist() == pytest.approx([g1, -g1], abs=1e-6)
    dc = (g0 + 1) + (g1 - 2)
    assert state.control.tolist() == pytest.approx([1 / 3 + dc / 3, -1 / 3 - dc / 3], abs=1e-6)


def test_scaffolds_control_is_the_gradient_with_momentum_too() -> None:
    """x = 0.001 hardly moves the weights, so that every gradient is -0.0005; momentum 0.9 goes a(5, 0.9) steps far."""
    learning = LocalTraining(epochs=5, batch_size=1, lr=0.1, momentum=0.9)
    _, memory = one_round(Scaffold(), [client([0.001], 0, learning)])
    assert memory[0]["c"].tolist() == pytest.approx([-0.0005, 0.0005], rel=1e-4)


def test_per_fedavg_by_hand() -> None:
    """Two samples x = 2 of class 0, alpha 0.5: one half leads ahead to 0 + 0.5 · 1 = 0.5, where p = sigmoid(2) and
    the other half's gradient is 2 (p - 1). Personalised: one step of alpha from the model.
    """
    method = PerFedAvg(alpha=0.5)
    task = client([2, 2], 0)
    state, _ = one_round(method, [task])
    w = -0.1 * 2 * (sigmoid(2.0) - 1)
    assert_mirrored(state.models[0], w)
    personal = method.personalise(task, {"w": state.models[0]}, {})
    assert personal[0] == pytest.approx(w - 0.5 * 2 * (sigmoid(4 * w) - 1), abs=1e-6)


def test_fedavg_ft_tunes_for_its_own_number_of_epochs() -> None:
    task = client([2], 0)
    down = {"w": MODEL.initial}
    assert_mirrored(FedAvgFT(epochs=1).personalise(task, down, {}), 0.1)
    assert_mirrored(FedAvgFT(epochs=2).personalise(task, down, {}), 0.1 - 0.1 * 2 * (sigmoid(0.4) - 1))
    assert_mirrored(one_round(FedAvgFT(epochs=2), [task])[0].models[0], 0.1)


@pytest.mark.parametrize(
    ("steps", "momentum", "expected"),
    [
        (1, 0.0, 1.0),
        (7, 0.0, 7.0),
        (1, 0.9, 1.0),
        (2, 0.5, 2.5),  # 1 + (1 + 0.5)
        (3, 0.5, 4.25),  # 1 + 1.5 + (1 + 0.5 + 0.25)
        (0, 0.5, 0.0),
    ],
)
def test_effective_steps_by_hand(steps: int, momentum: float, expected: float) -> None:
    """The velocity after j steps of gradient 1 is 1 + rho + ... + rho^(j - 1); the way is the sum of velocities."""
    assert effective_steps(steps, momentum) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("momentum", [0.0, 0.3, 0.9, 0.99])
def test_effective_steps_are_the_way_under_a_constant_gradient(momentum: float) -> None:
    way = velocity = 0.0
    for steps in range(1, 40):
        velocity = momentum * velocity + 1.0
        way += velocity
        assert effective_steps(steps, momentum) == pytest.approx(way, rel=1e-9)


# IFCA


def ifca_choice(tasks: Sequence[ClientContext], models: Sequence[Sequence[float]]) -> dict[int, int]:
    state = State(np.array(models, dtype=np.float32), dict.fromkeys(range(len(tasks)), 0))
    return dict(one_round(IFCA(clusters=len(models)), tasks, state)[0].cluster_of)


def test_ifca_takes_the_model_of_least_training_loss() -> None:
    """Samples of class 0 with x > 0 want the first weight larger: the loss is log(1 + exp(-(w0 - w1) x))."""
    models = [[-1, 1], [1, -1], [0, 0]]
    assert ifca_choice([client([1], 0), client([1], 1), client([-1], 0)], models) == {0: 1, 1: 0, 2: 0}
    assert ifca_choice([client([1], 0)], [[0, 0], [-1, 1], [-2, 2]]) == {0: 0}


def test_ifca_trains_what_was_chosen_and_leaves_the_rest() -> None:
    state = State(np.array([[-1, 1], [1, -1], [0, 0]], dtype=np.float32), {0: 0, 1: 0})
    after, _ = one_round(IFCA(clusters=3), [client([1], 0), client([1], 0, key=1)], state)
    p = sigmoid(2.0)
    assert after.models[[0, 2]].tolist() == state.models[[0, 2]].tolist()
    assert after.models[1].tolist() == pytest.approx([1 - 0.1 * (p - 1), -1 + 0.1 * (p - 1)], abs=1e-6)
    assert IFCA(clusters=3).receive(client([1], 0), {"models": after.models}, {}).tolist() == after.models[1].tolist()


@pytest.mark.parametrize("seed", range(5))
def test_ifca_starts_from_different_models_whatever_the_seed_of_the_run(seed: int) -> None:
    """Equal ones would be equal for ever, and all but one of them never chosen."""
    model = as_model(lambda: nn.Linear(3, 2), seed)
    models = IFCA(clusters=5).init_server(model).models
    assert len({row.tobytes() for row in models}) == 5
    assert models[0].tolist() == model.initial.tolist()


def test_ifcas_other_models_are_others_in_another_run() -> None:
    one, other = (IFCA(clusters=2).init_server(as_model(lambda: nn.Linear(3, 2), seed)).models[1] for seed in (0, 1))
    assert one.tolist() != other.tolist()


# CFL


def quarrelling(clients: dict[int, tuple[float, float]], start: Sequence[float] = (0, 0)) -> list[Upload]:
    """Uploads that differ from the start by the given updates."""
    return [Upload(c, 10, {"w": np.float32(start) + np.float32(update)}) for c, update in clients.items()]


def cfl_state(algorithm: CFL, clients: Sequence[int]) -> Any:
    return algorithm.admit(algorithm.init_server(MODEL), {c: {} for c in clients})


TWO_CAMPS = {7: (2.0, 0.1), 3: (-2.0, 0.1), 9: (2.0, -0.1), 1: (-2.0, -0.1)}


def test_cfl_splits_by_cosine_and_maps_positions_back_to_clients() -> None:
    cfl = CFL(eps1=0.4, eps2=1.6, first_split=0)
    state = cfl.aggregate(cfl_state(cfl, [1, 3, 5, 7, 9]), quarrelling(TWO_CAMPS))
    assert state.models.shape == (2, 2)
    assert state.models[0].tolist() == state.models[1].tolist()
    camps = {frozenset(c for c in TWO_CAMPS if state.cluster_of[c] == k) for k in (0, 1)}
    assert camps == {frozenset({7, 9}), frozenset({3, 1})}
    assert state.cluster_of[5] == 0, "a client without a reply stays"


def test_the_camps_of_cfl_go_their_own_ways() -> None:
    cfl = CFL(first_split=0)
    state = cfl.aggregate(cfl_state(cfl, list(TWO_CAMPS)), quarrelling(TWO_CAMPS))
    later = cfl.aggregate(state, quarrelling(TWO_CAMPS))
    assert later.models[later.cluster_of[7]].tolist() == [2, 0]
    assert later.models[later.cluster_of[1]].tolist() == [-2, 0]
    assert cfl.download(later, 9)["w"].tolist() == [2, 0]


def test_cfl_splits_not_before_its_first_round_of_splits() -> None:
    cfl = CFL(first_split=2)
    state = cfl_state(cfl, list(TWO_CAMPS))
    n_models = []
    for _ in range(4):
        state = cfl.aggregate(state, quarrelling(TWO_CAMPS, state.models[0].tolist()))
        n_models.append(len(state.models))
    assert n_models == [1, 1, 2, 2], "rounds 0 and 1 are before round 2"


@pytest.mark.parametrize(
    ("why", "updates"),
    [
        ("not settled", {1: (2.0, 0.1), 2: (2.0, -0.1), 3: (2.0, 0.0), 4: (-2.0, 0.0)}),
        ("not quarrelling", {1: (1.5, 0.1), 2: (-1.5, -0.1), 3: (1.5, 0.0), 4: (-1.5, 0.0)}),
        ("too few to tell", {1: (2.0, 0.1), 2: (-2.0, 0.1)}),
    ],
)
def test_cfl_does_not_split_without_reason(why: str, updates: dict[int, tuple[float, float]]) -> None:
    """Norms of the mean update: 1.0, 0.0 and 0.1, to be below 0.4; of the largest 2.0, 1.5 and 2.0, to be above 1.6."""
    cfl = CFL(eps1=0.4, eps2=1.6, first_split=0)
    state = cfl.aggregate(cfl_state(cfl, list(updates)), quarrelling(updates))
    assert len(state.models) == 1, why


def test_a_cluster_that_cfl_opens_has_members() -> None:
    """One client calls eight times as loud as thirty others, all in the same direction: there are no two sides."""
    updates = {0: (2.0, 0.0), **dict.fromkeys(range(1, 31), (0.25, 0.0))}
    cfl = CFL(eps1=0.4, eps2=1.6, first_split=0)
    state = cfl.aggregate(cfl_state(cfl, list(updates)), quarrelling(updates))
    assert set(range(len(state.models))) == set(state.cluster_of.values())


def most_alike_across(updates: NDArray[np.float64], side: NDArray[np.bool_]) -> float:
    unit = updates / np.linalg.norm(updates, axis=1, keepdims=True)
    return float((unit @ unit.T)[np.ix_(side, ~side)].max())


@pytest.mark.parametrize("seed", range(20))
def test_no_bipartition_has_sides_less_alike_than_those_of_cfl(seed: int) -> None:
    """Of all 63 ways to part seven clients, Algorithm 1 wants the one whose most alike pair across is least alike."""
    drawn = np.random.default_rng(seed).normal(size=(7, 2)).astype(np.float32)
    cfl = CFL(eps1=1e9, eps2=0.0, first_split=0)
    uploads = [Upload(c, 10, {"w": update}) for c, update in enumerate(drawn)]
    state = cfl.aggregate(cfl_state(cfl, range(7)), uploads)
    found = np.array([state.cluster_of[c] == 1 for c in range(7)])
    every = [np.array([bool(n >> c & 1) for c in range(7)]) for n in range(1, 64)]
    best = min(most_alike_across(drawn.astype(float), side) for side in every)
    assert most_alike_across(drawn.astype(float), found) == pytest.approx(best, abs=1e-6)


def test_cfl_splits_only_sides_that_are_further_apart_than_gamma() -> None:
    """The camps are at cosine -1 and a little more: √((1 + 0.995) / 2) is 0.9987, and never above 1."""
    for gamma, n_models in ((0.99, 2), (1.0, 1)):
        cfl = CFL(first_split=0, gamma=gamma)
        assert len(cfl.aggregate(cfl_state(cfl, list(TWO_CAMPS)), quarrelling(TWO_CAMPS)).models) == n_models


def test_whoever_comes_back_to_cfl_is_in_the_cluster_it_left() -> None:
    cfl = CFL(first_split=0)
    state = cfl.aggregate(cfl_state(cfl, list(TWO_CAMPS)), quarrelling(TWO_CAMPS))
    again = cfl.admit(state, {c: {} for c in TWO_CAMPS})
    assert again.cluster_of == state.cluster_of
    assert cfl.admit(state, {42: {}}).cluster_of == {**state.cluster_of, 42: 0}


# LG-FedAvg


def two_layers() -> nn.Module:
    return nn.Sequential(nn.Linear(1, 3), nn.ReLU(), nn.Linear(3, 2))


def test_lg_shares_the_tail_and_keeps_the_body() -> None:
    model: Model = as_model(two_layers, 0)
    method, cut = LGFedAvg(shared_layers=1), model.tail(1).start
    tasks = []
    for c in range(2):
        train = Samples(np.array([[1.0], [2.0]], dtype=np.float32), np.full(2, c))
        tasks.append(ClientContext(model, train, ONE_STEP, Eager(model), (0, 0, c), train.x))
    state = method.admit(method.init_server(model), {0: {}, 1: {}})
    assert state.models.shape == (1, 8)
    uploads, memory = [], {}
    for c, task in enumerate(tasks):
        up, memory[c] = method.train(task, method.download(state, c), method.init_client(model))
        trained, _ = task.sgd(model.initial)
        assert up["w"].tolist() == trained[cut:].tolist()
        assert memory[c]["body"].tolist() == trained[:cut].tolist()
        uploads.append(Upload(c, 2, up))
    state = method.aggregate(state, uploads)
    for c, task in enumerate(tasks):
        received = method.receive(task, method.download(state, c), memory[c])
        assert received[:cut].tolist() == memory[c]["body"].tolist()
        assert received[cut:].tolist() == state.models[0].tolist()
    assert memory[0]["body"].tolist() != memory[1]["body"].tolist()
