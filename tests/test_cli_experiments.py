import json
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from pacfl.cli import main

pytest.importorskip("torch", reason="training needs torch")
pytest.importorskip("sklearn", reason="the embedded digits need scikit-learn")

Run = Callable[..., tuple[int, str, str]]

EXPERIMENT = """
seeds = [0, 1]
[data]
name = "digits"
clients = 8
scheme = { kind = "by-set", counts = [2, 2, 2, 2], size = 40 }
[learning]
epochs = 1
lr = 0.05
[schedule]
rounds = 2
sample = 0.5
[[algorithm]]
name = "fedavg"
[[algorithm]]
name = "pacfl"
clusters = 4
"""


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Exit code, standard output and standard error of a command, in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    Path("experiment.toml").write_text(EXPERIMENT)

    def command(*words: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["pacfl", *map(str, words)])
        with pytest.raises(SystemExit) as stopped:
            main()
        captured = capsys.readouterr()
        return int(stopped.value.code or 0), captured.out, captured.err

    return command


def test_run_ls_show_tell_the_same_story(run: Run) -> None:
    code, out, _ = run("run", "experiment.toml", "--json", "--workers", 1)
    assert code == 0
    results = [json.loads(line) for line in out.splitlines()]
    assert [(r["algorithm"], r["seed"]) for r in results] == [
        ("fedavg", 0), ("fedavg", 1), ("pacfl(clusters=4)", 0), ("pacfl(clusters=4)", 1),
    ]  # fmt: skip
    for result in results:
        assert {"hash", "clusters", "ari", "accuracy", "bytes_down", "bytes_up", "seconds"} <= set(result)
        assert set(result["accuracy"]) == {"received", "personal", "last_trained"}
        assert set(result["accuracy"]["received"]) == {"mean", "std", "worst_tenth"}
    listed = [json.loads(line) for line in run("ls", "--json")[1].splitlines()]
    assert {row["hash"] for row in listed} == {r["hash"] for r in results}
    assert {row["state"] for row in listed} == {"finished"}
    shown = json.loads(run("show", results[0]["hash"][:8], "--json")[1])
    assert shown["result"] == results[0]
    assert len(shown["rounds"]) == 3


def test_what_is_finished_is_not_run_again(run: Run) -> None:
    first = run("run", "experiment.toml", "--json", "--workers", 1)[1]
    written = {p: p.stat().st_mtime_ns for p in Path("runs").glob("*/*")}
    assert run("run", "experiment.toml", "--json", "--workers", 1)[1] == first
    assert {p: p.stat().st_mtime_ns for p in Path("runs").glob("*/*")} == written


def test_settings_on_the_command_line_come_first(run: Run) -> None:
    out = run("run", "experiment.toml", "--json", "--workers", 1, "--set", "seeds=[5]", "--set", "schedule.rounds=1")[1]
    assert {json.loads(line)["seed"] for line in out.splitlines()} == {5}


def test_the_table_names_the_protocols(run: Run) -> None:
    code, out, err = run("run", "experiment.toml", "--workers", 1, "--set", "seeds=0")
    assert code == 0
    for word in ("received", "personal", "last-trained", "fedavg", "pacfl"):
        assert word in out
    assert "fedavg seed 0: done" in err


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["run", "nowhere.toml"], "cannot be read"),
        (["run", "experiment.toml", "--set", "data.client=3"], "did you mean 'clients'"),
        (["run", "experiment.toml", "--set", "learning.lr=-1"], "lr must be positive"),
        (["run", "experiment.toml", "--set", "data.name='unheard-of'"], "unheard-of"),
        (["run", "experiment.toml", "--set", "model.name='lenet6'"], "did you mean 'lenet5'"),
        (["show", "ffff"], "0 runs"),
    ],
)
def test_mistakes_are_told_in_one_line(run: Run, words: list[str], why: str) -> None:
    code, _, err = run(*words)
    assert code == 1
    assert why in err
    assert "Traceback" not in err


def test_a_diverging_run_stops_with_a_message_and_keeps_what_it_had(run: Run) -> None:
    code, _, err = run("run", "experiment.toml", "--workers", 1, "--set", "learning.lr=1e30", "--set", "seeds=0")
    assert code == 1
    assert "diverged" in err
    assert json.loads(run("ls", "--json")[1].splitlines()[0])["state"] == "0 rounds"


def test_data_are_listed_with_how_to_get_what_is_missing(run: Run) -> None:
    x, y = np.zeros((4, 8, 8), dtype=np.uint8) + 1, np.array([0, 1, 0, 1])
    np.savez("mine.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    entries = {e["name"]: e for e in json.loads(run("data", "--data", ".", "--json")[1])}
    assert entries["mine"]["found"]
    assert not entries["cifar10"]["found"]
    assert entries["cifar10"]["how"]
