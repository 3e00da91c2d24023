"""Optimisers against torch's own, and learning rates over the rounds."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.utils import parameters_to_vector

from pacfl import algorithms
from pacfl.errors import ConfigError, ModelError
from pacfl.experiment.config import expand
from pacfl.federation.client_side import ClientIndices, ClientSide, Pool, Setup
from pacfl.learning.client_context import ClientContext, LocalTraining, Samples
from pacfl.learning.eager import Eager
from pacfl.learning.engines import build_engine
from pacfl.learning.lr_schedule import CosineRate, ExponentialRate, LRSchedule, StepRate
from pacfl.learning.model import as_model
from pacfl.learning.optimisers import OPTIMISERS
from pacfl.learning.randomness import batch_order, stream
from pacfl.learning.settings import OPTIMISER_NAMES
from pacfl.settings import build, content

RNG = np.random.default_rng(0)
X = RNG.normal(size=(21, 4)).astype(np.float32)
TRAIN = Samples(X, (X[:, 0] + X[:, 1] ** 2 > 1).astype(np.int64))
MODEL = as_model(lambda: nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2)), 0)


def context(learning: LocalTraining) -> ClientContext:
    return ClientContext(MODEL, TRAIN, learning, Eager(MODEL), (0, 0, 0), X)


@pytest.mark.parametrize("name", ["adam", "adamw"])
@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_training_is_torchs_own(name: str, weight_decay: float) -> None:
    learning = LocalTraining(5, 8, 0.01, weight_decay=weight_decay, optimiser=name)
    module = MODEL.build()
    kind = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[name]
    optimiser = kind(module.parameters(), lr=0.01, weight_decay=weight_decay)
    for epoch in torch.from_numpy(batch_order(21, 5, stream(0, "batches", 0, 0))):
        for rows in epoch.split(8):
            optimiser.zero_grad()
            cross_entropy(module(torch.from_numpy(X)[rows]), torch.from_numpy(TRAIN.y)[rows]).backward()
            optimiser.step()
    expected = parameters_to_vector(module.parameters()).detach().numpy()
    trained, _ = context(learning).sgd(MODEL.initial)
    np.testing.assert_allclose(trained, expected, rtol=0, atol=1e-6)
    plain, _ = context(replace(learning, optimiser="sgd")).sgd(MODEL.initial)
    assert np.abs(trained - plain).max() > 0.01


def test_adam_and_adamw_differ_in_weight_decay_alone() -> None:
    trained = {
        (name, decay): context(LocalTraining(5, 8, 0.01, weight_decay=decay, optimiser=name)).sgd(MODEL.initial)[0]
        for name in ("adam", "adamw")
        for decay in (0.0, 0.1)
    }
    assert trained["adam", 0.0].tobytes() == trained["adamw", 0.0].tobytes()
    assert np.abs(trained["adam", 0.1] - trained["adamw", 0.1]).max() > 1e-3


def test_a_local_training_begins_without_memory_of_the_last() -> None:
    given = context(LocalTraining(2, 8, 0.01, optimiser="adam"))
    first = given.sgd(MODEL.initial)[0]
    given.sgd(first)
    assert given.sgd(MODEL.initial)[0].tobytes() == first.tobytes()


def test_the_names_of_optimisers_are_those_that_can_be_found() -> None:
    assert tuple(OPTIMISERS) == OPTIMISER_NAMES


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "own_optimisers.py").write_text(
        "def sign(w, learning):\n"
        "    def step(w, g):\n"
        "        w.sub_(g.sign(), alpha=learning.lr)\n"
        "    return step\n"
        "number = 3\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    return "own_optimisers"


def test_an_optimiser_may_be_a_plugin(plugin: str) -> None:
    given = context(LocalTraining(1, 21, 0.125, optimiser=f"{plugin}:sign"))
    w = MODEL.initial
    np.testing.assert_allclose(given.sgd(w)[0], w - np.float32(0.125) * np.sign(given.gradient(w)), atol=1e-7)
    with pytest.raises(ConfigError, match=r"optimiser 'own_optimisers:number' must be a function \(w, learning\)"):
        build_engine("eager", MODEL, (4,), learning=LocalTraining(optimiser=f"{plugin}:number"))


def test_momentum_is_a_setting_of_sgd() -> None:
    assert LocalTraining().momentum == 0.5
    assert LocalTraining(optimiser="adam").momentum == 0.0
    assert content(LocalTraining())["momentum"] == 0.5
    with pytest.raises(ConfigError, match=r"\[learning\] momentum = 0.5 is a setting of sgd; leave it out with"):
        build(LocalTraining, {"optimiser": "adam", "momentum": 0.5}, "learning")
    with pytest.raises(ConfigError, match="no optimiser 'adm'"):
        LocalTraining(optimiser="adm")


def test_other_optimisers_train_with_the_eager_engine(caplog: pytest.LogCaptureFixture) -> None:
    learning = LocalTraining(optimiser="adam")
    model = as_model(lambda: nn.Linear(4, 2), 0)
    assert isinstance(build_engine("auto", model, (4,), learning=learning), Eager)
    assert "its optimiser is adam, not sgd" in caplog.text
    with pytest.raises(ModelError, match="its optimiser is adam"):
        build_engine("native", model, (4,), learning=learning)


@pytest.mark.parametrize("name", ["scaffold", "fednova"])
def test_methods_that_derive_gradients_from_steps_of_sgd_refuse_other_optimisers(name: str) -> None:
    table = {"learning": {"optimiser": "adam"}, "algorithm": [{"name": name}]}
    with pytest.raises(ConfigError, match=r"\[\[algorithm\]\] .* cannot train with optimiser = 'adam'; use sgd"):
        expand(table)
    with pytest.raises(ConfigError, match="cannot train"):
        side(name, LocalTraining(optimiser="adam"))
    assert expand({**table, "algorithm": [{"name": "fedavg"}]})[0].learning.optimiser == "adam"


# Schedules


def side(name: str, learning: LocalTraining) -> ClientSide:
    pool = Pool(TRAIN, TRAIN, X, (ClientIndices(np.arange(21), np.arange(21)),))
    return ClientSide(Setup(algorithms.build(name), MODEL, pool, learning, 0))


@pytest.mark.parametrize(
    ("schedule", "rates"),
    [
        (StepRate(0.5, every=2), {0: 0.8, 1: 0.8, 2: 0.4, 3: 0.4, 4: 0.2, 9: 0.05}),
        (ExponentialRate(0.5), {0: 0.8, 1: 0.4, 3: 0.1}),
        (CosineRate(4, floor=0.25), {0: 0.8, 1: 0.2 + 0.3 * (1 + math.sqrt(0.5)), 2: 0.5, 4: 0.2, 100: 0.2}),
    ],
)
def test_rates_by_hand(schedule: LRSchedule, rates: dict[int, float]) -> None:
    learning = LocalTraining(lr=0.8, lr_schedule=schedule)
    assert {t: learning.in_round(t).lr for t in rates} == pytest.approx(rates)


@pytest.mark.parametrize("schedule", [StepRate(0.1, 1), ExponentialRate(0.1), CosineRate(3)])
def test_no_rate_is_ever_zero(schedule: LRSchedule) -> None:
    assert LocalTraining(lr=1.0, lr_schedule=schedule).in_round(10**6).lr > 0


def test_rates_are_torchs_own() -> None:
    weight = nn.Parameter(torch.zeros(1))
    optimiser = torch.optim.SGD([weight], lr=0.8)
    theirs = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, 7, eta_min=0.8 * 0.05)
    learning = LocalTraining(lr=0.8, lr_schedule=CosineRate(7, floor=0.05))
    for t in range(8):
        assert learning.in_round(t).lr == pytest.approx(theirs.get_last_lr()[0])
        optimiser.step()
        theirs.step()


def test_a_round_trains_and_personalises_with_its_own_rate() -> None:
    falling = LocalTraining(1, 8, 0.1, lr_schedule=ExponentialRate(0.5))
    for name in ("fedavg", "scaffold"):
        down = {"w": MODEL.initial, "c": np.zeros_like(MODEL.initial)}
        memory = algorithms.build(name).init_client(MODEL)
        constant = side(name, LocalTraining(1, 8, 0.1 * 0.5**3))
        up, after, _ = side(name, falling).train(3, 0, down, memory)
        expected, expected_after, _ = constant.train(3, 0, down, memory)
        assert {key: up[key].tobytes() for key in up} == {key: expected[key].tobytes() for key in expected}
        assert all(after[key].tobytes() == expected_after[key].tobytes() for key in after)
        scores = [s.evaluate(3, 0, down, memory, None, True) for s in (side(name, falling), constant)]
        assert scores[0] == scores[1]


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"kind": "stepp"}, r"needs a known kind, got 'stepp' \(did you mean 'step'"),
        ({"kind": "step", "factor": 0.5}, r"lr-schedule \(step\) needs every"),
        ({"kind": "exponential", "factor": 2.0}, "factor must be a number above 0 and at most 1"),
        ({"kind": "cosine", "rounds": 5, "every": 2}, "has no setting 'every'"),
        (0.5, r"lr_schedule must be"),
    ],
)
def test_wrong_schedules_are_refused(table: object, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        expand({"learning": {"lr-schedule": table}, "algorithm": [{"name": "fedavg"}]})


def test_a_schedule_is_part_of_a_run_and_constant_rates_are_as_before() -> None:
    runs = [
        expand({"learning": {"lr-schedule": table} if table else {}, "algorithm": [{"name": "fedavg"}]})[0]
        for table in (None, {"kind": "constant"}, {"kind": "cosine", "rounds": 9})
    ]
    assert runs[0].hash == runs[1].hash != runs[2].hash
    assert runs[2].content()["learning"]["lr_schedule"] == {"kind": "cosine", "rounds": 9, "floor": 0.01}
