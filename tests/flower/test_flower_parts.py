"""The parts: settings, a client's memory, the warm worker, and what is billed against what is sent."""

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, MetricRecord, RecordDict
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects

import pacfl
from pacfl.errors import ConfigError
from pacfl.federation.rounds import Score, rounds
from pacfl.federation.schedule import Schedule, round_plans
from pacfl.flower import settings, warm, wire
from pacfl.flower.backend import Flower
from pacfl.flower.client_memory import ClientMemory
from pacfl.flower.message_types import EVALUATE, SIGNATURE, TRAIN
from pacfl.flower.reply_checks import check_profile, forms_of_profile
from pacfl.flower.site import Site
from tests.flower.fake_grid import FakeGrid, home_of
from tests.small_federation import NAMES, SEED, lively, model, pool, same

# Settings


def test_settings_are_those_of_an_experiment_and_of_a_federation() -> None:
    flat = {"seed": 3, "settings": "", "federation.deadline": 9, "learning.lr": 0.5, "algorithm.name": "pacfl"}
    federation, run = settings.read(flat)
    assert (federation.deadline, run.seed, run.learning.lr, run.algorithm["name"]) == (9.0, 3, 0.5, "pacfl")


def test_the_settings_text_overrules() -> None:
    flat = {"settings": "algorithm.mu = 0.25; schedule.rounds=7", "algorithm.name": "fedprox", "schedule.rounds": 5}
    _, run = settings.read(flat)
    assert (run.algorithm["mu"], run.schedule.rounds) == (0.25, 7)


