import csv
import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

import pacfl
from pacfl import __version__
from pacfl.cli import display as shown_by
from pacfl.cli import result_tables
from pacfl.cli.display import Progress
from pacfl.experiment import run as pipeline
from pacfl.files import LOCK
from tests.without import run_without

Run = Callable[..., tuple[int, str, str]]


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
    assert results[0]["worse_than_alone"] == dict.fromkeys(("received", "last_trained", "personal"))


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
    assert "Traceback" not in err


def test_the_table_tells_of_newcomers_where_some_came(run: Run) -> None:
    words = ("run", "experiment.toml", "--workers", 1, "--set", "seeds=0", "--set", "algorithm=[{name='fedavg'}]")
    some = ("--set", "schedule.newcomers=2", "--set", "schedule.fine-tune=1")
    newcomers = json.loads(run(*words, *some, "--json")[1])["newcomers"]["accuracy"]
    table = run(*words, *some)[1]
    assert re.search(r"received\s+fine-tuned", table)
    for protocol in ("received", "fine_tuned"):
        assert f"{100 * newcomers[protocol]['mean']:.1f}±" in table
    assert "newcomers" not in run(*words)[1]


def test_results_and_rounds_are_tables_for_spreadsheets(run: Run) -> None:
    words = ("run", "experiment.toml", "--workers", 1, "--set", "seeds=0", "--set", "schedule.evaluate-every=1")
    rows = list(csv.DictReader(io.StringIO(run(*words, "--csv")[1])))
    results = [json.loads(line) for line in run(*words, "--json")[1].splitlines()]
    for row, result in zip(rows, results, strict=True):
        assert (row["hash"], row["algorithm"]) == (result["hash"], result["algorithm"])
        assert float(row["accuracy.personal.worst_tenth"]) == result["accuracy"]["personal"]["worst_tenth"]
    rounds = list(csv.DictReader(io.StringIO(run("show", results[0]["hash"], "--csv")[1])))
    assert [row["round"] for row in rounds] == ["1", "2", "3"]
    assert float(rounds[2]["accuracy.received.mean"]) == results[0]["accuracy"]["received"]["mean"]


def test_swept_settings_are_shown_wherever_runs_are_listed(run: Run) -> None:
    swept = ("--set", "seeds=0", "--set", "learning.lr=[0.05, 0.01]", "--set", "schedule.rounds=1")
    words = ("run", "experiment.toml", "--workers", 1, *swept, "--set", "algorithm=[{name='fedavg'}]")
    results = [json.loads(line) for line in run(*words, "--json")[1].splitlines()]
    assert [result["settings"] for result in results] == [{"learning.lr": 0.05}, {"learning.lr": 0.01}]
    rows = list(csv.DictReader(io.StringIO(run(*words, "--csv")[1])))
    assert [row["settings.learning.lr"] for row in rows] == ["0.05", "0.01"]
    listed = [json.loads(line) for line in run("ls", "--json")[1].splitlines()]
    assert {row["hash"]: row["settings"] for row in listed} == {r["hash"]: r["settings"] for r in results}
    assert json.loads(run("show", results[1]["hash"], "--json")[1])["result"] == results[1]
    table = result_tables.results_table(results, "two runs")
    assert [str(column.header) for column in table.columns[:3]] == ["algorithm", "lr", "seed"]
    assert list(table.columns[1].cells) == ["0.05", "0.01"]
    _, _, progress = run(*words)
    assert re.findall(r"fedavg lr (\S+) seed 0: done", progress) == ["0.05", "0.01"]
    assert re.findall(r"8\s+(0.0\d)\s+0 ", run("ls")[1]) == ["0.05", "0.01"]


def test_many_swept_settings_share_a_column() -> None:
    paths = ["data.scheme.alpha", "learning.lr", "learning.epochs", "schedule.rounds"]
    values = [0.5, 0.1, 2, 7]
    assert result_tables.settings_headings(paths[:3]) == ["alpha", "lr", "epochs"]
    assert result_tables.settings_headings(paths) == ["settings"]
    settings = dict(zip(paths, values, strict=True))
    assert result_tables.settings_cells(settings, paths[:3]) == ["0.5", "0.1", "2"]
    assert result_tables.settings_cells(settings, paths) == ["alpha 0.5, lr 0.1, epochs 2, rounds 7"]


