"""Only approved apps run, and an operator sees what an app is before it is approved."""

import io
import zipfile
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import pytest
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.common.constant import ErrorCode
from flwr.proto.message_pb2 import ObjectTree
from flwr.supercore.constant import TaskType
from flwr.supercore.fab import Fab
from flwr.supercore.object_store import ObjectStoreFactory
from flwr.supercore.run import Run
from flwr.supercore.superexec.executor import ExecutionSpec, LaunchResultStatus
from flwr.supernode.nodestate import NodeStateFactory
from foreign_app import write_foreign_app
from typer.testing import CliRunner

from pacfl.cli import app as cli
from pacfl.errors import DeployError
from pacfl.flower.deploy import approval, layout, superexec, supernode

flower = import_module("flwr.supernode.start_client_internal")


def archive(**files: str) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as target:
        for name, text in files.items():
            target.writestr(zipfile.ZipInfo(name.replace("_", ".")), text)  # which has no time
    return content.getvalue()


def test_an_app_is_approved_by_its_bytes(tmp_path: Path) -> None:
    one, other = archive(a_py="1"), archive(a_py="2")
    assert approval.refusal(tmp_path, one) is not None
    approval.approve(tmp_path, one)
    assert approval.refusal(tmp_path, one) is None
    assert approval.digest(other) in str(approval.refusal(tmp_path, other))
    approval.approve(tmp_path, other)
    assert approval.approved(tmp_path) == {approval.digest(one), approval.digest(other)}


def test_a_run_may_override_the_number_of_rounds_and_nothing_else(tmp_path: Path) -> None:
    app = archive(a_py="1")
    approval.approve(tmp_path, app)
    assert approval.refusal(tmp_path, app, ["schedule.rounds"]) is None
    for name in ("settings", "federation.task", "learning.loss", "algorithm.name"):
        assert name in str(approval.refusal(tmp_path, app, ["schedule.rounds", name]))


def test_the_same_files_are_the_same_app(tmp_path: Path) -> None:
    for name in ("one", "other"):
        layout.make(tmp_path / name, ["0"])
    one, other = (approval.build(tmp_path / name / "app") for name in ("one", "other"))
    assert one == other


def test_an_operator_sees_hash_files_and_changes(tmp_path: Path) -> None:
    approval.approve(tmp_path, archive(a_py="x = 1\ny = 2", b_py="same"))
    new = archive(a_py="x = 1\ny = 3", b_py="same", c_py="new")
    seen = list(approval.review(tmp_path, new))
    assert seen[0] == f"SHA-256 {approval.digest(new)}"
    assert seen[1:4] == ["a.py: 11 bytes", "b.py: 4 bytes", "c.py: 3 bytes"]
    assert [line for line in seen if line[:1] in "+-" and line[:3] not in ("+++", "---")] == [
        "-y = 2",
        "+y = 3",
        "-",
        "+new",
    ]


def test_no_character_hides_code_from_the_operator(tmp_path: Path) -> None:
    """Neither one that moves the cursor, nor one that changes the direction of writing."""
    seen = "".join(approval.review(tmp_path, archive(a_py="evil()\r\x1b[2Kgood() \u202e")))
    assert seen.isprintable()
    assert "+evil()\\r\\x1b[2Kgood() \\u202e" in seen


def test_an_app_that_cannot_be_shown_is_an_error(tmp_path: Path) -> None:
    twice = io.BytesIO()
    with zipfile.ZipFile(twice, "w") as target:
        target.writestr("a.py", "good()")
        with pytest.warns(UserWarning, match="Duplicate name"):
            target.writestr("a.py", "evil()")
    large = io.BytesIO()
    with zipfile.ZipFile(large, "w", zipfile.ZIP_DEFLATED) as target:
        target.writestr("a.py", bytes(approval.LARGEST_APP + 1))
    for content in (twice.getvalue(), large.getvalue(), b"not an archive"):
        with pytest.raises(DeployError, match="refuse it"):
            list(approval.review(tmp_path, content))


