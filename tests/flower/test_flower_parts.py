"""The parts: settings, a client's memory, the warm worker, and bytes counted against bytes sent."""

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
from pacfl.federation.client_side import ClientSide, Setup
from pacfl.federation.rounds import Score, rounds
from pacfl.federation.schedule import Schedule, round_plans
from pacfl.flower import client_app, settings, warm, wire
from pacfl.flower.backend import FlowerBackend
from pacfl.flower.client_handlers import HANDLERS, handle
from pacfl.flower.client_memory import ClientMemory
from pacfl.flower.message_types import EVALUATE, MESSAGE_TYPES, SIGNATURE, TRAIN
from pacfl.flower.site import Site, load_client
from pacfl.learning.client_context import LocalTraining
from pacfl.subspace import split_half_angles
from tests.flower.fake_grid import FakeGrid, client_loader
from tests.small_federation import NAMES, SEED, lively, model, pool, same

# Settings


def test_settings_are_those_of_an_experiment_and_of_its_deployment() -> None:
    flat = {"seed": 3, "settings": "", "federation.deadline": 9, "learning.lr": 0.5, "algorithm.name": "pacfl"}
    deployment, run = settings.read(flat)
    assert (deployment.deadline, run.seed, run.learning.lr, run.algorithm["name"]) == (9.0, 3, 0.5, "pacfl")


def test_the_settings_text_overrides() -> None:
    flat = {"settings": "algorithm.mu = 0.25; schedule.rounds=7", "algorithm.name": "fedprox", "schedule.rounds": 5}
    _, run = settings.read(flat)
    assert (run.algorithm["mu"], run.schedule.rounds) == (0.25, 7)


