"""The operator's commands, without processes."""

import json
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from pacfl.cli import app
from pacfl.errors import DeployError


def invoke(*arguments: object) -> tuple[int, str]:
    done = CliRunner().invoke(app, [str(a) for a in arguments])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.exit_code, done.output


def written(folder: Path, **changes: Any) -> Path:
    client = {"identity": "0123456789abcdef", "cluster": 1, "alive": True}
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
        ({"phase": "failed"}, 5),
    ],
)
def test_the_exit_code_is_that_of_the_phase(content: dict[str, Any], code: int, tmp_path: Path) -> None:
    assert invoke("status", written(tmp_path, **content))[0] == code


def test_the_exit_code_says_that_there_is_no_federation(tmp_path: Path) -> None:
    assert invoke("status", tmp_path)[0] == 3


def test_the_status_shows_rounds_clusters_who_is_alive_and_the_last_error(tmp_path: Path) -> None:
    _, output = invoke("status", written(tmp_path))
    for words in ("round 3 of 9", "1 of 1 alive", "0123456789abcdef", "50.0 %", "round 2 client 0: no reply"):
        assert words in output
    _, output = invoke("status", written(tmp_path, metric="mae", mae=2.5))
    assert "mae of the models as received: 2.5\n" in output


def test_init_writes_a_deployment_whose_processes_are_down(tmp_path: Path) -> None:
    code, output = invoke("deploy", "init", tmp_path / "d", "--clients", 2, "--rounds", 3)
    assert (code, "2 sites" in output) == (0, True)
    code, output = invoke("deploy", "status", tmp_path / "d", "--json")
    assert code == 3
    assert json.loads(output) == {
        "processes": {"server": None, "site-0000": None, "site-0001": None},
        "federation": None,
    }


DANGER = "can register keys and run code at every site"


def test_init_for_other_machines_warns_that_the_port_lets_anybody_run_code(tmp_path: Path) -> None:
    done = CliRunner().invoke(
        app, ["deploy", "init", str(tmp_path / "d"), "--clients", "2", "--host", "fl.example.org", "--port", "8444"]
    )
    assert done.exit_code == 0
    for text in (done.stderr, (tmp_path / "d" / "README.md").read_text()):
        said = " ".join(text.split())
        assert f"Whoever reaches port 8444 of the server {DANGER}" in said
        assert "firewall or a VPN" in said
    assert "warning" in done.stderr
    assert DANGER not in done.stdout


def test_init_for_this_machine_has_nothing_to_warn_of(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["deploy", "init", str(tmp_path / "d"), "--clients", "2"])
    assert done.stderr == ""
    assert "--host 127.0.0.1" in (tmp_path / "d" / "server" / "start.sh").read_text()
    assert DANGER not in " ".join((tmp_path / "d" / "README.md").read_text().split())


def test_the_guide_warns_before_its_first_command() -> None:
    guide = (Path(__file__).parents[3] / "docs" / "deployment.md").read_text()
    assert DANGER in " ".join(guide.partition("```")[0].replace("\n> ", " ").split())


def test_down_where_nothing_runs_does_nothing(tmp_path: Path) -> None:
    invoke("deploy", "init", tmp_path / "d", "--clients", 1)
    assert invoke("deploy", "down", tmp_path / "d") == (0, "")


def test_a_folder_that_is_not_a_deployment_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(DeployError, match="pacfl deploy init"):
        invoke("deploy", "up", tmp_path)
