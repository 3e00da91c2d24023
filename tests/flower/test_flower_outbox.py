"""At a site, everything that leaves it is recorded before Flower gets it; and its operator may pause it."""

import hashlib
import json
import stat
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.proto.message_pb2 import ObjectTree
from flwr.supercore.object_store import ObjectStoreFactory
from flwr.supernode.nodestate import NodeStateFactory
from typer.testing import CliRunner

from pacfl.cli import app
from pacfl.errors import DeployError
from pacfl.flower import client_app, client_handlers, outbox, warm, wire
from pacfl.flower.deploy import layout, pausing, supernode
from pacfl.flower.message_types import PAUSED, TRAIN

pytestmark = pytest.mark.usefixtures("identity")
flower = import_module("flwr.supernode.start_client_internal")


def request(t: int = 4) -> Message:
    message = Message(RecordDict({"x": ConfigRecord({})}), 1, TRAIN, group_id=str(t))
    message.metadata.__dict__.update(_run_id=7, _message_id="m", _src_node_id=1)
    return message


def site(folder: Path) -> Context:
    return Context(7, 1, {"sent": str(folder / outbox.FILE)}, RecordDict(), {})


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / outbox.FILE).read_text().splitlines()]


def test_a_reply_is_recorded_with_its_round_kind_size_and_hash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = wire.pack({}, {"round": 4})
    monkeypatch.setattr(client_handlers, "handle", lambda *_: content)
    for _ in range(2):
        reply = client_app.reply(request(), site(tmp_path))
    sent = warm.serialise(reply.content, {})
    for line in lines(tmp_path):
        assert line.pop("at") > 0
        assert line == {
            "round": 5,
            "kind": TRAIN,
            "bytes": len(sent),
            "sha256": hashlib.sha256(sent).hexdigest(),
        }
    assert len(lines(tmp_path)) == 2
    assert stat.S_IMODE((tmp_path / outbox.FILE).stat().st_mode) == 0o600


def test_an_error_is_recorded_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its text is sent, and may say something about the data. Flower words it as here."""

    def fails(*_: object) -> None:
        raise ValueError("patient 17 has no age")

    monkeypatch.setattr(client_handlers, "handle", fails)
    with pytest.raises(ValueError, match="patient 17") as caught:
        client_app.reply(request(), site(tmp_path))
    text = str(type(caught.value)) + ":<'" + str(caught.value) + "'>"
    (line,) = lines(tmp_path)
    assert (line["kind"], line["sha256"]) == ("error", hashlib.sha256(text.encode()).hexdigest())


def test_what_cannot_be_recorded_does_not_leave(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_handlers, "handle", lambda *_: wire.pack({}, {"round": 4}))
    (tmp_path / outbox.FILE).mkdir()
    with pytest.raises(OSError, match=outbox.FILE):
        client_app.reply(request(), site(tmp_path))


def test_a_simulation_records_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(client_handlers, "handle", lambda *_: wire.pack({}, {"round": 4}))
    client_app.reply(request(), Context(7, 1, {}, RecordDict(), {}))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("paused", [True, False])
def test_a_supernode_declines_every_message_of_a_paused_site(paused: bool, tmp_path: Path) -> None:
    """Flower's own state has the reply then, and no app has seen the message."""
    layout.make(tmp_path / "d", ["0"])
    place = tmp_path / "d" / "sites" / "0"
    if paused:
        pausing.pause(place)
    factory = NodeStateFactory(objectstore_factory=ObjectStoreFactory())
    state = factory.state()
    state.set_node_id(1)
    taken: list[object] = []

    def pull(**_: object) -> None:
        taken.append("by Flower")

    message, store = request(), factory.objectstore_factory.store()
    run = supernode.only_approved(pull, place)(
        receive=lambda: (message, ObjectTree(object_id="0" * 64)),
        state=state,
        object_store=store,
        get_run=None,
        get_fab=None,
    )
    replies = state.get_messages_legacy(is_reply=True)
    if paused:
        assert (run, taken) == (7, [])
        assert [(r.error.code, r.metadata.reply_to_message_id) for r in replies] == [(PAUSED, "m")]
        assert [(line["kind"], line["round"]) for line in lines(place)] == [("paused", 5)]
    else:
        assert (taken, list(replies)) == (["by Flower"], [])


def test_nothing_to_decline_is_not_recorded(tmp_path: Path) -> None:
    assert supernode.decline(tmp_path, receive=lambda: None, state=None, object_store=None) is None  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


def test_the_operator_of_a_site_pauses_and_resumes_it(tmp_path: Path) -> None:
    layout.make(tmp_path / "d", ["lyon"])
    place = tmp_path / "d" / "sites" / "lyon"

    def said(command: str, *options: str) -> str:
        done = CliRunner().invoke(app, ["deploy", command, str(place), *options])
        assert done.exit_code == 0
        return done.output

    assert "was not paused" in said("resume")
    assert "is paused" in said("pause")
    assert pausing.is_paused(place)
    assert json.loads(said("pause", "--json")) == {"site": str(place), "paused": True}
    assert "answers again" in said("resume")
    assert not pausing.is_paused(place)


@pytest.mark.parametrize("where", ["d", "d/server", "elsewhere"])
def test_only_a_site_can_be_paused(where: str, tmp_path: Path) -> None:
    layout.make(tmp_path / "d", ["lyon"])
    with pytest.raises(DeployError, match="not the folder of a site"):
        pausing.pause(tmp_path / where)


def test_the_start_script_says_where_the_record_is(tmp_path: Path) -> None:
    layout.make(tmp_path / "d", ["lyon"])
    assert f'sent=\\"$PWD/{outbox.FILE}\\"' in (tmp_path / "d" / "sites" / "lyon" / "start.sh").read_text()
