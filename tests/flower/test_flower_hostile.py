"""Replies that are broken or mean harm: each is refused, named, and the round goes on without it."""

import logging
import re
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from pacfl.federation.algorithm import Algorithm
from pacfl.federation.rounds import Round, rounds
from pacfl.federation.schedule import Schedule, round_plans
from pacfl.flower.backend import Flower
from tests.flower.fake_grid import FakeGrid, Tamper, home_of
from tests.small_federation import NAMES, SEED, lively, model, played, pool, same

pytestmark = pytest.mark.usefixtures("identity")

HOSTILE = 3
CLIENTS = range(len(pool().client_indices))
SCHEDULE = Schedule(rounds=2, participation=1.0)


def federated(algorithm: Algorithm, folder: Path, tamper: Tamper | None = None) -> tuple[list[Round], Flower]:
    grid = FakeGrid(home_of(algorithm, folder), [100 + c for c in CLIENTS], {100 + HOSTILE: tamper} if tamper else {})
    nodes = {c: 100 + c for c in CLIENTS}
    backend = Flower(grid, algorithm, model(), "f", nodes, deadline=0.2, poll=0.01)
    plan = round_plans(SCHEDULE, len(CLIENTS), SEED)
    return list(rounds(algorithm, backend, algorithm.init_server(model()), plan)), backend


def replaced(kind: str, **arrays: np.ndarray) -> Tamper:
    """Honest but for some arrays in replies of one kind."""

    def tamper(asked: str, content: RecordDict) -> RecordDict:
        if asked == kind:
            honest = {name: array.numpy() for name, array in content["arrays"].items()}
            content["arrays"] = ArrayRecord({name: Array(a) for name, a in {**honest, **arrays}.items()})
        return content

    return tamper


def said(kind: str, **about: object) -> Tamper:
    """Honest but for what a reply says of itself."""

    def tamper(asked: str, content: RecordDict) -> RecordDict:
        if asked == kind:
            content["about"] = ConfigRecord({**content["about"], **about})
        return content

    return tamper


def huge(kind: str) -> Tamper:
    """A reply of a gigabyte; its bytes are never read, so nobody has to write them down."""

    class Gigabyte(bytes):
        def __len__(self) -> int:
            return 2**30

    def tamper(asked: str, content: RecordDict) -> RecordDict:
        if asked == kind:
            record = ArrayRecord({"basis": Array("float32", (2**26, 4), "numpy.ndarray", b"")})
            record["basis"].data = Gigabyte()
            content["arrays"] = record
        return content

    return tamper


def garbage(kind: str) -> Tamper:
    """Bytes that are no array, and a pickle that would run if it were read as one."""

    def tamper(asked: str, content: RecordDict) -> RecordDict:
        if asked == kind:
            evil = b"\x80\x04\x95\x1a\x00\x00\x00\x00\x00\x00\x00\x8c\x05posix\x94\x8c\x06system\x94\x93\x94"
            content["arrays"] = ArrayRecord({"w": Array("float32", (610,), "numpy.ndarray", evil)})
        return content

    return tamper


D, ROWS = 610, 64
BASIS = np.linalg.qr(np.random.default_rng(0).normal(size=(ROWS, 3)))[0].astype(np.float32)
BAD_SIGNATURES = {
    "values that are no numbers": replaced("query.signature", basis=np.full((ROWS, 3), np.nan, np.float32)),
    "has 63 features, 64 are wanted": replaced("query.signature", basis=np.eye(63, 3, dtype=np.float32)),
    "not orthonormal": replaced("query.signature", basis=np.ones((ROWS, 3), np.float32)),
    "basis' has 64 columns, at most 3": replaced("query.signature", basis=np.eye(ROWS, dtype=np.float32)),
    "basis' has 0 columns of 64": replaced("query.signature", basis=np.ones((ROWS, 0), np.float32)),
    "1,073,741,824 bytes of arrays": huge("query.signature"),
    "cannot be read": garbage("query.signature"),
    "answers round 7, not": said("query.signature", round=7),
    "has arrays": replaced("query.signature", also=np.zeros(3)),
    "is int64 of shape": replaced("query.signature", basis=np.ones((ROWS, 3), np.int64)),
    "degrees from 0 to 270": replaced("query.signature", split_half_angles=np.full(8, -1, np.float32)),
    "split_half_angles' are degrees from": replaced("query.signature", split_half_angles=np.full(8, 271, np.float32)),
    "split_half_angles' has 100,000 columns, at most 32": replaced(
        "query.signature", split_half_angles=np.ones(10**5, np.float32)
    ),
}
BAD_MODELS = {
    r"shape \(609,\)": replaced("train", w=np.zeros(D - 1, np.float32)),
    r"shape \(610, 1\)": replaced("train", w=np.zeros((D, 1), np.float32)),
    "values that are no numbers": replaced("train", w=np.full(D, np.inf, np.float32)),
    "has norm": replaced("train", w=np.full(D, 1e30, np.float32)),
    "answers round 0, not 1": said("train", round=0),
    "answers round 'soon'": said("train", round="soon"),
    "bytes of arrays": replaced("train", w=np.zeros(10**6, np.float32)),
    "cannot be read": garbage("train"),
    "claims 0 training samples": said("train", size=0),
    "claims 1000000000000 training": said("train", size=10**12),
    "claims True": said("train", size=True),
}


