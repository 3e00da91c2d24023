"""Ditto, an algorithm in a file of its own, run from TOML without touching the package."""

import importlib
import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from pacfl import plugins
from pacfl.algorithms import FedAvg, LocalOnly
from pacfl.experiment.config import read
from pacfl.federation.aggregation import Aggregation
from pacfl.federation.algorithm import Algorithm
from pacfl.federation.message import Message
from pacfl.federation.rounds import Round, rounds
from pacfl.federation.schedule import Schedule, round_plans
from tests.conftest import Run
from tests.small_federation import LEARNING, SEED, local, model, pool, same

FOLDER = Path(__file__).parents[2] / "examples" / "ditto"


@pytest.fixture
def ditto(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The user's file."""
    monkeypatch.setattr(sys, "path", [*sys.path, str(FOLDER)])
    yield importlib.import_module("ditto")
    forget()


def forget() -> None:
    sys.modules.pop("ditto", None)
    plugins.source_digest.cache_clear()


def federated(algorithm: Algorithm) -> tuple[Round, dict[int, Message]]:
    """The last of three rounds of all clients, and what they remember."""
    with local(algorithm, model(), pool(), LEARNING, SEED) as clients:
        plan = round_plans(Schedule(rounds=3, participation=1.0), 6, SEED)
        *_, last = rounds(algorithm, clients, algorithm.init_server(model()), plan)
        return last, clients.memory


@pytest.mark.usefixtures("ditto")
def test_the_experiment_runs_as_it_is(run: Run, tmp_path: Path) -> None:
    few = ("--set", "seeds=0", "--set", "schedule.rounds=2", "--workers", "1")
    code, out, err = run("run", FOLDER / "ditto.toml", "--runs", tmp_path, *few, "--json")
    assert code == 0, err
    results = [json.loads(line) for line in out.splitlines()]
    names = ["solo", "fedavg", "ditto:Ditto(lam=0.1)", "ditto:Ditto(lam=1.0)"]
    assert [result["algorithm"] for result in results] == names
    fedavg, near, far = results[1:]
    assert near["accuracy"]["received"] == fedavg["accuracy"]["received"]
    assert near["loss"]["personal"] != far["loss"]["personal"]


def test_the_hash_changes_with_the_file(ditto: ModuleType, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(FOLDER, copy)
    *_, original = read(FOLDER / "ditto.toml")
    hashes = [original.hash]
    sys.path.remove(str(FOLDER))
    for more in ("", "\n# another line\n"):
        with (copy / "ditto.py").open("a") as file:
            file.write(more)
        forget()
        *_, last = read(copy / "ditto.toml")
        hashes.append(last.hash)
    assert hashes[0] == hashes[1] != hashes[2]
    assert ditto.__file__ != sys.modules["ditto"].__file__


def test_without_a_pull_a_clients_own_model_is_trained_locally(ditto: ModuleType) -> None:
    """To the bit; the global model is FedAvg's whatever the pull."""
    (last, own), (_, alone) = federated(ditto.Ditto(lam=0.0)), federated(LocalOnly())
    assert all(same(own[c]["v"], alone[c]["w"]) for c in range(6))
    assert same(last.state.models, federated(FedAvg())[0].state.models)


def test_a_pull_draws_a_clients_own_model_to_the_global_one(ditto: ModuleType) -> None:
    def distance(lam: float) -> float:
        last, own = federated(ditto.Ditto(lam=lam))
        assert last.scores["personal"][0] != last.scores["received"][0]
        return float(np.mean([np.linalg.norm(own[c]["v"] - last.state.models[0]) for c in range(6)]))

    assert distance(2.0) < distance(0.5) < distance(0.0)


def test_a_rule_of_aggregation_applies_to_it(ditto: ModuleType) -> None:
    robust, plain = (kind(aggregation=Aggregation("median")) for kind in (ditto.Ditto, FedAvg))
    assert same(federated(robust)[0].state.models, federated(plain)[0].state.models)