def test_an_operator_is_asked_and_says_no(tmp_path: Path) -> None:
    approval.propose(tmp_path, archive(a_py="1"))
    done = CliRunner().invoke(cli, ["deploy", "approve", str(tmp_path)], input="n\n")
    assert done.exit_code == 1
    assert "it is the app that came with this folder" in done.output
    assert approval.approved(tmp_path) == set()
    done = CliRunner().invoke(cli, ["deploy", "approve", str(tmp_path)], input="y\n")
    assert approval.approved(tmp_path) == {approval.digest(archive(a_py="1"))}


def test_an_app_of_the_server_is_compared_with_the_one_that_came_with_the_folder(tmp_path: Path) -> None:
    approval.propose(tmp_path, archive(a_py="1"))
    approval.propose(tmp_path, archive(a_py="2"), approval.REFUSED)
    content, origin = approval.candidate(tmp_path)
    assert (content, origin) == (archive(a_py="2"), "sent by the server, and refused")
    assert "it is NOT the app that came with this folder" in approval.review(tmp_path, content)


def test_sites_of_one_machine_approve_with_the_server_and_others_themselves(tmp_path: Path) -> None:
    layout.make(tmp_path / "here", ["0"])
    layout.make(tmp_path / "apart", ["0"], ["fl.example.org"])
    for place, expected in (("here", True), ("apart", False)):
        (tmp_path / place / "app" / "task.py").write_text("x = 1")
        done = CliRunner().invoke(cli, ["deploy", "approve", str(tmp_path / place), "--yes"])
        assert "+x = 1" in done.output
        app, site = approval.build(tmp_path / place / "app"), tmp_path / place / "sites" / "0"
        assert approval.refusal(tmp_path / place / "server", app) is None
        assert (approval.refusal(site, app) is None) == expected
    assert approval.candidate(site) == (app, "came with this folder")


def test_the_executor_starts_no_app_that_is_not_approved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    spec = ExecutionSpec(TaskType.SERVER_APP, "127.0.0.1:1", "token", True, None, False, 1, False, 1, "abc")
    assert superexec.ApprovedExecutor().launch(spec).status == LaunchResultStatus.FAILED
    assert superexec.ApprovedExecutor().launch(replace(spec, fab_hash=None)).status == LaunchResultStatus.FAILED


@pytest.mark.usefixtures("identity")
@pytest.mark.parametrize("case", ["approved", "not approved", "another app under its name", "another setting"])
def test_a_supernode_gives_messages_to_approved_apps_only(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Messages are taken in by Flower's own function; the server is hostile."""
    layout.make(tmp_path / "d", ["0"])
    app = approval.build(tmp_path / "d" / "app")
    foreign = approval.build(write_foreign_app(tmp_path / "foreign", tmp_path / "evidence"))
    approval.approve(tmp_path, app)
    sent = foreign if "app" in case and case != "approved" else app
    name = approval.digest(app if case == "another app under its name" else sent)
    overrides = {"learning.loss": "os:abort"} if case == "another setting" else {"schedule.rounds": 3}
    run = Run.create_empty(7)
    run.fab_hash, run.override_config, run.series_id = name, overrides, 1
    state_factory = NodeStateFactory(objectstore_factory=ObjectStoreFactory())
    state = state_factory.state()
    state.set_node_id(1)
    message = Message(RecordDict({"x": ConfigRecord({})}), 1, "query")
    message.metadata.__dict__.update(_run_id=7, _message_id="m", _src_node_id=1)
    monkeypatch.setattr(flower, "_verify_fab", supernode.is_approved)
    supernode.only_approved(flower._pull_and_store_message, tmp_path)(
        state=state,
        object_store=state_factory.objectstore_factory.store(),
        node_config={},
        receive=lambda: (message, ObjectTree(object_id="0" * 64)),
        get_run=lambda _: run,
        get_fab=lambda fab_hash, _: Fab(fab_hash, sent, {}),
        pull_object=lambda *_: b"",
        confirm_message_received=lambda *_: None,
        trusted_entities=None,
    )
    replies = state.get_messages_legacy(is_reply=True)
    if case == "approved":
        assert state.get_fab(name).content == app
        assert replies == []
    else:
        assert state.get_fab(name) is None
        assert [reply.error.code for reply in replies] == [ErrorCode.INVALID_FAB]
        assert (tmp_path / approval.REFUSED).read_bytes() == sent
