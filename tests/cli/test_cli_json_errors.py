"""With --json, an error is an object on standard output, and the exit code is not 0."""

import json
from pathlib import Path

import pytest

from pacfl.cli.console import app
from pacfl.cli.schema import schema
from tests.conftest import Run

# Wrong for each command: a file or folder that is not there
WRONG = {
    "sign": ["nowhere.npy", "-o", "a.sig"],
    "inspect": ["nowhere.sig"],
    "cluster": ["nowhere.sig"],
    "join": ["nowhere", "a.sig"],
    "leave": ["nowhere", "a"],
    "replace": ["nowhere", "a.sig"],
    "explain": ["nowhere", "a", "b"],
    "show": ["nowhere"],
    "report": ["nowhere"],
    "predict": ["nowhere", "nowhere.npy"],
    "run": ["nowhere.toml"],
}


@pytest.mark.parametrize("command", WRONG)
def test_an_error_is_one_object_with_its_kind_and_a_line_for_people(
    run: Run, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = run(command, *WRONG[command], "--json")
    error = json.loads(out)["error"]
    assert set(error) == {"kind", "message", "exit_code"}
    assert error["exit_code"] == code == 1
    assert error["kind"].endswith("Error")
    assert " ".join(error["message"].split()) in " ".join(err.split())
    code, out, _ = run(command, *WRONG[command])
    assert (code, out) == (1, "")


def test_a_misspelt_option_is_an_error_of_usage(run: Run) -> None:
    code, out, _ = run("leave", "--nobody", "--json")
    assert code == 2
    error = json.loads(out)["error"]
    assert (error["kind"], error["exit_code"]) == ("NoSuchOption", 2)
    assert "--nobody" in error["message"]


def test_every_command_has_json() -> None:
    commands = [*app.registered_commands, *schema.registered_commands]
    assert len(commands) >= 20
    assert [c.callback for c in commands if c.callback and "as_json" not in c.callback.__annotations__] == []
