"""An algorithm in a file of its own, run from TOML without touching the package."""

import importlib
import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

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

FOLDER = Path(__file__).parents[2] / "examples" / "interpolation"


@pytest.fixture
def interpolation(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The user's file."""
    monkeypatch.setattr(sys, "path", [*sys.path, str(FOLDER)])
    yield importlib.import_module("interpolation")
    forget()


def forget() -> None:
    sys.modules.pop("interpolation", None)
    plugins.source_digest.cache_clear()


def federated(algorithm: Algorithm) -> tuple[Round, dict[int, Message]]:
    """The last of three rounds of all clients, and what they remember."""
    with local(algorithm, model(), pool(), LEARNING, SEED) as clients:
        plan = round_plans(Schedule(rounds=3, participation=1.0), 6, SEED)
        *_, last = rounds(algorithm, clients, algorithm.init_server(model()), plan)
        return last, clients.memory


@pytest.mark.usefixtures("interpolation")
def test_the_experiment_runs_as_it_is(run: Run, tmp_path: Path) -> None:
    few = ("--set", "seeds=0", "--set", "schedule.rounds=2", "--workers", "1")
    code, out, err = run("run", FOLDER / "interpolation.toml", "--runs", tmp_path, *few, "--json")
    assert code == 0, err
    results = [json.loads(line) for line in out.splitlines()]
    names = ["solo", "fedavg", "interpolation:Interpolation(share=0.25)", "interpolation:Interpolation(share=0.5)"]
    assert [result["algorithm"] for result in results] == names
    fedavg, near, far = results[1:]
    assert near["accuracy"]["received"] == fedavg["accuracy"]["received"]
    assert near["loss"]["personal"] != far["loss"]["personal"]


def test_the_hash_changes_with_the_file(interpolation: ModuleType, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(FOLDER, copy)
    *_, original = read(FOLDER / "interpolation.toml")
    hashes = [original.hash]
    sys.path.remove(str(FOLDER))
    for more in ("", "\n# another line\n"):
        with (copy / "interpolation.py").open("a") as file:
            file.write(more)
        forget()
        *_, last = read(copy / "interpolation.toml")
        hashes.append(last.hash)
    assert hashes[0] == hashes[1] != hashes[2]
    assert interpolation.__file__ != sys.modules["interpolation"].__file__


def test_with_nothing_of_the_shared_model_it_is_local_training(interpolation: ModuleType) -> None:
    """To the bit; the global model is FedAvg's whatever the share."""
    (last, own), (_, alone) = federated(interpolation.Interpolation(share=0.0)), federated(LocalOnly())
    assert all(same(own[c]["v"], alone[c]["w"]) for c in range(6))
    assert same(last.state.models, federated(FedAvg())[0].state.models)


def test_with_the_shared_model_alone_nothing_is_personal(interpolation: ModuleType) -> None:
    last, _ = federated(interpolation.Interpolation(share=1.0))
    assert same(last.scores["personal"], last.scores["received"])
    between, _ = federated(interpolation.Interpolation(share=0.5))
    assert between.scores["personal"] != last.scores["personal"]


def test_a_rule_of_aggregation_applies_to_it(interpolation: ModuleType) -> None:
    robust, plain = (kind(aggregation=Aggregation("median")) for kind in (interpolation.Interpolation, FedAvg))
    assert same(federated(robust)[0].state.models, federated(plain)[0].state.models)
