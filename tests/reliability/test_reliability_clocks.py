"""The system clock may jump: no duration and no deadline depends on it."""

import ast
import json
import time
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import pacfl
from pacfl.cli import app
from tests.reliability.small_runs import files_of, one, run_as_command

SOURCE = Path(pacfl.__file__).parent

# Here the time of day is recorded for people; only whether a server seems silent depends on it
FOR_PEOPLE = {
    "flower/server.py",
    "flower/status.py",
    "flower/health.py",
    "flower/outbox.py",
    "report/serving.py",
    "report/watching.py",
    "cli/operation.py",
}
VALIDITY = {
    "flower/deploy/keys.py",
    "flower/deploy/renewal.py",
    "flower/deploy/check.py",
    "flower/health.py",
}  # of certificates


def reads_the_time_of_day(path: Path) -> bool:
    tree = ast.parse(path.read_text())
    words = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute) and _of_time(node)}
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names}
    return bool(words & {"time", "now", "utcnow", "today"}) or bool(imported & {"time", "localtime"})


def _of_time(node: ast.Attribute) -> bool:
    return isinstance(node.value, ast.Name) and node.value.id in ("time", "datetime", "date")


def test_durations_and_deadlines_come_from_monotonic_clocks() -> None:
    found = {str(path.relative_to(SOURCE)) for path in SOURCE.rglob("*.py") if reads_the_time_of_day(path)}
    assert found == FOR_PEOPLE | VALIDITY


def test_a_jumping_clock_changes_no_run_and_no_duration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = one()
    list(run_as_command(run, tmp_path / "steady"))
    rng = np.random.default_rng(0)
    monkeypatch.setattr(time, "time", lambda: float(rng.uniform(0, 4e9)))
    monkeypatch.setattr(time, "time_ns", lambda: int(rng.integers(4 * 10**18)))
    *_, result = run_as_command(run, tmp_path / "jumping")
    assert 0 <= result["seconds"] < 60
    assert files_of(run, tmp_path / "jumping") == files_of(run, tmp_path / "steady")


@pytest.mark.parametrize(("ahead", "code"), [(-3600.0, 0), (0.0, 0), (3600.0, 4)])
def test_a_server_seems_silent_only_after_the_clock_was_set_forward(
    ahead: float, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By an hour since it last wrote, which it does after every round: then it is fresh again."""
    status = {"phase": "running", "round": 1, "rounds": 9, "deadline": 5.0, "clients": {}, "at": time.time()}
    (tmp_path / "status.json").write_text(json.dumps(status))
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + ahead)
    done = CliRunner().invoke(app, ["status", str(tmp_path), "--json"])
    assert done.exit_code == code
    assert json.loads(done.stdout)["silent"] >= 0
