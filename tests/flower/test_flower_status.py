"""The status is honest: it says what is wrong, and what to do."""

import json
import shutil
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from flwr.app import Error, Message
from test_flower_server import NODES, GoneError, config, messages, records

from pacfl.flower import client_registry, health, status
from pacfl.flower.attendance import Attendance, without_update
from pacfl.flower.backend import FlowerBackend
from pacfl.flower.deploy import keys
from pacfl.flower.message_types import SIGNATURE, TRAIN
from pacfl.flower.server import federate
from tests.flower.fake_grid import FakeGrid, client_loader
from tests.small_federation import lively, model

pytestmark = pytest.mark.usefixtures("identity")


class Failing(FakeGrid):
    """A grid with a node that replies with an error, so many times."""

    def __init__(
        self, *args: Any, node: int, times: int, kind: str = SIGNATURE, why: str = "no file /srv/tabels"
    ) -> None:
        super().__init__(*args)
        self.node, self.times, self.kind, self.why = node, times, kind, why

    def _reply(self, message: Message) -> Message | None:
        about = message.metadata
        if about.dst_node_id == self.node and about.message_type == self.kind and self.times > 0:
            self.times -= 1
            return Message(Error(2, self.why), reply_to=message)
        return super()._reply(message)


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Every status that was written."""
    written: list[dict[str, Any]] = []

    def write(folder: Path, content: dict[str, Any]) -> None:
        written.append(json.loads(json.dumps(content)))
        health.write(folder, content)

    monkeypatch.setattr(status, "write", write)
    return written


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that waits does so quickly, and not for ever."""
    naps = iter(range(500))
    monkeypatch.setattr(client_registry, "FIRST_WAIT", 0.01)
    monkeypatch.setattr(client_registry.time, "sleep", lambda _: next(naps))


def problems(folder: Path) -> list[str]:
    return [problem.what for problem in health.problems(folder)]


@pytest.mark.usefixtures("hurried")
def test_a_site_that_cannot_join_is_named_and_asked_again_until_it_can(
    tmp_path: Path, seen: list[dict[str, Any]]
) -> None:
    """Two sites have to take part, and the path of one's data is wrong for a while: all rounds run in the end."""
    grid = Failing(client_loader(lively("pacfl"), tmp_path / "m"), NODES[:2], node=101, times=4)
    federate(grid, config(tmp_path / "f", rounds=3))
    waits = [content for content in seen if content["phase"] == "waiting for clients"]
    assert waits
    for content in waits:
        (tmp_path / "then").mkdir(exist_ok=True)
        health.write(tmp_path / "then", content)
        (stalled, unjoined) = problems(tmp_path / "then")
        assert "2 have to take part, 1 can; site-01 failed (error 2: no file /srv/tabels)" in stalled
        assert "site site-01 could not join (error 2: no file /srv/tabels)" in unjoined
        assert health.exit_code(health.problems(tmp_path / "then")) == health.STALLED
    trained = [record for record in records(tmp_path / "f") if record["sampled"]]
    assert len(trained) == 3
    assert [t for t, node in messages(grid, TRAIN) if node == 101], "it takes part in the end"
    assert seen[-1]["phase"] == "finished"
    assert problems(tmp_path / "f") == []


@pytest.mark.usefixtures("hurried")
def test_an_attempt_to_join_before_the_final_evaluation_is_not_taken_for_it(tmp_path: Path) -> None:
    """The server is killed after it; the evaluation of everybody is still to come."""
    load = client_loader(lively("pacfl"), tmp_path / "m")
    federate(Failing(load, NODES[:2], node=101, times=1, kind="none"), config(tmp_path / "f", rounds=1))
    ended = records(tmp_path / "f")
    assert "delivered" in ended[-1]
    attempt = {**ended[0], "sampled": []}
    (tmp_path / "f" / "rounds.jsonl").write_text("".join(json.dumps(r) + "\n" for r in (ended[0], attempt)))
    federate(FakeGrid(load, NODES[:2]), config(tmp_path / "f", rounds=1))
    assert "delivered" in records(tmp_path / "f")[-1]