@pytest.mark.parametrize("what", BAD_SIGNATURES)
def test_a_bad_signature_is_refused_and_the_others_federate(
    what: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As if the hostile client had never come."""
    caplog.set_level(logging.WARNING, "pacfl")
    algorithm = lively("pacfl")
    done, backend = federated(algorithm, tmp_path, BAD_SIGNATURES[what])
    assert HOSTILE not in done[-1].state.cluster_of
    assert set(done[-1].state.cluster_of) == set(CLIENTS) - {HOSTILE}
    assert {trouble.client for trouble in backend.reply_errors} == {HOSTILE}
    assert f"client {HOSTILE}: reply refused" in caplog.text
    assert re.search(what, caplog.text)


@cache
def without_it() -> object:
    """What FedAvg comes to when the hostile client is sampled and its replies are lost."""
    with TemporaryDirectory() as folder:
        return federated(lively("fedavg"), Path(folder), lambda kind, c: None if kind == "train" else c)[0][-1].state


@pytest.mark.parametrize("what", BAD_MODELS)
def test_a_bad_model_is_refused_and_does_not_touch_the_others(
    what: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The same models as if its replies had been lost."""
    caplog.set_level(logging.WARNING, "pacfl")
    algorithm = lively("fedavg")
    done, backend = federated(algorithm, tmp_path, BAD_MODELS[what])
    refused = {trouble.round for trouble in backend.reply_errors}
    assert 1 in refused
    if 0 in refused:
        assert same(done[-1].state, without_it())
    assert re.search(what, caplog.text)


@pytest.mark.parametrize("name", NAMES)
def test_honest_replies_are_believed_whatever_the_algorithm(name: str, tmp_path: Path) -> None:
    algorithm = lively(name)
    done, backend = federated(algorithm, tmp_path)
    assert backend.reply_errors == []
    for a, b in zip(done, played(algorithm, SCHEDULE), strict=True):
        assert same(a.state, b.state)


def test_ifca_does_not_believe_in_a_model_that_is_not_there(tmp_path: Path) -> None:
    _, backend = federated(lively("ifca"), tmp_path, replaced("train", choice=np.array([9])))
    assert {t.what for t in backend.reply_errors} == {"reply refused: chose model 9 of 2"}


def test_fednova_does_not_believe_in_steps_backward(tmp_path: Path) -> None:
    _, backend = federated(lively("fednova"), tmp_path, replaced("train", steps=np.array([-4.0])))
    assert {t.what for t in backend.reply_errors} == {"reply refused: took -4.0 steps"}


def test_a_reply_that_never_comes_ends_the_wait_at_the_deadline(tmp_path: Path) -> None:
    done, backend = federated(lively("fedavg"), tmp_path, lambda kind, c: None if kind == "train" else c)
    assert [t.what for t in backend.reply_errors] == ["no reply to 'train' within 0.2 s"] * SCHEDULE.rounds
    assert len(done) == SCHEDULE.rounds + 1


def test_a_client_that_is_nowhere_is_named(tmp_path: Path) -> None:
    algorithm = lively("fedavg")
    backend = Flower(FakeGrid(home_of(algorithm, tmp_path), []), algorithm, model(), "f")
    assert backend.profile(4, [2]) == {}
    assert [(t.round, t.client, t.what) for t in backend.reply_errors] == [(4, 2, "cannot be reached")]


def test_a_cluster_without_replies_keeps_its_model(tmp_path: Path) -> None:
    """Clients 3, 4 and 5 are the second cluster; nobody in it answers."""
    algorithm = lively("pacfl")
    silent = {100 + c: (lambda kind, c: None if kind == "train" else c) for c in (3, 4, 5)}
    grid = FakeGrid(home_of(algorithm, tmp_path), [100 + c for c in CLIENTS], silent)
    backend = Flower(grid, algorithm, model(), "f", {c: 100 + c for c in CLIENTS}, deadline=0.1, poll=0.01)
    *_, end = rounds(algorithm, backend, algorithm.init_server(model()), round_plans(SCHEDULE, len(CLIENTS), SEED))
    first, second = end.state.cluster_of[0], end.state.cluster_of[3]
    assert np.array_equal(end.state.models[second], model().initial)
    assert not np.array_equal(end.state.models[first], model().initial)
