"""Algorithms that are mathematically the same give the same bits."""

import dataclasses
from functools import cache

import numpy as np
import pytest

from pacfl.algorithms import (
    APFL,
    CFL,
    FLIS,
    IFCA,
    PACFL,
    CLoVE,
    Ditto,
    FedALA,
    FedAvg,
    FedAvgFT,
    FedAvgM,
    FedBABU,
    FedClust,
    FedDAGClusters,
    FedEM,
    FedNova,
    FedPer,
    FedProx,
    FedRC,
    FedRep,
    FedSoft,
    FeSEM,
    FlexCFL,
    LGFedAvg,
    LocalOnly,
    PerFedAvg,
    PFedMe,
    Scaffold,
    StoCFL,
)
from pacfl.federation.algorithm import Algorithm
from pacfl.federation.rounds import Round, rounds
from pacfl.federation.schedule import Schedule, round_plans
from pacfl.learning.client_context import LocalTraining
from tests.small_federation import NAMES, SEED, lively, local, model, pool, run_rounds, same, side

SAMPLED = Schedule(rounds=4, participation=0.5, evaluate_every=1, personal_every=2, client_dropout=0.2)
EVERYBODY = Schedule(rounds=3, participation=1.0, evaluate_every=1, personal_every=1)


@cache
def fedavg(everybody: bool) -> list[Round]:
    """The reference run."""
    return run_rounds(FedAvg(), EVERYBODY if everybody else SAMPLED)


def assert_same_run(one: list[Round], other: list[Round]) -> None:
    """Same models, clusters and scores in every round."""
    assert len(one) == len(other)
    for a, b in zip(one, other, strict=True):
        assert same(a.state.models, b.state.models)
        assert same(a.state.cluster_of, b.state.cluster_of)
        assert same(a.scores, b.scores)


@pytest.mark.parametrize("everybody", [False, True], ids=["sampled", "everybody"])
@pytest.mark.parametrize(
    "algorithm",
    [
        FedProx(mu=0.0),
        FedAvgM(server_lr=1.0, beta1=0.0),
        PACFL(threshold=180.0, levels="none", label_prior=False),
        PACFL(clusters=1, compare="inputs", levels="none", label_prior=False),
        PACFL(clusters=1, compare="auto", levels="none", label_prior=False),
        CFL(first_split=1000),
        CFL(eps1=0.0, first_split=0),
        CFL(eps2=1e9, first_split=0),
        LGFedAvg(shared_layers=2),
        IFCA(clusters=1),
        FedPer(head_layers=0),
        FedBABU(head_layers=0, epochs=1),
        FedALA(adaptive_layers=0),
        FlexCFL(clusters=1),
        FlexCFL(clusters=1, inter_group_lr=0.5),
        FLIS(clusters=1, inputs=50),
        FLIS(threshold=1.0, inputs=50),
        FedClust(clusters=1),
        FedClust(threshold=1e9),
        CLoVE(clusters=1),
        StoCFL(tau=-1.0, mu=0.0),
        FedDAGClusters(clusters=1),
        FedDAGClusters(threshold=1.0),
        FedEM(clusters=1),
        FedRC(clusters=1),
    ],
    ids=repr,
)
def test_with_extreme_settings_every_method_is_fedavg(algorithm: Algorithm, everybody: bool) -> None:
    assert_same_run(run_rounds(algorithm, EVERYBODY if everybody else SAMPLED), fedavg(everybody))


@pytest.mark.parametrize("everybody", [False, True], ids=["sampled", "everybody"])
def test_with_one_centre_fesem_is_fedavg_from_the_mean_of_the_first_local_models(everybody: bool) -> None:
    schedule, fesem = EVERYBODY if everybody else SAMPLED, FeSEM(clusters=1)
    founded = fesem.admit(fesem.init_server(model()), {c: side(fesem).profile(0, c) for c in range(6)})
    initial = dataclasses.replace(model(), initial=founded.models[0])
    with local(FedAvg(), initial, pool()) as backend:
        plans = round_plans(schedule, 6, SEED)
        averaged = list(rounds(FedAvg(), backend, FedAvg().init_server(initial), plans))
    assert not same(founded.models[0], model().initial)
    assert_same_run(run_rounds(fesem, schedule), averaged)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_scaffold_equals_fedavg_in_the_first_round_only(momentum: float) -> None:
    learning = LocalTraining(epochs=1, batch_size=8, lr=0.05, momentum=momentum)
    one, other = (run_rounds(algorithm, SAMPLED, learning=learning) for algorithm in (Scaffold(), FedAvg()))
    assert_same_run(one[:1], other[:1])
    assert not same(one[1].state.models, other[1].state.models)


def test_one_cluster_per_client_is_local_training() -> None:
    """Clients have the same models, but stored at the server instead of at the client."""
    clustered, local = (
        run_rounds(PACFL(threshold=0.0, levels="none", label_prior=False), EVERYBODY),
        run_rounds(LocalOnly(), EVERYBODY),
    )
    assert len(set(clustered[0].state.cluster_of.values())) == 6
    assert same([r.scores for r in clustered], [r.scores for r in local])
    assert sum(r.bytes_down for r in local) == 0 < sum(r.bytes_down for r in clustered)


def test_fedavg_without_replies_is_local_training() -> None:
    """When all replies are lost, the first local training is the same under FedAvg and SOLO."""
    silent = Schedule(rounds=1, participation=1.0, client_dropout=1.0)
    one, other = run_rounds(FedAvg(), silent)[-1], run_rounds(LocalOnly(), silent)[-1]
    assert same(one.scores["last_trained"], other.scores["last_trained"])