def test_a_site_that_fails_in_every_round_is_named_after_three(tmp_path: Path, seen: list[dict[str, Any]]) -> None:
    """As one whose app was changed, or that refuses the app."""
    why = "the site has not approved this app"
    grid = Failing(client_loader(lively("fedavg"), tmp_path / "m"), NODES, node=103, times=99, kind=TRAIN, why=why)
    at_round(grid, 4)
    with pytest.raises(GoneError):
        federate(grid, config(tmp_path / "f", "fedavg", rounds=9))
    by_round = {content["round"]: content for content in seen if content["phase"] == "running"}
    assert [by_round[t]["clients"]["3"]["missed"] for t in (1, 2, 3, 4)] == [1, 2, 3, 4]
    (tmp_path / "then").mkdir()
    for t, expected in ((2, []), (3, [f"site site-03 missed the last 3 rounds (error 2: {why})"])):
        health.write(tmp_path / "then", by_round[t])
        assert [what.partition(":")[0] for what in problems(tmp_path / "then")] == [
            e.partition(":")[0] for e in expected
        ]
    assert health.exit_code(health.problems(tmp_path / "then")) == health.DEGRADED
    assert Attendance.of(records(tmp_path / "f")).missed == {3: 4}, "a server that is started again knows it"


def at_round(grid: FakeGrid, t: int) -> None:
    """The server is killed when it asks for a later round."""
    push = grid.push_messages

    def pushing(sent: Any) -> list[str]:
        sent = list(sent)
        if int(sent[0].metadata.group_id) >= t:
            raise GoneError
        return push(sent)

    grid.push_messages = pushing  # type: ignore[method-assign]


def test_a_site_that_is_silent_again_and_again_does_not_cost_every_round_its_deadline(tmp_path: Path) -> None:
    """Asked in rounds 1, 2, 3; then after pauses of 1 and 2 rounds. Its executor is dead, or its disk is full."""
    mute = {103: lambda kind, content: None if kind == TRAIN else content}
    grid = FakeGrid(client_loader(lively("fedavg"), tmp_path / "m"), NODES, mute)
    federate(grid, config(tmp_path / "f", "fedavg", rounds=9, **{"federation.deadline": 0.05}))
    assert [t for t, node in messages(grid, TRAIN) if node == 103] == [0, 1, 2, 4, 7]


def test_a_server_app_that_is_killed_is_noticed_within_half_a_minute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert health.HEARTBEAT + health.LOST < 36
    load = client_loader(lively("fedavg"), tmp_path / "m")
    federate(FakeGrid(load, NODES), config(tmp_path / "f", "fedavg", rounds=1))
    content = {**(health.read(tmp_path / "f") or {}), "phase": "running", "deadline": 3600.0}
    health.write(tmp_path / "f", {**content, "at": time.time()})
    assert problems(tmp_path / "f") == []
    assert not health.run_is_due(tmp_path / "f")
    now = time.time()
    monkeypatch.setattr(health.time, "time", lambda: now + health.LOST + 1)
    assert ["last sign of life 26 s ago" in what for what in problems(tmp_path / "f")] == [True]
    assert health.exit_code(health.problems(tmp_path / "f")) == health.STALLED
    assert health.run_is_due(tmp_path / "f")


