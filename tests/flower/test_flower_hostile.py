"""Broken and hostile replies: each is refused and named, and the round continues without it."""

import ast
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from pacfl.errors import InvalidReplyError
from pacfl.federation.algorithm import Algorithm, State
from pacfl.federation.message import ClientId, Message
from pacfl.federation.rounds import Round, rounds
from pacfl.federation.schedule import Schedule, round_plans
from pacfl.flower import backend as backend_module
from pacfl.flower.backend import FlowerBackend
from pacfl.learning.model import Model
from tests.flower.fake_grid import FakeGrid, Tamper, client_loader
from tests.small_federation import NAMES, SEED, lively, model, pool, run_rounds, same, side

pytestmark = pytest.mark.usefixtures("identity")

HOSTILE = 3
CLIENTS = range(len(pool().client_indices))
SCHEDULE = Schedule(rounds=2, participation=1.0)


def run_federated(
    algorithm: Algorithm, folder: Path, tamper: Tamper | None = None
) -> tuple[list[Round], FlowerBackend]:
    grid = FakeGrid(
        client_loader(algorithm, folder), [100 + c for c in CLIENTS], {100 + HOSTILE: tamper} if tamper else {}
    )
    nodes = {c: 100 + c for c in CLIENTS}
    backend = FlowerBackend(grid, algorithm, model(), "f", nodes, deadline=0.2, poll=0.01)
    plan = round_plans(SCHEDULE, len(CLIENTS), SEED)
    return list(rounds(algorithm, backend, algorithm.init_server(model()), plan)), backend


def with_arrays(kind: str, **arrays: np.ndarray) -> Tamper:
    """Honest except for some arrays in replies of one type."""

    def tamper(message_type: str, content: RecordDict) -> RecordDict:
        if message_type == kind:
            honest = {name: array.numpy() for name, array in content["arrays"].items()}
            content["arrays"] = ArrayRecord({name: Array(a) for name, a in {**honest, **arrays}.items()})
        return content

    return tamper


def with_header(kind: str, **about: object) -> Tamper:
    """Honest except for the header of replies of one type."""

    def tamper(message_type: str, content: RecordDict) -> RecordDict:
        if message_type == kind:
            content["about"] = ConfigRecord({**content["about"], **about})
        return content

    return tamper


def huge(kind: str) -> Tamper:
    """A reply of a gigabyte; its bytes are never read, so there are none."""

    class Gigabyte(bytes):
        def __len__(self) -> int:
            return 2**30

    def tamper(message_type: str, content: RecordDict) -> RecordDict:
        if message_type == kind:
            record = ArrayRecord({"basis": Array("float32", (2**26, 4), "numpy.ndarray", b"")})
            record["basis"].data = Gigabyte()
            content["arrays"] = record
        return content

    return tamper


def garbage(kind: str) -> Tamper:
    """A pickle in the place of an array, which would run if it were unpickled."""

    def tamper(message_type: str, content: RecordDict) -> RecordDict:
        if message_type == kind:
            evil = b"\x80\x04\x95\x1a\x00\x00\x00\x00\x00\x00\x00\x8c\x05posix\x94\x8c\x06system\x94\x93\x94"
            content["arrays"] = ArrayRecord({"w": Array("float32", (610,), "numpy.ndarray", evil)})
        return content

    return tamper


