"""The memory of clients is stored at the clients and survives restarts: real processes, TLS and authentication."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from loopback_federation import Loopback, deployed

from benchmarks.flower import pooled
from pacfl import algorithms
from pacfl.experiment.store import RunFolder
from pacfl.federation.algorithm import State
from pacfl.federation.client_side import Pool, Setup
from pacfl.federation.local import LocalBackend
from pacfl.federation.rounds import rounds
from pacfl.federation.schedule import RoundPlan
from pacfl.flower import digits
from pacfl.flower.deploy import loopback, processes
from pacfl.learning.client_context import LocalTraining
from pacfl.learning.model import as_model

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")

LEARNING = {"epochs": 1, "batch_size": 10, "lr": 0.05, "momentum": 0.5}
SEED = 0
WITH_MEMORY: dict[str, dict[str, Any]] = {
    "scaffold": {"name": "scaffold"},
    "lg-fedavg": {"name": "lg-fedavg", "shared-layers": 1},
}
# Two rounds and the final evaluation; then the SuperNodes are restarted for two more rounds
FIRST: Sequence[RoundPlan] = [RoundPlan(joining=(0, 1), sampled=(0, 1)), RoundPlan(sampled=(0, 1)), RoundPlan()]
THEN: Sequence[RoundPlan] = [RoundPlan(sampled=(0, 1)), RoundPlan(sampled=(0, 1))]


def on_one_machine(name: str, clients: Pool, *parts: Sequence[RoundPlan]) -> State:
    """The same federation on the local backend, whose clients lose their memory between two parts."""
    algorithm, model = algorithms.build(**WITH_MEMORY[name]), as_model(digits.build_model, SEED)
    state = algorithm.init_server(model)
    done: list[RoundPlan] = []
    for part in parts:
        with LocalBackend().connect(Setup(algorithm, model, clients, LocalTraining(**LEARNING), SEED)) as backend:
            *_, last = rounds(algorithm, backend, state, [*done, *part], start=len(done))
        state, done = last.state, [*done, *part]
    return state


def finished(sites: Loopback, rounds_in_all: int) -> None:
    def over() -> bool:
        return (sites.status["phase"], sites.status["round"]) == ("finished", rounds_in_all)

    sites.wait(f"the end of round {rounds_in_all}", over, 300)


@pytest.mark.slow
@pytest.mark.parametrize("name", WITH_MEMORY)
def test_memory_survives_a_restart_of_the_supernodes(name: str, short_path: Path) -> None:
    """To the last bit as on one machine without a break, and not as without memory."""
    settings = {
        "algorithm": WITH_MEMORY[name],
        "federation": {"minimum-clients": 2, "deadline": 120.0},
        "schedule": {"rounds": 2, "participation": 1.0},
        "learning": LEARNING,
    }
    with deployed(short_path, 2, settings) as sites:
        sites.start([0, 1])
        finished(sites, 2)
        for i in range(2):
            processes.stop(sites.folder, loopback.site(str(i)))
        for i in range(2):
            loopback.start_site(sites.folder, str(i))
        loopback.begin(sites.folder, "--run-config", "schedule.rounds=4")
        finished(sites, 4)
        assert [x for record in sites.records for x in record["reply_failures"]] == []
        checkpoint = RunFolder(loopback.federation(sites.folder)).load_checkpoint()
        site_of = {sites.number(i): i for i in range(2)}
    assert checkpoint is not None
    clients = pooled([site_of[0], site_of[1]])
    assert np.array_equal(checkpoint["state"].models, on_one_machine(name, clients, [*FIRST, *THEN]).models)
    assert not np.array_equal(checkpoint["state"].models, on_one_machine(name, clients, FIRST, THEN).models)