@pytest.mark.parametrize(
    ("flat", "message"),
    [
        ({"federation.dedline": 3}, "dedline"),
        ({"federation.deadline": 0.0}, "above 0"),
        ({"federation.identity": "name"}, "'key', 'partition-id'"),
        ({"settings": "a b"}, "settings must be TOML"),
        ({"settings": "learning.lr = [0.1, 0.2]"}, "one run, but the settings describe 2"),
        ({"settings": 'data.test = ["owned", "global"]'}, "every site has one set of test samples; leave it out"),
        ({"learning.lrr": 1.0}, "lrr"),
    ],
)
def test_invalid_settings_are_refused_by_name(flat: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        settings.read({"algorithm.name": "fedavg", **flat})


# A client's memory

M = [{"c": np.full(3, float(t), np.float32)} for t in range(6)]


def test_memory_survives_the_process(tmp_path: Path) -> None:
    ClientMemory(tmp_path).save(0, M[0], M[1]["c"], 0)
    memory, last = ClientMemory(tmp_path).before(1)
    assert same(memory, M[0])
    assert same(last, M[1]["c"])


def test_a_round_that_is_run_again_starts_from_the_memory_before_it(tmp_path: Path) -> None:
    stored = ClientMemory(tmp_path)
    for t in range(4):
        stored.save(t, M[t], None, safe=2)
    assert same(stored.before(2)[0], M[1])
    stored.save(2, M[5], None, safe=2)
    assert same(stored.before(9)[0], M[5]), "memory after the round that is run again is void"


def test_only_memory_that_may_be_needed_again_is_stored(tmp_path: Path) -> None:
    stored = ClientMemory(tmp_path)
    for t in range(6):
        stored.save(t, M[t], None, safe=t)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["after-4.npz", "after-5.npz"]


def test_there_is_no_memory_before_the_first_round(tmp_path: Path) -> None:
    assert ClientMemory(tmp_path / "none").before(3) == (None, None)


# Bytes counted and bytes sent


@pytest.mark.usefixtures("identity")
@pytest.mark.parametrize("name", NAMES)
def test_the_bytes_of_a_round_are_those_of_the_arrays_sent(name: str, tmp_path: Path) -> None:
    """Numpy's own header is 128 bytes an array; Flower's records and their names take less than 3 KB a message."""
    algorithm, clients = lively(name), range(len(pool().client_indices))
    grid = FakeGrid(client_loader(algorithm, tmp_path), [100 + c for c in clients])
    backend = FlowerBackend(grid, algorithm, model(), "f", {c: 100 + c for c in clients})
    plan = list(round_plans(Schedule(rounds=2, participation=1.0), len(clients), SEED))[:2]
    done = list(rounds(algorithm, backend, algorithm.init_server(model()), plan))
    down = [m for m in grid.sent if m.metadata.message_type == TRAIN]
    up = [m for m in grid.replies.values() if m.metadata.message_type in (TRAIN, SIGNATURE)]
    for messages, counted in ((down, sum(r.bytes_down for r in done)), (up, sum(r.bytes_up for r in done))):
        arrays = [array for m in messages for array in m.content["arrays"].values()]
        assert sum(len(array.data) - 128 for array in arrays) == counted
        sent = sum(len(part.deflate()) for m in messages for part in get_all_nested_objects(m).values())
        assert 0 <= sent - counted < 3000 * len(messages)


# Messages


def test_every_type_of_message_has_a_handler() -> None:
    assert tuple(HANDLERS) == MESSAGE_TYPES
    assert set(client_app.app._registered_funcs) == {*HANDLERS} - {TRAIN, EVALUATE} | {
        f"{TRAIN}.default",
        f"{EVALUATE}.default",
    }


def test_scores_are_received_as_sent() -> None:
    """Whatever metrics are called: one of a plug-in may have the name of something else."""
    scores = {
        "received": Score(0.5, 1.25),
        "received@global": Score(0.25, 2.0),
        "personal": Score(1.0, 0.0, {"loss": 0.25, "some.module:metric": -3.0}),
    }
    sent = wire.pack({}, {}, scores)
    assert wire.scores(sent, ("loss", "some.module:metric")) == scores


def test_metrics_that_nobody_asked_for_are_not_read() -> None:
    sent = wire.pack({}, {}, {"received": Score(0.5, 1.25, {"auroc": 0.5, "other": float("nan")})})
    assert wire.scores(sent, ("auroc", "macro-f1")) == {"received": Score(0.5, 1.25, {"auroc": 0.5})}


@pytest.mark.parametrize(
    "score", [Score(float("nan"), 0.0), Score(0.0, 0.0, {"auroc": float("inf")}), Score(0.0, -1e308)], ids=str
)
def test_a_score_of_which_no_mean_and_standard_deviation_can_be_computed_is_refused(score: Score) -> None:
    with pytest.raises(ValueError, match=r"has a score of (nan|inf|-1e.308)"):
        wire.scores(wire.pack({}, {}, {"received": score}), ("auroc",))


def test_profiles_of_every_setting_are_accepted(tmp_path: Path) -> None:
    """Private or not, by class or not, of any rank and measure."""
    from pacfl.algorithms import build

    private = {"signature_epsilon": 50.0}
    for chosen in ({}, {"compare": "inputs"}, {"per_class": True}, private, {"rank": 5, "measure": "sum"}):
        algorithm = build("pacfl", **chosen)
        side, _ = client_loader(algorithm, tmp_path)()
        algorithm.check_profile(model(), side.profile(0, 2))


# A user's data


def test_data_that_do_not_fit_together_are_refused() -> None:
    x, y = np.zeros((4, 2)), np.zeros(4)
    with pytest.raises(ValueError, match="4 train samples with 3 labels"):
        Site(x, y[:3], x, y).pool(0)
    with pytest.raises(ValueError, match="no training samples"):
        Site(x[:0], y[:0], x, y).pool(0)
    with pytest.raises(ValueError, match="but 2 raw ones"):
        Site(x, y, x, y, raw=x[:2]).pool(0)
    with pytest.raises(ValueError, match="train labels that are not integers"):
        Site(x, y + 0.5, x, y).pool(0)
    with pytest.raises(ValueError, match=r"groups of shape \(3,\) for 4 training samples"):
        Site(x, y, x, y, groups=y[:3]).pool(0)


def test_groups_of_a_site_are_split_as_units_in_its_signature() -> None:
    from pacfl.algorithms import build

    x = np.repeat(np.random.default_rng(0).standard_normal((30, 1, 8, 8)), 4, axis=0)
    y = np.tile([0, 1], 60)
    for groups in (None, np.repeat(np.arange(30), 4)):
        data = Site(x, y, x, y, groups=groups).pool(2)
        profile = ClientSide(Setup(build("pacfl"), model(), data, LocalTraining(), SEED)).profile(0, 2)
        expected = split_half_angles(data.raw, 3, groups=groups)["smallest"]
        np.testing.assert_array_equal(profile["split_half_angles"], expected.astype(np.float32))
        assert profile["class_counts"].tolist() == ([60, 60] if groups is None else [30, 30])


def test_numbers_stay_numbers_at_a_site_whose_loss_is_for_them() -> None:
    x, y = np.zeros((4, 2)), np.array([0.25, 1.5, -2.0, 0.0])
    assert Site(x, y, x, y).pool(0, "values").train.y.tolist() == y.tolist()
    assert Site(x, y > 0, x, y > 0).pool(0, "labels").test.y.dtype == np.float32
    assert Site(x, np.array([0.0, 1, 2, 3]), x[3:], y[3:]).pool(0).train.y.dtype == np.int64


def test_a_site_has_one_client_whatever_its_id() -> None:
    x, y = np.arange(8.0).reshape(4, 2), np.zeros(4)
    own = Site(x, y, x[:1], y[:1]).pool(7).client_indices[7]
    assert (own.train.tolist(), own.test.tolist()) == ([0, 1, 2, 3], [0])


def test_samples_of_a_site_stay_integers_for_a_model_that_embeds_them() -> None:
    x, y = np.arange(8).reshape(4, 2), np.arange(4)
    assert [Site(x, y, x, y).pool(0, tokens=t).train.x.dtype for t in (True, False)] == [np.int64, np.float32]


# The warm worker


def content() -> RecordDict:
    records = {"a": ArrayRecord({"w": Array(np.arange(5.0)), "v": Array(np.ones((2, 3), np.float32))})}
    return RecordDict({**records, "c": ConfigRecord({"n": 3, "s": "x", "b": True}), "m": MetricRecord({"z": 0.5})})


def test_serialised_records_are_deserialised() -> None:
    import io

    again, about = warm.deserialise(io.BytesIO(warm.serialise(content(), {"a": "b"})))
    assert again == content()
    assert about == {"a": "b"}


def test_a_truncated_reply_is_an_error() -> None:
    import io

    whole = warm.serialise(content(), {})
    for n in (0, 4, 20, len(whole) - 1):
        with pytest.raises(warm.WorkerError, match="ended before"):
            warm.deserialise(io.BytesIO(whole[:n]))


def test_without_a_worker_there_is_no_reply(tmp_path: Path) -> None:
    context = Context(0, 0, {}, RecordDict(), {})
    assert warm.request(str(tmp_path / "nobody"), TRAIN, RecordDict(), context) is None


def test_the_worker_replies_as_the_client_itself_does_and_ends_with_its_companion(tmp_path: Path) -> None:
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
        message = wire.pack(weights, about)
        context = Context(0, 0, {"partition-id": 1, "memory": str(tmp_path)}, RecordDict(), run)
        reply = warm.request(str(path), EVALUATE, message, context)
        assert reply == handle(EVALUATE, message, context, load_client)
        with pytest.raises(warm.WorkerError, match="round must be an integer of at least 0, got None"):
            warm.request(str(path), TRAIN, RecordDict(), context)
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