D, ROWS = 610, 64
BASIS = np.linalg.qr(np.random.default_rng(0).normal(size=(ROWS, 3)))[0].astype(np.float32)
BAD_SIGNATURES = {
    "values that are NaN or infinite": with_arrays("query.signature", basis=np.full((ROWS, 3), np.nan, np.float32)),
    "has 63 features, expected 64": with_arrays("query.signature", basis=np.eye(63, 3, dtype=np.float32)),
    "not orthonormal": with_arrays("query.signature", basis=np.ones((ROWS, 3), np.float32)),
    "basis' has 64 columns, expected at most 3": with_arrays("query.signature", basis=np.eye(ROWS, dtype=np.float32)),
    "basis' has 0 columns of 64": with_arrays("query.signature", basis=np.ones((ROWS, 0), np.float32)),
    "1,073,741,824 bytes of arrays": huge("query.signature"),
    "cannot be read": garbage("query.signature"),
    "is for round 7, not": with_header("query.signature", round=7),
    "has arrays": with_arrays("query.signature", also=np.zeros(3)),
    "is int64 of shape": with_arrays("query.signature", basis=np.ones((ROWS, 3), np.int64)),
    "degrees from 0 to 270": with_arrays("query.signature", split_half_angles=np.full(8, -1, np.float32)),
    "split_half_angles' must be degrees from": with_arrays(
        "query.signature", split_half_angles=np.full(8, 271, np.float32)
    ),
    "split_half_angles' has 100,000 columns, expected at most 32": with_arrays(
        "query.signature", split_half_angles=np.ones(10**5, np.float32)
    ),
}
BAD_MODELS = {
    r"shape \(609,\)": with_arrays("train", w=np.zeros(D - 1, np.float32)),
    r"shape \(610, 1\)": with_arrays("train", w=np.zeros((D, 1), np.float32)),
    "values that are NaN or infinite": with_arrays("train", w=np.full(D, np.inf, np.float32)),
    "has norm": with_arrays("train", w=np.full(D, 1e30, np.float32)),
    "is for round 0, not 1": with_header("train", round=0),
    "is for round 'soon'": with_header("train", round="soon"),
    "bytes of arrays": with_arrays("train", w=np.zeros(10**6, np.float32)),
    "cannot be read": garbage("train"),
    "claims 0 training samples": with_header("train", size=0),
    "claims 1000000000000 training": with_header("train", size=10**12),
    "claims True": with_header("train", size=True),
}


