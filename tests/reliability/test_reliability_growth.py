"""Only the records grow with the rounds, and nothing grows with clients that have left for good."""

import dataclasses
import gc
import tracemalloc
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pytest

from pacfl.experiment.run import resume
from pacfl.experiment.store import folder_of
from pacfl.federation.local import LocalClients
from pacfl.federation.rounds import Round, rounds
from pacfl.federation.schedule import Schedule, round_plans
from studies import long_run
from tests.small_federation import LEARNING, NAMES, SEED, lively, local, model, pool, same, side

# Files and memory


def test_a_long_run_with_churn_needs_no_more_memory_and_files_than_a_short_one(tmp_path: Path) -> None:
    """Between rounds 60 and 120: less than a model of 2,600 bytes a round. Caches of evaluations are full by then."""
    run = long_run.churning(120, "scaffold")
    run = dataclasses.replace(run, schedule=dataclasses.replace(run.schedule, evaluate_every=20))
    folder = folder_of(run, tmp_path)
    held, sizes = {}, {}
    tracemalloc.start()
    try:
        for record in resume(run, folder):
            if record.get("round") in (60, 120):
                gc.collect()
                held[record["round"]] = tracemalloc.get_traced_memory()[0]
                sizes[record["round"]] = long_run.sizes(folder)
    finally:
        tracemalloc.stop()
    assert (held[120] - held[60]) / 60 < 2_600
    assert sizes[120][0] <= 1.05 * sizes[60][0]
    assert sizes[120][1] <= 1.05 * sizes[60][1]
    assert sizes[120][2] < 2.2 * sizes[60][2], "records grow with the rounds, and no faster"


def test_a_round_costs_as_much_as_the_clients_present(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """700 clients, 100 at a time: a round writes as much after 600 have left as after 200."""
    monkeypatch.setattr(long_run, "COMING", 20)
    run = long_run.crowd(700, "pacfl", tmp_path)
    folder = folder_of(run, tmp_path)
    written = []
    for record in resume(run, folder, tmp_path):
        if "round" in record and record["round"] <= run.schedule.rounds:
            n_files, megabytes, _ = long_run.sizes(folder)
            listed = (folder.path / "checkpoint.json").stat().st_size
            written.append((record["clients"], n_files, megabytes, listed, len(record["cluster_of"])))
    early, late = (np.max(written[part], axis=0) for part in (slice(10, 15), slice(-5, None)))
    assert (late <= 1.1 * early).all(), (early, late)


# Forgetting

GONE = Schedule(rounds=4, participation=1.0, leaves={3: (1, 4)})


def run_rounds(name: str, schedule: Schedule) -> Iterator[tuple[Round, LocalClients]]:
    algorithm = lively(name)
    with local(algorithm, model(), pool(), LEARNING, SEED) as backend:
        plan = round_plans(schedule, len(pool().client_indices), SEED)
        for one in rounds(algorithm, backend, algorithm.init_server(model()), plan):
            backend.forget(one.plan.gone)
            yield one, backend


@pytest.mark.parametrize("name", NAMES)
def test_only_clients_that_left_for_good_are_forgotten(name: str) -> None:
    for one, backend in run_rounds(name, GONE):
        known = set(range(6)) if one.t < 2 else {0, 2, 3, 5}
        assert set(one.state.cluster_of) == known
        by_client = [getattr(one.state, field.name) for field in dataclasses.fields(one.state)]
        assert all(set(stored) <= known for stored in by_client if isinstance(stored, Mapping))
        assert {*backend.memory, *backend.last_trained} <= known
    if name == "pacfl":
        assert one.state.clustering.proximity.shape == (4, 4)


@pytest.mark.parametrize("name", NAMES)
def test_forgetting_changes_no_state_in_place(name: str) -> None:
    algorithm = lively(name)
    clients = side(algorithm)
    state = algorithm.admit(algorithm.init_server(model()), {c: clients.profile(0, c) for c in range(6)})
    twin = algorithm.admit(algorithm.init_server(model()), {c: clients.profile(0, c) for c in range(6)})
    algorithm.forget(state, {0, 5})
    assert same(state, twin)


def test_only_clients_that_do_not_return_have_left_for_good() -> None:
    schedule = Schedule(rounds=9, leaves={2: (0, 1), 6: (0, 2), 8: (3,)}, joins={4: (0,), 7: (4,), 9: (3,)})
    gone = {t: round_plan.gone for t, round_plan in enumerate(round_plans(schedule, 6, SEED)) if round_plan.gone}
    assert gone == {1: (1,), 5: (0, 2)}


def test_a_returning_client_has_its_memory() -> None:
    """SCAFFOLD's clients have a memory: one that was away continues from its own control variate."""
    away = Schedule(rounds=5, participation=1.0, leaves={3: (1,)}, joins={5: (1,)})
    control = {one.t: backend.memory[1]["c"].copy() for one, backend in run_rounds("scaffold", away)}
    assert same(control[1], control[3])
    assert not same(control[3], control[4])


def test_a_newcomer_joins_the_cluster_that_all_members_left() -> None:
    """Clients 0, 1 and 2 are of one domain, 3, 4 and 5 of the other; 3 joins after 4 and 5 have left for good."""
    schedule = Schedule(rounds=5, participation=1.0, leaves={3: (4, 5)}, joins={5: (3,)})
    states = [one.state for one, _ in run_rounds("pacfl", schedule)]
    row = states[1].cluster_of[4]
    assert row == states[1].cluster_of[5] != states[1].cluster_of[0]
    assert len(states[2].cluster_of) == 4, "one of the two stays known"
    assert states[4].cluster_of[3] == row
    assert len(states[4].models) == 2
    assert same(states[2].models[row], states[1].models[row])
