"""A site that its operator has paused is not asked to train, and is not a failure."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from flwr.app import Error, Message
from test_flower_server import NODES, config, messages, records

from pacfl.flower import client_registry, health, pauses, server
from pacfl.flower.event_log import JsonLines, info
from pacfl.flower.message_types import IDENTITY, PAUSED, SIGNATURE, TRAIN
from pacfl.flower.server import federate
from tests.flower.fake_grid import FakeGrid, client_loader
from tests.small_federation import lively

pytestmark = pytest.mark.usefixtures("identity")


class Pausing(FakeGrid):
    """A grid whose node 103 is paused from its so-manieth message on, for some messages."""

    def __init__(self, *args: Any, start: int, messages: int) -> None:
        super().__init__(*args)
        self.span = range(start, start + messages)
        self.seen: list[str] = []

    def _reply(self, message: Message) -> Message | None:
        if message.metadata.dst_node_id != 103:
            return super()._reply(message)
        self.seen.append(message.metadata.message_type)
        if len(self.seen) - 1 in self.span:
            return Message(Error(PAUSED, "paused"), reply_to=message)
        return super()._reply(message)


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Paused sites are asked whenever there is time, and a server waits for not more than 500 looks."""
    naps = iter(range(500))
    monkeypatch.setattr(pauses, "PAUSE", 0.0)
    monkeypatch.setattr(client_registry.time, "sleep", lambda _: next(naps))


@pytest.mark.usefixtures("hurried")
def test_a_paused_site_does_not_train_and_returns_when_it_resumes(tmp_path: Path) -> None:
    """It answers signature and two trainings, then is paused for three messages: a training and two questions."""
    grid = Pausing(client_loader(lively("pacfl"), tmp_path / "m"), NODES, start=3, messages=3)
    federate(grid, config(tmp_path / "f", rounds=9))
    assert grid.seen[:7] == [SIGNATURE, TRAIN, TRAIN, TRAIN, IDENTITY, IDENTITY, IDENTITY]
    assert set(grid.seen[7:]) == {TRAIN, "evaluate"}
    paused = [record["paused"] for record in records(tmp_path / "f")]
    assert paused[:3] == [[], [], [3]]
    assert paused[-1] == []
    assert [record["reply_failures"] for record in records(tmp_path / "f")] == [[]] * 10
    rounds_trained = {t for t, node in messages(grid, TRAIN) if node == 103}
    assert rounds_trained == {t for t, p in enumerate(paused[:9]) if t < 3 or 3 not in p}
    log = (tmp_path / "f" / "server.log").read_text()
    assert "client site-03: the operator of the site has paused it" in log
    assert "client site-03: resumed by its operator" in log
    assert health.problems(tmp_path / "f") == []


def test_a_site_that_is_paused_before_it_joins_has_not_failed_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor does it delay the end: it is asked once, and joins nothing."""
    held: list[client_registry.ClientRegistry] = []
    monkeypatch.setattr(server, "Pauses", lambda grid, registry: held.append(registry) or pauses.Pauses(grid, registry))
    grid = Pausing(client_loader(lively("pacfl"), tmp_path / "m"), NODES, start=0, messages=99)
    federate(grid, config(tmp_path / "f", rounds=2))
    assert grid.seen == [SIGNATURE]
    assert held[0].failures == {}
    content = health.read(tmp_path / "f") or {}
    client = content["clients"]["3"]
    assert (client["paused"], client["missed"], client["cluster"]) == (True, 0, None)
    assert [record["clients"] for record in records(tmp_path / "f")] == [5, 5, 5]


@pytest.mark.usefixtures("hurried")
def test_a_round_waits_for_sites_that_are_paused_if_it_needs_them(tmp_path: Path) -> None:
    """No round of training is spent while it does."""
    more = {"federation.minimum-clients": 6, "federation.quorum": 6}
    grid = Pausing(client_loader(lively("fedavg"), tmp_path / "m"), NODES, start=1, messages=20)
    federate(grid, config(tmp_path / "f", "fedavg", rounds=3, **more))
    assert grid.seen.count(IDENTITY) == 20
    assert [3 in record["paused"] for record in records(tmp_path / "f")] == [True, False, False, False]


def test_a_question_that_is_lost_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(pauses.time, "monotonic", lambda: now[0])
    grid = FakeGrid(None, [])  # type: ignore[arg-type]
    grid._reply = lambda _: None  # type: ignore[method-assign]
    registry = client_registry.ClientRegistry(paused={3}, nodes={3: 103}, names={3: "lyon"})
    asks = pauses.Pauses(grid, registry)
    for now[0] in (0.0, 59.0, 60.0, 61.0, 120.0):
        asks.look()
    assert [m.metadata.message_type for m in grid.sent] == [IDENTITY] * 2
    assert len(asks.asked) == 1


def test_events_are_lines_of_json_if_asked(tmp_path: Path) -> None:
    settings = config(tmp_path / "f", "fedavg", rounds=1, **{"federation.log": "json"})
    mute = {103: lambda kind, content: None if kind == TRAIN else content}
    settings.run_config["federation.deadline"] = 0.05
    federate(FakeGrid(client_loader(lively("fedavg"), tmp_path / "m"), NODES, mute), settings)
    events = [json.loads(line) for line in (tmp_path / "f" / "server.log").read_text().splitlines()]
    assert (events[0]["event"], events[-1]["event"]) == ("started", "finished")
    (failed,) = [event for event in events if event["event"] == "reply-failed"]
    assert failed["why"] in failed.pop("message")
    assert {**failed, "at": 0} == {
        "at": 0,
        "level": "warning",
        "event": "reply-failed",
        "round": 1,
        "client": "site-03",
        "why": "no reply to 'train' within 0.05 s",
    }
    ended = [event for event in events if event["event"] == "round-finished"]
    assert [(event["round"], event["clusters"]) for event in ended] == [(1, 1), (2, 1)]


def test_every_record_of_the_log_is_one_line(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        info("two\nlines", "other", client="a\nb")
        logging.getLogger("pacfl").info("of %s", "a library")
    lines = [JsonLines().format(record) for record in caplog.records]
    assert [json.loads(line)["message"] for line in lines] == ["two\nlines", "of a library"]
    assert not any("\n" in line for line in lines)