def made_up(algorithm: str, lr: float, seed: int, alone: float | None = 0.25) -> dict[str, Any]:
    spread = {"mean": 0.5, "std": 0.125, "worst_tenth": 0.25}
    return {
        "algorithm": algorithm, "seed": seed, "clusters": 4, "ari": 1.0, "megabits_per_client": 1234.5,
        "accuracy": dict.fromkeys(("received", "personal", "last_trained"), spread),
        "worse_than_alone": {"received": alone},
        "settings": {"learning.lr": lr, "schedule.participation": 0.5},
    }  # fmt: skip


def lines_of(table: Any, width: int) -> list[str]:
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(table)
    return console.export_text().splitlines()


@pytest.mark.parametrize("width", [80, 100, 140])
def test_thirty_runs_take_a_line_each_in_a_terminal_of_any_width(width: int) -> None:
    results = [
        made_up(algorithm, lr, seed)
        for algorithm in ("fedavg", "pacfl(clusters=4)")
        for lr in (0.1, 0.01, 0.001)
        for seed in range(5)
    ]
    lines = lines_of(result_tables.results_table(results, "thirty runs", width), width)
    (head,) = (line.split() for line in lines if line.split()[:1] == ["algorithm"])
    rows = [line.split() for line in lines if "50.0±12.5" in line]
    assert [(row[0], float(row[1]), int(row[3])) for row in rows] == [
        (result["algorithm"], result["settings"]["learning.lr"], result["seed"]) for result in results
    ]
    assert {len(row) for row in rows} == {len(head)}
    caption = " ".join(" ".join(line.split()) for line in lines)
    missing = [name for name in ("k", "ARI", "worst", "personal", "last-trained", "below", "Mb") if name not in head]
    assert bool(missing) == (width < 140) == ("too wide for the terminal, but shown by --json" in caption)
    assert all(re.search(rf"shown by --json: .*\b{name}\b", caption) for name in missing)


def test_columns_without_a_number_are_left_out() -> None:
    headings = [
        [str(column.header) for column in result_tables.results_table([made_up("fedavg", 0.1, 0, alone)], "").columns]
        for alone in (None, 0.5)
    ]
    assert [name for name in headings[1] if name not in headings[0]] == ["below"]


def test_clients_are_compared_with_what_they_would_be_alone(run: Run) -> None:
    both = 'algorithm=[{name = "fedavg"}, {name = "solo"}]'
    out = run("run", "experiment.toml", "--workers", 1, "--set", "seeds=0", "--set", both, "--json")[1]
    fedavg, solo = (json.loads(line) for line in out.splitlines())
    assert fedavg["alone"] == solo["alone"] == solo["hash"]
    assert set(solo["worse_than_alone"].values()) == {0.0}
    alone, together = (
        json.loads(run("show", r["hash"], "--json")[1])["rounds"][-1]["by_client"]["received"] for r in (solo, fedavg)
    )
    worse = sum(together[c][0] < alone[c][0] for c in alone) / 8
    assert fedavg["worse_than_alone"]["received"] == worse
    out = run("run", "experiment.toml", "--workers", 1, "--set", "seeds=0", "--set", both)[1]
    assert f"{100 * worse:.0f}%" in out


def test_targets_are_told_by_rounds_and_megabits(run: Run) -> None:
    words = ("run", "experiment.toml", "--workers", 1, "--set", "seeds=0", "--set", "evaluation.targets=[0.01, 1]")
    code, out, _ = run(*words)
    assert code == 0
    assert "1 %" in out
    assert "100 %" in out
    (first, *_) = (json.loads(line) for line in run(*words, "--json")[1].splitlines())
    assert first["to_target"]["1.0"]["received"] is None
    assert first["to_target"]["0.01"]["received"]["rounds"] == 2
    shown = json.loads(run("show", first["hash"], "--target", 0.01, "--json")[1])
    assert shown["result"]["to_target"] == {"0.01": first["to_target"]["0.01"]}


def test_curves_for_tensorboard_are_those_of_the_records(run: Run) -> None:
    """Read by hand: events of TensorBoard are length, checksum, protocol buffer, checksum."""
    pytest.importorskip("tensorboardX", reason="an extra")
    from tensorboardX.proto.event_pb2 import Event

    words = ("run", "experiment.toml", "--workers", 1, "--set", "seeds=0", "--tensorboard", "curves", "--json")
    for _ in range(2):  # a second time nothing is run, and the curves are there again, once
        first = json.loads(run(*words)[1].splitlines()[0])
        (path,) = Path("curves", first["hash"]).iterdir()
        content, at, curve = path.read_bytes(), 0, {}
        while at < len(content):
            size = int.from_bytes(content[at : at + 8], "little")
            event = Event.FromString(content[at + 12 : at + 12 + size])
            at += size + 16
            curve |= {(value.tag, event.step): value.simple_value for value in event.summary.value}
        assert curve["accuracy/received/mean", 3] == pytest.approx(first["accuracy"]["received"]["mean"], rel=1e-6)
        assert sum(curve["bytes_down", t] for t in (1, 2, 3)) == first["bytes_down"]


