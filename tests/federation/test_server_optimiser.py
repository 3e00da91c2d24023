"""Optimisers at the server: their steps by hand, in clusters, and where they do not apply."""

import json
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from torch import nn

from pacfl.algorithms import CFL, FLIS, IFCA, PACFL, CLoVE, FedAdam, FedAvg, FedAvgM, FedClust, FedYogi, FlexCFL, build
from pacfl.errors import ConfigError
from pacfl.experiment.codec import decode, encode
from pacfl.federation.aggregation import Aggregation
from pacfl.federation.algorithm import Algorithm, State, Upload
from pacfl.federation.client_side import ClientSide, Setup
from pacfl.federation.rounds import Round, rounds
from pacfl.federation.schedule import Schedule, round_plans
from pacfl.federation.server_optimiser import ServerOptimiser, step
from pacfl.learning.model import as_model
from pacfl.learning.nets import mlp
from tests.small_federation import LEARNING, NAMES, SEED, lively, local, model, pool, run_rounds, same

SAMPLED = Schedule(rounds=4, participation=0.5, evaluate_every=1, client_dropout=0.2)
OWN: dict[str, type[Algorithm]] = {"momentum": FedAvgM, "adam": FedAdam, "yogi": FedYogi}
kinds = pytest.mark.parametrize("kind", OWN)

# An `aggregate` of their own that a server optimiser does not fit; those of the table have one themselves
REFUSING = (
    "fednova",
    "scaffold",
    "pfedme",
    "fesem",
    "stocfl",
    "fedem",
    "fedrc",
    "fedsoft",
    "solo",
    "fedavgm",
    "fedadam",
    "fedyogi",
)


def optimising(kind: str, **settings: Any) -> Aggregation:
    return Aggregation(server_optimiser=kind, **settings)  # type: ignore[arg-type]


def upload(client: int, w: list[float], size: int = 1) -> Upload:
    return Upload(client, size, {"w": np.array(w, dtype=np.float32)})


# Steps


def test_two_steps_of_adam_by_hand() -> None:
    """Δ = 1 then -2, β1 = 0.5, β2 = 0.75, τ = 0.5, lr = 1, so v starts at 0.25.

    m = 0.5, v = 0.1875 + 0.25 = 0.4375: 0.5 / (0.6614 + 0.5). Then m = 0.25 - 1, v = 0.328125 + 1.
    """
    adam = ServerOptimiser("adam", 1.0, 0.5, 0.75, 0.5)
    first, m, v = step(adam, np.array([1.0]), np.zeros(1), np.full(1, 0.25))
    assert (m[0], v[0]) == (0.5, 0.4375)
    assert first[0] == pytest.approx(0.5 / (0.4375**0.5 + 0.5))
    second, m, v = step(adam, np.array([-2.0]), m, v)
    assert (m[0], v[0]) == (-0.75, 1.328125)
    assert second[0] == pytest.approx(-0.75 / (1.328125**0.5 + 0.5))


def test_two_steps_of_yogi_by_hand() -> None:
    """As above, but v moves by 0.25 Δ² whatever its distance: up from 0.25 to 0.5, then to 1.5; down for a small Δ."""
    yogi = ServerOptimiser("yogi", 1.0, 0.5, 0.75, 0.5)
    first, m, v = step(yogi, np.array([1.0]), np.zeros(1), np.full(1, 0.25))
    assert (m[0], v[0]) == (0.5, 0.5)
    assert first[0] == pytest.approx(0.5 / (0.5**0.5 + 0.5))
    _, _, v = step(yogi, np.array([-2.0]), m, v)
    assert v[0] == 1.5
    assert step(yogi, np.array([1.0]), m, v)[2][0] == 1.25


def test_two_rounds_of_momentum_by_hand() -> None:
    """From 0, lr 0.5, momentum 0.5: means 4 and then the model itself. m = 4, w = 2; m = 2 + 0, w = 3."""
    fedavgm = FedAvgM(server_lr=0.5, beta1=0.5)
    state = fedavgm.aggregate(State(np.zeros((1, 1), np.float32), {0: 0, 1: 0}), [upload(0, [1], 3), upload(1, [13])])
    assert state.models.tolist() == [[2]]
    assert fedavgm.aggregate(state, [upload(0, [2])]).models.tolist() == [[3]]


def test_the_first_step_of_fedadam_by_hand() -> None:
    """Δ = (3, -0.0001), τ = 0.001. v = 0.99e-6 + 0.01 Δ², m = 0.1 Δ; the large one moves by nearly lr."""
    state = FedAdam(server_lr=1.0).aggregate(State(np.zeros((1, 2), np.float32), {0: 0}), [upload(0, [3, -1e-4])])
    expected = [0.3 / ((0.09 + 0.99e-6) ** 0.5 + 1e-3), -1e-5 / ((0.99e-6 + 1e-10) ** 0.5 + 1e-3)]
    assert state.models[0].tolist() == pytest.approx(expected, rel=1e-5)
    assert expected == pytest.approx([0.997, -0.005], abs=1e-3)


def test_clusters_step_apart_and_one_without_replies_stays() -> None:
    """The moments of the second cluster are those of its own rounds."""
    algorithm = IFCA(aggregation=optimising("momentum", server_lr=1.0, beta1=0.5))
    state = State(np.zeros((2, 1), np.float32))

    def played(state: State, choice: int, w: float) -> State:
        return algorithm.aggregate(state, [Upload(0, 1, {"w": np.float32([w]), "choice": np.array([choice])})])

    state = played(played(state, 0, 4), 1, 6)
    assert state.models.tolist() == [[4], [6]]
    assert played(state, 0, 4).models.tolist() == [[6], [6]]  # m = 2 + 0
    assert played(state, 1, 7).models.tolist() == [[4], [10]]  # m = 3 + 1


