"""The operator's commands, without processes."""

import json
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from pacfl.cli import app
from pacfl.errors import DeployError, PacflError


def invoke(*arguments: object) -> tuple[int, str]:
    done = CliRunner().invoke(app, [str(a) for a in arguments])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.exit_code, done.output


def written(folder: Path, **changes: Any) -> Path:
    client = {"name": "lyon", "fingerprint": "SHA256:0123456789", "node": 77, "cluster": 1, "alive": True}
    content = {
        "phase": "running",
        "round": 3,
        "rounds": 9,
        "deadline": 5.0,
        "accuracy": 0.5,
        "clients": {"0": client},
        "last_error": "round 2 client 0: no reply",
        "at": time.time(),
    }
    (folder / "status.json").write_text(json.dumps({**content, **changes}))
    return folder


@pytest.mark.parametrize(
    ("content", "code"),
    [
        ({}, 0),
        ({"phase": "finished", "at": 0.0}, 0),
        ({"at": 0.0}, 4),
        ({"phase": "waiting for clients"}, 0),
        ({"phase": "waiting for clients", "failing": True}, 4),
        ({"phase": "failed"}, 5),
        ({"phase": "stopped"}, 5),
        ({"heartbeat": 0.0}, 4),
        ({"without_update": [1]}, 6),
        ({"phase": "failed", "without_update": [1]}, 5),
        ({"phase": "finished", "undelivered": ["lyon"]}, 6),
    ],
)
def test_the_exit_code_is_that_of_the_phase(content: dict[str, Any], code: int, tmp_path: Path) -> None:
    assert invoke("status", written(tmp_path, **content))[0] == code


def test_the_exit_code_says_that_there_is_no_federation(tmp_path: Path) -> None:
    assert invoke("status", tmp_path)[0] == 3
    code, output = invoke("status", tmp_path, "--json")
    assert (code, json.loads(output)["phase"], len(json.loads(output)["problems"])) == (3, None, 1)


def test_problems_are_sentences_for_people_and_programs(tmp_path: Path) -> None:
    written(tmp_path, without_update=[1])
    (said,) = json.loads(invoke("status", tmp_path, "--json")[1])["problems"]
    assert said == "cluster 1 had no update in the last round: no valid reply of lyon"
    assert f"problem: {said}" in invoke("status", tmp_path)[1]


def test_the_status_shows_rounds_clusters_who_is_alive_and_the_last_error(tmp_path: Path) -> None:
    _, output = invoke("status", written(tmp_path))
    for words in (
        "round 3 of 9",
        "1 of 1 alive",
        "lyon",
        "SHA256:0123456789",
        "77",
        "50.0 %",
        "round 2 client 0: no reply",
    ):
        assert words in output
    _, output = invoke("status", written(tmp_path, metric="mae", mae=2.5))
    assert "mae of the models as received: 2.5\n" in output


def test_init_writes_a_deployment_whose_processes_are_down(tmp_path: Path) -> None:
    code, output = invoke("deploy", "init", tmp_path / "d", "--clients", 2, "--rounds", 3)
    assert (code, "2 sites" in output) == (0, True)
    code, output = invoke("deploy", "status", tmp_path / "d", "--json")
    assert code == 3
    content = json.loads(output)
    assert content["kind"] == "deployment"
    assert content["processes"] == {"server": None, "site-0": None, "site-1": None}
    assert content["federation"] is None
    assert "server, site-0, site-1: not running" in content["problems"][0]


def test_sites_have_names(tmp_path: Path) -> None:
    code, _ = invoke("deploy", "init", tmp_path / "d", "--sites", "heidelberg,lyon,graz")
    assert code == 0
    assert {path.name for path in (tmp_path / "d" / "sites").iterdir()} == {"heidelberg", "lyon", "graz"}
    _, output = invoke("deploy", "status", tmp_path / "d", "--json")
    assert list(json.loads(output)["processes"]) == ["server", "site-heidelberg", "site-lyon", "site-graz"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "either --sites"),
        (["--sites", "lyon", "--clients", 1], "either --sites"),
        (["--sites", "lyon,Lyon"], "different names"),
        (["--sites", "lyon,"], "different names"),
        (["--sites", "../lyon"], "different names"),
    ],
)
def test_names_that_cannot_be_are_refused(options: list[object], message: str, tmp_path: Path) -> None:
    with pytest.raises(PacflError, match=message):
        invoke("deploy", "init", tmp_path / "d", *options)
    assert not (tmp_path / "d").exists()


@pytest.mark.parametrize(
    ("options", "bind", "note"),
    [
        ([], "127.0.0.1", ""),
        (["--host", "fl.example.org"], "127.0.0.1", "listens on 127.0.0.1 only"),
        (["--host", "fl.example.org", "--bind", "0.0.0.0"], "0.0.0.0", ""),
        (["--host", "fl.example.org", "--bind", "192.0.2.7"], "192.0.2.7", ""),
    ],
)
def test_a_server_listens_on_loopback_unless_asked_otherwise(
    options: list[str], bind: str, note: str, tmp_path: Path
) -> None:
    done = CliRunner().invoke(app, ["deploy", "init", str(tmp_path / "d"), "--clients", "2", *options])
    assert done.exit_code == 0
    assert bool(done.stderr) == bool(note)
    assert note in done.stderr
    assert f"--host {bind} " in (tmp_path / "d" / "server" / "start.sh").read_text()
    assert "--host 127.0.0.1 " in (tmp_path / "d" / "sites" / "0" / "start.sh").read_text()
    own = bind if bind == "192.0.2.7" else "127.0.0.1"  # where the server's own processes find it
    for script in ("start.sh", "run.sh", "register.sh"):
        assert f"{own}:" in (tmp_path / "d" / "server" / script).read_text()


@pytest.mark.parametrize("options", [["--bind", "0.0.0.0"], ["--host", "fl.example.org", "--bind", "eth0"]])
def test_an_address_to_listen_on_that_cannot_be_is_refused(options: list[str], tmp_path: Path) -> None:
    with pytest.raises(DeployError, match="listens on"):
        invoke("deploy", "init", tmp_path / "d", "--clients", 2, *options)
    assert not (tmp_path / "d").exists()


def test_down_where_nothing_runs_does_nothing(tmp_path: Path) -> None:
    invoke("deploy", "init", tmp_path / "d", "--clients", 1)
    assert invoke("deploy", "down", tmp_path / "d") == (0, "")


def test_a_folder_that_is_not_a_deployment_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(DeployError, match="pacfl deploy init"):
        invoke("deploy", "up", tmp_path)