def test_without_the_library_the_extra_is_named(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    code, _, err = run("run", "experiment.toml", "--workers", 1, "--tensorboard", "curves")
    assert code == 1
    assert "pip install 'pacfl[tensorboard]'" in err
    assert not list(Path("runs").glob("*/rounds.jsonl"))


def test_the_device_is_a_setting_like_others(run: Run) -> None:
    words = ("run", "experiment.toml", "--workers", 1, "--set", "seeds=0", "--json")
    assert run(*words)[1] == run(*words, "--device", "cpu")[1]
    for choice in (("--device", "nowhere"), ("--set", "device=nowhere")):
        code, _, err = run(*words, *choice)
        assert code == 1
        assert "nowhere" in err
        assert "use 'cpu'" in err


# Progress


def watched(run: Run, monkeypatch: pytest.MonkeyPatch, *words: object) -> tuple[str, str]:
    """What somebody sees at a terminal, and what is printed at the end."""
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=100, height=40)
    monkeypatch.setattr(shown_by, "err", console)
    _, out, _ = run("run", "experiment.toml", "--workers", 1, *words)
    return screen.getvalue(), out


def test_at_a_terminal_rounds_accuracy_and_time_left_are_shown(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    screen, out = watched(run, monkeypatch, "--set", "seeds=0", "--set", "schedule.evaluate-every=1")
    for word in ("rounds", "received", "time left", "round 0/2", "done", "pacfl(clusters=4)"):
        assert word in screen
    assert re.search(r"\d+\.\d±\d+\.\d", screen)
    assert "last-trained" in out


def test_machines_see_no_progress(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    screen, out = watched(run, monkeypatch, "--json", "--set", "seeds=0")
    assert screen == ""
    assert len([json.loads(line) for line in out.splitlines()]) == 2


class Planned:
    """As much of a run as progress looks at."""

    hash = "abc"
    seed = 0

    class schedule:  # noqa: N801 - named as the field of a run is
        rounds = 11

    def label(self) -> str:
        return "fedavg"


def test_time_left_by_hand() -> None:
    """A run that was resumed with round 3 and is now after round 7, 20 seconds later: 5 seconds a round, 4 left."""
    now = 100.0
    one: Any = Planned()
    progress = Progress([one], clock=lambda: now)
    assert (progress.where(one), progress.left(one)) == ("round 0/11", "")
    progress.note(one, {"round": 3})
    assert (progress.where(one), progress.left(one)) == ("round 3/11", "")
    now += 20.0
    progress.note(one, {"round": 7})
    assert (progress.where(one), progress.left(one)) == ("round 7/11", "0:20")
    progress.note(one, {"seconds": 40.0})
    assert (progress.where(one), progress.left(one)) == ("done", "")


def test_of_many_runs_those_around_the_present_one_are_shown() -> None:
    many: list[Any] = []
    for i in range(100):
        many.append(Planned())
        many[-1].hash, many[-1].seed = f"{i}", i
    progress = Progress(many)
    for i in range(50):
        progress.note(many[i], {"round": 0})
    table = progress.table()
    assert len(table.rows) == 20
    seeds = [int(str(cell)) for cell in table.columns[1].cells]
    assert seeds == list(range(40, 60))


# Two at once, and one after the other


def started(*words: object) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "pacfl.cli", "run", "experiment.toml", "--json", *map(str, words)]
    env = {**os.environ, "PYTHONPATH": str(Path(pacfl.__file__).resolve().parents[1])}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env)


def without_time(out: str) -> list[dict[str, Any]]:
    return [{k: v for k, v in json.loads(line).items() if k != "seconds"} for line in out.splitlines()]


def test_two_processes_on_one_folder_do_not_spoil_it(run: Run) -> None:
    """Whoever comes second gets an error, or finds everything done; either way the results are those of one alone."""
    expected = without_time(run("run", "experiment.toml", "--json", "--workers", 1, "--runs", "alone")[1])
    both = [started("--workers", 1, "--runs", "shared") for _ in range(2)]
    ends = [process.communicate(timeout=120) for process in both]
    assert {process.returncode for process in both} <= {0, 1}
    for process, (out, err) in zip(both, ends, strict=True):
        if process.returncode:
            assert b"another process is working on this run" in err
        else:
            assert without_time(out.decode()) == expected
    assert without_time(run("run", "experiment.toml", "--json", "--workers", 1, "--runs", "shared")[1]) == expected
    for folder in Path("alone").iterdir():
        assert (folder / "rounds.jsonl").read_bytes() == (Path("shared") / folder.name / "rounds.jsonl").read_bytes()