@pytest.mark.parametrize(
    ("flat", "said"),
    [
        ({"federation.dedline": 3}, "dedline"),
        ({"federation.deadline": 0.0}, "above 0"),
        ({"federation.identity": "name"}, "'key', 'partition-id'"),
        ({"settings": "a b"}, "settings must be TOML"),
        ({"settings": "learning.lr = [0.1, 0.2]"}, "one run, the settings describe 2"),
        ({"learning.lrr": 1.0}, "lrr"),
    ],
)
def test_settings_that_cannot_be_are_refused_by_name(flat: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        settings.read({"algorithm.name": "fedavg", **flat})


# What a client remembers

M = [{"c": np.full(3, float(t), np.float32)} for t in range(6)]


def test_memory_outlasts_the_process(tmp_path: Path) -> None:
    ClientMemory(tmp_path).keep(0, M[0], M[1]["c"], 0)
    memory, last = ClientMemory(tmp_path).before(1)
    assert same(memory, M[0])
    assert same(last, M[1]["c"])


def test_a_round_that_is_asked_for_again_begins_with_the_memory_before_it(tmp_path: Path) -> None:
    kept = ClientMemory(tmp_path)
    for t in range(4):
        kept.keep(t, M[t], None, safe=2)
    assert same(kept.before(2)[0], M[1])
    kept.keep(2, M[5], None, safe=2)
    assert same(kept.before(9)[0], M[5]), "what was trained after the round that is played again is void"


def test_only_what_may_be_asked_for_again_is_kept(tmp_path: Path) -> None:
    kept = ClientMemory(tmp_path)
    for t in range(6):
        kept.keep(t, M[t], None, safe=t)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["after-4.npz", "after-5.npz"]


def test_before_the_first_round_there_is_nothing(tmp_path: Path) -> None:
    assert ClientMemory(tmp_path / "none").before(3) == (None, None)


# What is billed, and what is sent


@pytest.mark.usefixtures("identity")
@pytest.mark.parametrize("name", NAMES)
def test_the_bill_is_that_of_the_arrays_really_sent(name: str, tmp_path: Path) -> None:
    """Numpy's own header is 128 bytes an array; Flower's records and their names take less than 3 KB a message."""
    algorithm, clients = lively(name), range(len(pool().client_indices))
    grid = FakeGrid(home_of(algorithm, tmp_path), [100 + c for c in clients])
    backend = Flower(grid, algorithm, model(), "f", {c: 100 + c for c in clients})
    plan = list(round_plans(Schedule(rounds=2, participation=1.0), len(clients), SEED))[:2]
    played = list(rounds(algorithm, backend, algorithm.init_server(model()), plan))
    down = [m for m in grid.asked if m.metadata.message_type == TRAIN]
    up = [m for m in grid.replies.values() if m.metadata.message_type in (TRAIN, SIGNATURE)]
    for messages, billed in ((down, sum(r.bytes_down for r in played)), (up, sum(r.bytes_up for r in played))):
        arrays = [array for m in messages for array in m.content["arrays"].values()]
        assert sum(len(array.data) - 128 for array in arrays) == billed
        sent = sum(len(part.deflate()) for m in messages for part in get_all_nested_objects(m).values())
        assert 0 <= sent - billed < 3000 * len(messages)


# The wire


def test_scores_come_back_as_they_were_sent() -> None:
    told = {"received": Score(0.5, 1.25), "personal": Score(1.0, 0.0)}
    assert wire.scores(wire.pack({}, {}, told)) == told


def test_a_score_that_is_no_number_is_refused() -> None:
    with pytest.raises(ValueError, match="has a score of nan"):
        wire.scores(wire.pack({}, {}, {"received": Score(float("nan"), 0.0)}))


def test_a_private_signature_has_the_form_that_is_expected(tmp_path: Path) -> None:
    """Whatever PACFL is set to, what its own client tells is believed."""
    from pacfl.algorithms import build

    for chosen in ({}, {"per_class": True}, {"signature_epsilon": 50.0}, {"rank": 5, "measure": "sum"}):
        algorithm = build("pacfl", **chosen)
        side, _ = home_of(algorithm, tmp_path)()
        check_profile(side.profile(0, 2), forms_of_profile(algorithm, model()))


# A user's data


def test_a_site_with_data_that_do_not_fit_is_told_so() -> None:
    x, y = np.zeros((4, 2)), np.zeros(4)
    with pytest.raises(ValueError, match="4 train samples with 3 classes"):
        Site(x, y[:3], x, y).pool(0)
    with pytest.raises(ValueError, match="nothing to federate"):
        Site(x[:0], y[:0], x, y).pool(0)
    with pytest.raises(ValueError, match="but 2 raw ones"):
        Site(x, y, x, y, raw=x[:2]).pool(0)


def test_a_site_has_one_client_whatever_its_number() -> None:
    x, y = np.arange(8.0).reshape(4, 2), np.zeros(4)
    shard = Site(x, y, x[:1], y[:1]).pool(7).client_indices[7]
    assert (shard.train.tolist(), shard.test.tolist()) == ([0, 1, 2, 3], [0])


# The warm worker


def content() -> RecordDict:
    records = {"a": ArrayRecord({"w": Array(np.arange(5.0)), "v": Array(np.ones((2, 3), np.float32))})}
    return RecordDict({**records, "c": ConfigRecord({"n": 3, "s": "x", "b": True}), "m": MetricRecord({"z": 0.5})})


def test_records_are_thawed_as_they_were_frozen() -> None:
    import io

    again, about = warm.thawed(io.BytesIO(warm.frozen(content(), {"kind": "train"})))
    assert again == content()
    assert about == {"kind": "train"}


def test_half_a_reply_is_no_reply() -> None:
    import io

    whole = warm.frozen(content(), {})
    for n in (0, 4, 20, len(whole) - 1):
        with pytest.raises(warm.WorkerError, match="ended before"):
            warm.thawed(io.BytesIO(whole[:n]))


def test_without_a_worker_there_is_no_answer(tmp_path: Path) -> None:
    context = Context(0, 0, {}, RecordDict(), {})
    assert warm.ask(str(tmp_path / "nobody"), TRAIN, RecordDict(), context) is None


def test_the_worker_answers_as_the_client_itself_does_and_ends_with_its_companion(tmp_path: Path) -> None:
    from pacfl.flower.answering import answer
    from pacfl.flower.site import home

    companion = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    path = tmp_path / "s"
    environment = {**os.environ, "PYTHONPATH": str(Path(pacfl.__file__).parents[1])}
    worker = subprocess.Popen(
        [sys.executable, "-m", "pacfl.flower.warm", str(path), "--with", str(companion.pid)], env=environment
    )
    try:
        end = time.monotonic() + 60
        while not path.exists() and time.monotonic() < end:
            time.sleep(0.1)
        run = {"algorithm.name": "fedavg", "learning.epochs": 1, "settings": ""}
        about = {"round": 2, "client": 1, "federation": "f", "personal": False, "fine-tune": 0}
        weights = {"w": np.zeros(2410, np.float32)}
        asked = wire.pack(weights, about)
        warmly = Context(0, 0, {"partition-id": 1, "memory": str(tmp_path)}, RecordDict(), run)
        there = warm.ask(str(path), EVALUATE, asked, warmly)
        assert there == answer(EVALUATE, asked, warmly, home)
        with pytest.raises(warm.WorkerError, match="wanted a whole number from 0, got None"):
            warm.ask(str(path), TRAIN, RecordDict(), warmly)
        assert path.stat().st_mode & 0o077 == 0
        companion.communicate(b"\n")
        assert worker.wait(timeout=20) == 0
        assert not path.exists()
    finally:
        for process in (companion, worker):
            process.kill()
            process.wait()
            if process.stdin:
                process.stdin.close()