def test_a_server_app_that_waits_for_replies_gives_signs_of_life(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(status, "HEARTBEAT", 0.01)
    file = a_file(tmp_path)
    with file.beating():
        first = health.read(tmp_path) or {}
        until(lambda: (health.read(tmp_path) or {})["heartbeat"] > first["heartbeat"])
        assert {**(health.read(tmp_path) or {}), "heartbeat": 0} == {**first, "heartbeat": 0}
        (tmp_path / health.FILE).unlink()
        tmp_path.joinpath(health.FILE).mkdir()  # as good as a full disk
        time.sleep(0.05)
        tmp_path.joinpath(health.FILE).rmdir()
        until((tmp_path / health.FILE).exists)


def a_file(folder: Path) -> status.StatusFile:
    backend = FlowerBackend(FakeGrid(None, []), lively("fedavg"), model(), "f")
    return status.StatusFile(folder, 3, client_registry.ClientRegistry(), backend, {})


def until(condition: Any, seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


@pytest.mark.parametrize("stop", [SystemExit, KeyboardInterrupt])
def test_a_run_that_is_stopped_is_not_shown_as_running(stop: type[BaseException], tmp_path: Path) -> None:
    """As by `flwr stop`, or when the machine is shut down."""

    class Stopped(FakeGrid):
        def pull_messages(self, message_ids: Any) -> list[Message]:  # noqa: ARG002
            raise stop

    with pytest.raises(stop):
        federate(Stopped(client_loader(lively("fedavg"), tmp_path / "m"), NODES), config(tmp_path / "f", "fedavg"))
    assert health.exit_code(health.problems(tmp_path / "f")) == health.FAILED
    assert health.run_is_due(tmp_path / "f")


def test_a_finished_federation_that_is_started_again_is_not_shown_as_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load = client_loader(lively("fedavg"), tmp_path / "m")
    federate(FakeGrid(load, NODES), config(tmp_path / "f", "fedavg", rounds=1))
    health.starting(tmp_path / "f")
    assert (health.read(tmp_path / "f") or {})["phase"] == "starting"
    assert problems(tmp_path / "f") == []
    assert not health.run_is_due(tmp_path / "f")
    now = time.time()
    monkeypatch.setattr(health.time, "time", lambda: now + health.STARTING + 1)
    assert "has not started" in problems(tmp_path / "f")[0]
    assert health.run_is_due(tmp_path / "f")


def test_a_run_that_was_never_started_is_due(tmp_path: Path) -> None:
    assert health.run_is_due(tmp_path / "f")
    health.starting(tmp_path / "f")
    assert not health.run_is_due(tmp_path / "f")


@pytest.mark.parametrize(
    ("what", "record", "expected"),
    [
        ("all reply", {}, []),
        ("one of a cluster replies", {"reply_failures": [{"client": 0, "what": "x"}]}, []),
        ("nobody of a cluster does", {"reply_failures": [{"client": 2, "what": "x"}]}, [1]),
        ("it is not connected", {"sampled": [0, 1], "away": [2]}, [1]),
        ("it was not drawn", {"sampled": [0, 1]}, []),
        ("its operator has paused it", {"sampled": [0, 1, 2], "paused": [2]}, []),
    ],
)
def test_a_cluster_without_an_update_is_one_of_which_an_update_was_to_be_expected(
    what: str, record: dict[str, Any], expected: list[int]
) -> None:
    """Clients 0 and 1 are cluster 0, client 2 is cluster 1."""
    base = {"sampled": [0, 1, 2], "cluster_of": {"0": 0, "1": 0, "2": 1}, "reply_failures": [], "away": []}
    assert without_update({**base, **record}) == expected, what
    assert Attendance.of([{**base, **record}]).without_update == expected


def test_rounds_missed_are_counted_in_a_row() -> None:
    base = {"cluster_of": {"0": 0, "1": 0}, "sampled": [0, 1], "reply_failures": [], "away": []}
    failed = {**base, "reply_failures": [{"client": 1, "what": "no reply"}]}
    away = {**base, "sampled": [0], "away": [1]}
    undrawn = {**base, "sampled": [0]}
    assert Attendance.of([failed, away, undrawn, away]).missed == {1: 3}
    assert Attendance.of([failed, away]).why == {1: "not connected"}
    assert Attendance.of([failed, base, failed]).missed == {1: 1}
    assert Attendance.of([failed, {**base, "paused": [1]}]).missed == {}


def test_a_cluster_without_an_update_is_a_problem(tmp_path: Path) -> None:
    file = a_file(tmp_path)
    file.registry.update({"a": client_registry.Node(1, "lyon"), "b": client_registry.Node(2, "graz")})
    record = {"sampled": [0, 1], "cluster_of": {"0": 0, "1": 1}, "clusters": 2}
    file.round_finished(0, {0: 0, 1: 1}, {**record, "reply_failures": [{"client": 1, "what": "late"}]})
    assert ["cluster 1 had no update" in what and "lyon" in what for what in problems(tmp_path)] == [True]
    file.round_finished(1, {0: 0, 1: 1}, record)
    assert problems(tmp_path) == []


@pytest.mark.parametrize(
    ("free", "total", "full"),
    [(2**30, 2**40, False), (2**30 - 1, 2**40, True), (2**27, 2**30, False), (2**26, 2**30, True)],
)
def test_a_disk_is_nearly_full_below_a_gibibyte_or_a_tenth_of_a_small_one(
    free: int, total: int, full: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: (total, total - free, free))
    assert bool(list(health.of_disk(tmp_path))) == full


@pytest.mark.parametrize(("days", "words"), [(31, None), (29, "ends in 28 days"), (-1, "has ended")])
def test_a_certificate_that_ends_soon_is_a_problem(
    days: int, words: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "server").mkdir()
    (tmp_path / "authority").mkdir()
    keys.write_certificates(tmp_path / "authority", tmp_path / "server", ["localhost"], years=1)
    later = datetime.now(UTC) + timedelta(days=365 - days)
    monkeypatch.setattr(health, "datetime", SimpleNamespace(now=lambda _: later))
    found = [problem.what for problem in health.of_certificate(tmp_path / "server" / "server.crt")]
    assert [words in what for what in found] == ([True] if words else []) if words else found == []