def test_what_a_process_left_that_was_killed_after_its_result_is_tidied(run: Run) -> None:
    words = ("run", "experiment.toml", "--json", "--workers", 1, "--set", "seeds=0")
    first = run(*words)[1]
    for folder in Path("runs").iterdir():
        (folder / "checkpoint").mkdir()
        (folder / "checkpoint-before.json").touch()
    assert run(*words)[1] == first
    assert not list(Path("runs").glob("*/checkpoint*"))


@pytest.mark.parametrize("delay", [0.0, 0.25])
def test_a_command_that_is_killed_at_any_moment_goes_on_with_the_same_words(run: Run, delay: float) -> None:
    """Killed some time after its first round was recorded, with its last checkpoint damaged on top of that."""
    words = ("--set", "seeds=0", "--set", "schedule.rounds=20", "--set", "algorithm=[{name='scaffold'}]")
    process = started("--workers", 2, "--runs", "broken", *words)
    while not list(Path("broken").glob("*/checkpoint.json")):
        assert process.poll() is None
        time.sleep(0.01)
    time.sleep(delay)
    process.kill()
    process.communicate(timeout=20)
    for checkpoint in Path("broken").glob("*/checkpoint.json"):
        checkpoint.write_bytes(checkpoint.read_bytes()[:-9])
    results = [
        without_time(run("run", "experiment.toml", "--json", "--workers", 1, "--runs", runs, *words)[1])
        for runs in ("broken", "whole")
    ]
    assert results[0] == results[1]
    records = [next(Path(runs).glob("*/rounds.jsonl")).read_bytes() for runs in ("broken", "whole")]
    assert records[0] == records[1]
    broken, whole = ({path.name for path in next(Path(runs).iterdir()).iterdir()} for runs in ("broken", "whole"))
    assert broken == whole
    assert {"run.json", "rounds.jsonl", "result.json", LOCK} <= whole
    assert not any(name.startswith("checkpoint") or name.endswith(".part") for name in whole)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["run", "nowhere.toml"], "cannot be read"),
        (["run", "experiment.toml", "--set", "data.client=3"], "did you mean 'clients'"),
        (["run", "experiment.toml", "--set", "learning.lr=-1"], "lr must be a number above 0"),
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