@pytest.mark.parametrize("what", BAD_SIGNATURES)
def test_a_bad_signature_is_refused_and_the_others_federate(
    what: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As if the hostile client did not exist."""
    caplog.set_level(logging.WARNING, "pacfl")
    algorithm = lively("pacfl")
    done, backend = run_federated(algorithm, tmp_path, BAD_SIGNATURES[what])
    assert HOSTILE not in done[-1].state.cluster_of
    assert set(done[-1].state.cluster_of) == set(CLIENTS) - {HOSTILE}
    assert {failure.client for failure in backend.reply_failures} == {HOSTILE}
    assert f"client {HOSTILE}: reply refused" in caplog.text
    assert re.search(what, caplog.text)


@cache
def without_hostile_client() -> object:
    """The final state of FedAvg when the hostile client is sampled and its replies are lost."""
    with TemporaryDirectory() as folder:
        return run_federated(lively("fedavg"), Path(folder), lambda kind, c: None if kind == "train" else c)[0][
            -1
        ].state


@pytest.mark.parametrize("what", BAD_MODELS)
def test_a_bad_model_is_refused_and_does_not_affect_the_others(
    what: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The same models as if its replies had been lost."""
    caplog.set_level(logging.WARNING, "pacfl")
    algorithm = lively("fedavg")
    done, backend = run_federated(algorithm, tmp_path, BAD_MODELS[what])
    refused = {failure.round for failure in backend.reply_failures}
    assert 1 in refused
    if 0 in refused:
        assert same(done[-1].state, without_hostile_client())
    assert re.search(what, caplog.text)


@pytest.mark.parametrize("name", NAMES)
def test_honest_replies_are_accepted_for_every_algorithm(name: str, tmp_path: Path) -> None:
    algorithm = lively(name)
    done, backend = run_federated(algorithm, tmp_path)
    assert backend.reply_failures == []
    for a, b in zip(done, run_rounds(algorithm, SCHEDULE), strict=True):
        assert same(a.state, b.state)


def test_ifca_refuses_the_choice_of_a_model_that_does_not_exist(tmp_path: Path) -> None:
    _, backend = run_federated(lively("ifca"), tmp_path, with_arrays("train", choice=np.array([9])))
    assert {t.what for t in backend.reply_failures} == {"reply refused: chose model 9 of 2"}


def test_fednova_does_not_believe_in_steps_backward(tmp_path: Path) -> None:
    _, backend = run_federated(lively("fednova"), tmp_path, with_arrays("train", steps=np.array([-4.0])))
    assert {t.what for t in backend.reply_failures} == {"reply refused: took -4.0 steps"}


@dataclass(frozen=True)
class Bounded(Algorithm):
    """A method of somebody else, with checks of its own."""

    def check_upload(self, own_model: Model, down: Message, up: Message) -> None:
        super().check_upload(own_model, down, up)
        if not up["w"].any():
            raise InvalidReplyError("has only zeros")

    def incompatible(self, state: State, profiles: Mapping[ClientId, Message]) -> Mapping[ClientId, str]:
        return {c: "is one too many" for c in profiles if c > 4 and c not in state.cluster_of}


def test_an_algorithm_checks_what_the_transport_does_not_know(tmp_path: Path) -> None:
    done, backend = run_federated(Bounded(), tmp_path, with_arrays("train", w=np.zeros(D, np.float32)))
    assert {(t.client, t.what) for t in backend.reply_failures} == {
        (HOSTILE, "reply refused: has only zeros"),
        (5, "reply refused: is one too many"),
    }
    assert set(done[-1].state.cluster_of) == {0, 1, 2, 3, 4}


def test_the_transport_knows_no_name_of_an_array() -> None:
    names = set()
    for name in NAMES:
        algorithm = lively(name)
        profile = side(algorithm).profile(0, 0)
        down = algorithm.download(algorithm.admit(algorithm.init_server(model()), {0: profile}), 0)
        names |= {*profile, *algorithm.upload_specs(model(), down)}
    assert names == {
        "w", "dc", "direction", "steps", "choice", "basis", "split_half_angles",
        "head", "losses", "inferred", "gradient", "omega", "parts", "importance",
        "class_names", "class_sizes", "class_directions", "update",
    }  # fmt: skip
    for path in sorted(Path(backend_module.__file__).parent.rglob("*.py")):
        constants = {node.value for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Constant)}
        assert not constants & names, path


def test_the_server_waits_for_a_missing_reply_until_the_deadline(tmp_path: Path) -> None:
    done, backend = run_federated(lively("fedavg"), tmp_path, lambda kind, c: None if kind == "train" else c)
    assert [t.what for t in backend.reply_failures] == ["no reply to 'train' within 0.2 s"] * SCHEDULE.rounds
    assert len(done) == SCHEDULE.rounds + 1


def test_a_client_without_a_node_is_named(tmp_path: Path) -> None:
    algorithm = lively("fedavg")
    backend = FlowerBackend(FakeGrid(client_loader(algorithm, tmp_path), []), algorithm, model(), "f")
    assert backend.profile(4, [2]) == {}
    assert [(t.round, t.client, t.what) for t in backend.reply_failures] == [(4, 2, "cannot be reached")]


def test_a_cluster_without_replies_retains_its_model(tmp_path: Path) -> None:
    """Clients 3, 4 and 5 are the second cluster; none of them replies."""
    algorithm = lively("pacfl")
    silent = {100 + c: (lambda kind, c: None if kind == "train" else c) for c in (3, 4, 5)}
    grid = FakeGrid(client_loader(algorithm, tmp_path), [100 + c for c in CLIENTS], silent)
    backend = FlowerBackend(grid, algorithm, model(), "f", {c: 100 + c for c in CLIENTS}, deadline=0.1, poll=0.01)
    *_, end = rounds(algorithm, backend, algorithm.init_server(model()), round_plans(SCHEDULE, len(CLIENTS), SEED))
    first, second = end.state.cluster_of[0], end.state.cluster_of[3]
    assert np.array_equal(end.state.models[second], model().initial)
    assert not np.array_equal(end.state.models[first], model().initial)