def test_fine_tuning_is_fedavg_but_for_the_personal_models() -> None:
    tuned, plain = run_rounds(FedAvgFT(epochs=3), SAMPLED), fedavg(everybody=False)
    assert same([r.state for r in tuned], [r.state for r in plain])
    assert same(tuned[-1].scores["received"], plain[-1].scores["received"])
    assert not same(tuned[-1].scores["personal"], plain[-1].scores["personal"])


def assert_same_but_personal(one: list[Round], other: list[Round]) -> None:
    """Same states and received models; other personal ones."""
    assert same([r.state for r in one], [r.state for r in other])
    assert same([r.scores["received"] for r in one], [r.scores["received"] for r in other])
    assert not same(one[-1].scores["personal"], other[-1].scores["personal"])


@pytest.mark.parametrize("algorithm", [Ditto(lam=0.5), FedRep(head_layers=0)], ids=repr)
def test_the_shared_model_of_some_methods_is_that_of_fedavg(algorithm: Algorithm) -> None:
    """Ditto's always; FedRep's without a head, which is then all that is personalised."""
    assert_same_but_personal(run_rounds(algorithm, SAMPLED), fedavg(everybody=False))


@pytest.mark.parametrize("algorithm", [Ditto(lam=0.0), FedSoft(lam=0.0)], ids=repr)
def test_without_a_pull_the_own_models_of_some_methods_are_local_training(algorithm: Algorithm) -> None:
    """In every round each client is evaluated, before its first one too: everybody trains in the first round."""
    one, alone = run_rounds(algorithm, EVERYBODY), run_rounds(LocalOnly(), EVERYBODY)
    assert same([r.scores["personal"] for r in one], [r.scores["received"] for r in alone])


def test_without_mixing_apfl_is_fedavg_up_to_rounding() -> None:
    """Single steps with a velocity of its own, against one training with momentum; nothing is personal with alpha 0."""
    one, other = run_rounds(APFL(alpha=0.0, adaptive=False), EVERYBODY), fedavg(everybody=True)
    np.testing.assert_allclose(one[-1].state.models, other[-1].state.models, rtol=0, atol=1e-5)
    assert same(one[-1].scores["personal"], one[-1].scores["received"])


def test_with_one_step_to_its_own_model_pfedme_is_fedavg_up_to_rounding() -> None:
    """One step leads from w to w - lr g, for its prox is 0 there; with eta lam = 1 that is where w goes."""
    plain = LocalTraining(epochs=2, batch_size=8, lr=0.1, momentum=0.0)
    methods = PFedMe(lam=1.0, eta=1.0, inner_steps=1, beta=1.0), FedAvg()
    one, other = (run_rounds(method, EVERYBODY, learning=plain)[-1].state.models for method in methods)
    np.testing.assert_allclose(one, other, rtol=0, atol=1e-5)


def test_with_equal_steps_fednova_is_fedavg_up_to_rounding() -> None:
    """With equal sizes all take as many steps a: a · mean((w0 - w) / a) = w0 - mean(w)."""
    equal = pool(sizes=(32, 32, 32))
    schedule = Schedule(rounds=2, participation=1.0)
    one, other = (run_rounds(algorithm, schedule, equal)[-1].state.models for algorithm in (FedNova(), FedAvg()))
    np.testing.assert_allclose(one, other, rtol=0, atol=1e-6)


def test_without_an_inner_step_per_fedavg_trains_on_half_batches() -> None:
    """Per-FedAvg with alpha 0 uses the second half of every batch, and its personal models are the received ones."""
    run = run_rounds(PerFedAvg(alpha=0.0), EVERYBODY)
    for r in run:
        assert same(r.scores["personal"], r.scores["received"])
    assert not same(run[0].state.models, fedavg(everybody=True)[0].state.models)


# The converse: with usual settings every method differs

SAME_MODELS = ("fedavg", "fedavg-ft", "ditto", "apfl", "solo", "lg-fedavg")  # at the server, or none, or a part


@pytest.mark.parametrize("name", [name for name in NAMES if name not in SAME_MODELS])
def test_every_method_makes_a_difference(name: str) -> None:
    models = run_rounds(lively(name), EVERYBODY)[-2].state.models
    assert not any(same(row, fedavg(everybody=True)[-2].state.models[0]) for row in models)


def test_a_larger_mu_stays_nearer_to_the_start() -> None:
    schedule = Schedule(rounds=1, participation=1.0)
    updates = [run_rounds(FedProx(mu), schedule)[0].state.models[0] - model().initial for mu in (0.0, 0.1, 1.0, 5.0)]
    lengths = [float(np.linalg.norm(update)) for update in updates]
    assert lengths == sorted(lengths, reverse=True)
    assert len(set(lengths)) == 4


def test_fednova_differs_where_clients_take_different_numbers_of_steps() -> None:
    schedule = Schedule(rounds=1, participation=1.0)
    one, other = (run_rounds(algorithm, schedule)[0].state.models for algorithm in (FedNova(), FedAvg()))
    assert np.abs(one - other).max() > 1e-3


# Any number of processes


@pytest.mark.parametrize("name", NAMES)
def test_the_number_of_workers_changes_nothing(name: str) -> None:
    schedule = Schedule(rounds=2, participation=0.7, evaluate_every=2, reprofile={2: (1,)})
    one, two = (run_rounds(lively(name), schedule, workers=workers) for workers in (1, 2))
    assert same(one, two)