def written_data(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x, y = rng.integers(0, 256, (60, 8, 8), dtype=np.uint8), np.arange(60) % 3
    np.savez("mine.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    pipeline._load.cache_clear()  # as a new process would have nothing read yet


def test_runs_on_data_that_were_changed_in_between_are_not_mixed_up(run: Run) -> None:
    own = ["data.name='mine'", "data.clients=3", "data.scheme={kind='iid'}", "model.name='mlp'", "seeds=0"]
    words = ["run", "experiment.toml", "--data", ".", "--workers", 1, *(w for s in own for w in ("--set", s))]
    one = [*words, "--set", "algorithm=[{name='fedavg'}]"]
    two = [*words, "--set", "algorithm=[{name='fedavg'}, {name='solo'}]"]
    written_data(0)
    assert "warning" not in run(*one)[2]
    written_data(1)
    for words in (one, two):
        code, out, err = run(*words)
        assert (code, out) == (1, ""), "a stored result on other data is not served"
        assert "was run on other data than mine is now" in err
        assert "--rerun" in err
    for result in Path("runs").glob("*/result.json"):
        result.unlink()  # as if it had been interrupted
    assert "was run on other data than mine is now" in run(*one)[2]
    before = {path: path.read_bytes() for path in Path("runs").glob("*/rounds.jsonl")}
    assert run(*two, "--rerun")[0] == 0
    assert run(*two)[0] == 0
    assert all(path.read_bytes() != content for path, content in before.items())


def test_a_result_is_served_where_its_data_are_gone_but_that_is_said(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    own = ["data.name='mine'", "data.clients=3", "data.scheme={kind='iid'}", "model.name='mlp'", "seeds=0"]
    words = ["run", "experiment.toml", "--data", ".", "--workers", 1, *(w for s in own for w in ("--set", s))]
    written_data(0)
    first = run(*words, "--json")[1]
    Path("mine.npz").unlink()
    pipeline._load.cache_clear()
    assert run(*words, "--json")[1] == first
    assert "was not checked against its data" in caplog.text


def test_the_versions_of_a_run_are_recorded_and_shown(run: Run) -> None:
    run("run", "experiment.toml", "--workers", 1, "--set", "seeds=0", "--set", "algorithm=[{name='fedavg'}]")
    name = json.loads(run("ls", "--json")[1])["hash"]
    assert json.loads(run("show", name, "--json")[1])["environment"]["pacfl"] == __version__
    assert f"pacfl {__version__}" in run("show", name)[1]


def test_runs_of_another_format_are_left_out_and_named(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    run("run", "experiment.toml", "--workers", 1, "--set", "seeds=0", "--set", "algorithm=[{name='fedavg'}]")
    (path,) = Path("runs").glob("*/run.json")
    path.write_text(json.dumps({**json.loads(path.read_text()), "format": 1}))
    assert run("ls", "--json")[1] == ""
    assert "1 runs of another release" in caplog.text


def test_data_are_listed_with_how_to_get_what_is_missing(run: Run) -> None:
    x, y = np.zeros((4, 8, 8), dtype=np.uint8) + 1, np.array([0, 1, 0, 1])
    np.savez("mine.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    entries = {e["name"]: e for e in json.loads(run("data", "--data", ".", "--json")[1])}
    assert entries["mine"]["found"]
    assert not entries["cifar10"]["found"]
    assert entries["cifar10"]["how"]


def test_ctrl_c_says_that_the_same_command_resumes(run: Run) -> None:
    words = ("--set", "seeds=0", "--set", "schedule.rounds=500", "--set", "algorithm=[{name='fedavg'}]")
    process = started("--workers", 1, *words)
    while not list(Path("runs").glob("*/checkpoint.json")):
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=20)
    assert process.returncode == 130
    assert err.decode().splitlines()[-1].startswith("interrupted; nothing is half written")
    assert json.loads(run("ls", "--json")[1])["state"].endswith("rounds")


def test_local_training_has_no_clusters(run: Run) -> None:
    words = ("--workers", 1, "--set", "seeds=0", "--set", "algorithm=[{name='solo'}]")
    result = json.loads(run("run", "experiment.toml", *words, "--json")[1])
    assert (result["clusters"], result["sizes"], result["ari"]) == (None, [], None)


def test_the_norms_that_decide_when_cfl_splits_are_recorded_and_shown(run: Run) -> None:
    run("run", "experiment.toml", "--workers", 1, "--set", "seeds=0", "--set", "algorithm=[{name='cfl'}]")
    name = json.loads(run("ls", "--json")[1])["hash"]
    first = json.loads(run("show", name, "--json")[1])["rounds"][0]
    assert 0 < first["update_norms"]["0"]["mean"] <= first["update_norms"]["0"]["largest"]
    assert "eps1" in run("show", name)[1]


@pytest.mark.parametrize("words", [("--version",), ("run", "--help"), ("sign", "--help")])
def test_help_and_version_are_plain_text(run: Run, words: tuple[str, ...]) -> None:
    code, out, _ = run(*words)
    assert code == 0
    assert "\\[" not in out
    assert f"pacfl {__version__}" in out if words == ("--version",) else "[required]" in out


def test_a_mistyped_command_is_answered_once(run: Run) -> None:
    code, _, err = run("dmo")
    assert code == 2
    assert err.count("Did you mean 'demo'?") == 1


def test_stored_runs_are_listed_and_shown_without_torch(run: Run) -> None:
    run("run", "experiment.toml", "--workers", 1, "--set", "seeds=0", "--set", "algorithm=[{name='pacfl'}]")
    for words in (("ls", "--json"), ("show", json.loads(run("ls", "--json")[1])["hash"], "--json")):
        done = run_without("torch", *words)
        assert (done.returncode, done.stdout) == (0, run(*words)[1]), done.stderr


def test_a_dashboard_is_served_while_an_experiment_runs_and_changes_no_result(run: Run) -> None:
    words = ("run", "experiment.toml", "--workers", 1, "--set", "seeds=0", "--set", "algorithm=[{name='fedavg'}]")
    code, out, err = run(*words, "--dashboard", "--json")
    assert code == 0
    assert re.search(r"^dashboard: http://127\.0\.0\.1:\d+/$", err, re.MULTILINE)
    assert json.loads(run(*words, "--json")[1]) == json.loads(out)