# Identities


@cache
def alone(kind: str) -> list[Round]:
    return run_rounds(OWN[kind](), SAMPLED)


def assert_same_models(one: list[Round], other: list[Round]) -> None:
    assert len(one) == len(other)
    for a, b in zip(one, other, strict=True):
        assert same(a.state.models, b.state.models)
        assert same(a.scores["received"], b.scores["received"])


@kinds
@pytest.mark.parametrize(
    "algorithm",
    [
        FedAvg(),
        PACFL(clusters=1, compare="inputs", levels="none", label_prior=False),
        IFCA(clusters=1),
        CFL(first_split=1000),
        FlexCFL(clusters=1),
        FLIS(clusters=1, inputs=50),
        FedClust(clusters=1),
        CLoVE(clusters=1),
    ],
    ids=lambda algorithm: type(algorithm).__name__,
)
def test_with_one_cluster_every_method_is_the_server_optimiser_alone(algorithm: Algorithm, kind: str) -> None:
    assert_same_models(run_rounds(replace(algorithm, aggregation=optimising(kind)), SAMPLED), alone(kind))


@kinds
def test_it_makes_a_difference(kind: str) -> None:
    assert not same(alone(kind)[-1].state.models, run_rounds(FedAvg(), SAMPLED)[-1].state.models)


def test_a_larger_tau_is_less_adaptive() -> None:
    """With τ far above all updates, FedAdam goes along Δ, by lr 0.1 / 2 τ since v is τ² at first; else, its signs."""
    schedule = Schedule(rounds=1, participation=1.0)
    (mean, small, large) = (
        run_rounds(one, schedule)[0].state.models[0] - model().initial
        for one in (FedAvg(), FedAdam(tau=1e-6), FedAdam(tau=1e3, server_lr=2e4))
    )
    moved = np.abs(mean) > 1e-3
    np.testing.assert_allclose(large, mean, rtol=1e-2, atol=1e-6)
    np.testing.assert_allclose(small[moved], 0.01 * np.sign(mean[moved]), rtol=1e-2)


# Moments follow the models


@kinds
def test_an_interrupted_run_ends_as_if_it_was_not(kind: str) -> None:
    algorithm, plans = OWN[kind](), list(round_plans(SAMPLED, 6, SEED))
    arrays: dict[str, np.ndarray] = {}
    tree = json.loads(json.dumps(encode(alone(kind)[1].state, arrays)))
    with local(algorithm, model(), pool(), LEARNING, SEED) as backend:
        *_, end = rounds(algorithm, backend, decode(tree, arrays), plans, 2)
    assert same(end.state, alone(kind)[-1].state)


def test_both_halves_of_a_split_cluster_of_cfl_have_its_moments() -> None:
    run = run_rounds(replace(lively("cfl"), aggregation=optimising("adam")), Schedule(rounds=3, participation=1.0))
    split = next(r.state for r in run if len(r.state.models) > 1)
    assert len(split.moments.first) == len(split.models)
    assert same(split.moments.first[-1], split.moments.first[0])


def test_a_cluster_that_is_opened_later_starts_without_moments() -> None:
    """Domain by domain: the second group of clients joins in the third round."""
    algorithm = PACFL(threshold=12.0, levels="none", label_prior=False, aggregation=optimising("momentum"))
    schedule = Schedule(rounds=3, participation=1.0, joins={1: (0, 1, 2), 3: (3, 4, 5)})
    before, end = run_rounds(algorithm, schedule)[1:3]
    assert len(before.state.models) < len(end.state.models)
    update = end.state.models[-1] - model().initial
    np.testing.assert_allclose(end.state.moments.first[-1], update, atol=1e-6)


# What does not apply


@pytest.mark.parametrize("name", NAMES)
def test_every_other_method_takes_a_server_optimiser_or_says_why_not(name: str) -> None:
    if name in REFUSING:
        with pytest.raises(ConfigError, match=r"server-optimiser = 'adam'.*leave out|solo sends nothing"):
            build(name, aggregation=optimising("adam"))
        return
    algorithm = replace(lively(name), aggregation=optimising("adam"))
    run = run_rounds(algorithm, Schedule(rounds=2, participation=1.0))
    plain = run_rounds(lively(name), Schedule(rounds=1, participation=1.0))
    assert run[0].state.moments is not None
    assert not same(run[0].state.models, plain[0].state.models)


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"server_lr": 0.1}, "server-lr: server-optimiser = 'none' has no such setting"),
        ({"server_optimiser": "momentum", "tau": 0.1, "beta2": 0.9}, "beta2, tau: server-optimiser = 'momentum'"),
        ({"server_optimiser": "adagrad"}, "server_optimiser must be"),
        ({"server_optimiser": "adam", "beta1": 1.0}, "beta1 must be a number of at least 0 and below 1"),
        ({"server_optimiser": "adam", "tau": 0.0}, "tau must be a number above 0"),
    ],
)
def test_settings_that_do_not_apply_are_refused(settings: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        Aggregation(**settings)


@kinds
def test_the_defaults_are_those_of_the_algorithm_alone(kind: str) -> None:
    assert optimising(kind).optimiser == OWN[kind]().server_optimiser


def test_shared_running_statistics_are_refused() -> None:
    def net() -> nn.Module:
        return nn.Sequential(*mlp((1, 8, 8), 10, hidden=8).children(), nn.BatchNorm1d(10))

    with pytest.raises(ConfigError, match="running variances, which may then be negative"):
        ClientSide(Setup(FedAdam(), as_model(net, 0), pool(), LEARNING, SEED))
    ClientSide(Setup(FedAdam(), as_model(net, 0, "local"), pool(), LEARNING, SEED))
