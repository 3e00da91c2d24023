"""Flower's simulation on Ray against the local backend: the same results to the last bit, for every algorithm."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import pacfl
from pacfl.algorithms import FedAvg
from pacfl.cli import app
from pacfl.data import DataSwap
from pacfl.errors import ConfigError, NoReplyError
from pacfl.federation.algorithm import Algorithm
from pacfl.federation.client_side import Setup
from pacfl.federation.local import LocalBackend
from pacfl.federation.rounds import Round, rounds
from pacfl.federation.schedule import Schedule, round_plans
from pacfl.flower.simulation import Simulated, Simulation, simulation
from pacfl.learning.client_context import LocalTraining
from tests.small_federation import LEARNING, NAMES, SEED, lively, model, pool, run_rounds, same

pytest.importorskip("ray", reason="Flower's simulation is not installed: pip install 'pacfl[flower]'")

# Ray leaves files and processes to the garbage collector, and warns of its own deprecations
pytestmark = pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning", "ignore::FutureWarning:ray.*"
)

# Some replies are lost, and one client joins after the last round
LIVELY_SCHEDULE = Schedule(rounds=3, participation=0.7, evaluate_every=2, client_dropout=0.2, newcomers=1)


@pytest.fixture(scope="module")
def nodes() -> Iterator[Simulation]:
    with simulation() as running:
        yield running


def run_simulated(
    nodes: Simulation, algorithm: Algorithm, schedule: Schedule, learning: LocalTraining = LEARNING
) -> list[Round]:
    with nodes.connect(Setup(algorithm, model(), pool(), learning, SEED)) as backend:
        plan = round_plans(schedule, len(pool().client_indices), SEED)
        return list(rounds(algorithm, backend, algorithm.init_server(model()), plan))


def test_data_that_change_owner_in_mid_run_are_refused(tmp_path: Path) -> None:
    swapping = replace(pool(), swap=DataSwap(2, np.arange(6)[::-1]))
    setup = Setup(FedAvg(), model(), swapping, LEARNING, SEED)
    refused = pytest.raises(ConfigError, match="drift: a node of Flower holds the data of one client")
    with refused, Simulation(None, tmp_path).connect(setup):  # type: ignore[arg-type]  # it is not reached
        pass


@pytest.mark.parametrize("name", NAMES)
def test_flower_gives_the_results_of_the_local_backend(nodes: Simulation, name: str) -> None:
    algorithm = lively(name)
    flower, local = run_simulated(nodes, algorithm, LIVELY_SCHEDULE), run_rounds(algorithm, LIVELY_SCHEDULE)
    assert len(flower) == len(local)
    for a, b in zip(flower, local, strict=True):
        assert same(a.state, b.state)
        assert a.scores == b.scores
        assert (a.bytes_down, a.bytes_up) == (b.bytes_down, b.bytes_up)


def test_scores_on_several_kinds_of_test_samples_are_those_of_the_local_backend(nodes: Simulation) -> None:
    everything = {"global": np.arange(len(pool().test.y))}
    clients = tuple(replace(own, other_tests=everything) for own in pool().client_indices)
    setup = Setup(FedAvg(), model(), replace(pool(), client_indices=clients), LEARNING, SEED)
    plan = list(round_plans(LIVELY_SCHEDULE, len(clients), SEED))
    found = []
    for backend in (nodes, LocalBackend()):
        with backend.connect(setup) as connected:
            found.append([r.scores for r in rounds(FedAvg(), connected, FedAvg().init_server(model()), plan)])
    assert found[0] == found[1]
    assert {"personal", "personal@global"} <= found[0][3].keys()


@pytest.mark.parametrize("name", ["scaffold", "lg-fedavg"])
def test_the_memory_of_clients_can_be_saved_and_restored(nodes: Simulation, name: str) -> None:
    """A run that is interrupted after two rounds and resumes in another backend has the same result."""
    algorithm, schedule = lively(name), Schedule(rounds=4, participation=0.7)
    plan = list(round_plans(schedule, len(pool().client_indices), SEED))
    parts = (algorithm, model(), pool(), LEARNING, SEED)
    with nodes.connect(Setup(*parts)) as first:
        *_, interrupted = list(rounds(algorithm, first, algorithm.init_server(model()), plan[:2]))
        memory, last = first.memory, first.last_trained
    with nodes.connect(Setup(*parts)) as second:
        second.memory, second.last_trained = memory, last
        *_, end = rounds(algorithm, second, interrupted.state, plan, start=2)
    assert same(end.state, run_rounds(algorithm, schedule)[-1].state)


def test_a_client_that_diverges_stops_the_experiment_and_is_named(nodes: Simulation) -> None:
    with pytest.raises(NoReplyError, match=r"round 1, client \d: .*diverged.*lower the learning rate"):
        run_simulated(nodes, lively("fedavg"), Schedule(rounds=3, participation=0.5), LocalTraining(epochs=5, lr=1e30))


def test_simulated_clients_have_no_memory_before_they_train(nodes: Simulation) -> None:
    with nodes.connect(Setup(lively("scaffold"), model(), pool(), LEARNING, SEED)) as backend:
        assert isinstance(backend, Simulated)
        assert backend.memory == backend.last_trained == {}


# `pacfl run --backend flower`: the same results as without

EXPERIMENT = """
engine = "eager"
[data]
name = "digits"
clients = 4
scheme = { kind = "by-set", counts = [1, 1, 1, 1], size = 40 }
[learning]
epochs = 1
[schedule]
rounds = 2
participation = 1.0
[[algorithm]]
name = ["pacfl", "scaffold"]
"""


def command(folder: Path, backend: str) -> list[str]:
    (folder / "e.toml").write_text(EXPERIMENT)
    options = ["--json", "--workers", "1", "--runs", str(folder / backend), "--backend", backend]
    return ["run", str(folder / "e.toml"), *options]


def results_of(output: str) -> list[dict[str, Any]]:
    results = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    assert [result["algorithm"] for result in results] == ["pacfl", "scaffold"]
    return [{key: value for key, value in result.items() if key != "seconds"} for result in results]


def run_here(*arguments: str) -> list[dict[str, Any]]:
    done = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return results_of(done.output)


def test_the_backend_of_the_command_does_not_change_the_results(
    nodes: Simulation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pacfl.flower.simulation.simulation", lambda *_: nullcontext(nodes))
    assert run_here(*command(tmp_path, "flower")) == run_here(*command(tmp_path, "local"))


@pytest.mark.slow
def test_the_command_starts_a_simulation_of_its_own(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pacfl.cli", *command(tmp_path, "flower")],
        env={**os.environ, "PYTHONPATH": str(Path(pacfl.__file__).resolve().parents[1])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert results_of(done.stdout) == run_here(*command(tmp_path, "local"))
