"""A tiny grid, run, resumed, exported and shown again."""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pacfl.benchmark import making
from pacfl.benchmark.outcome import load, place, save
from pacfl.errors import DivergedError, StoreError
from pacfl.experiment.compare import below_local
from pacfl.experiment.store import RunFolder
from pacfl.reproduce.missing_runs import run_missing
from tests.benchmark.tiny import request_of, shrink
from tests.conftest import Run

NAMES = ("fedavg", "solo", "ifca")
SHIFTS = ("rotations", "label-skew-20")
OWN = """
from dataclasses import dataclass
from pacfl import Algorithm
from pacfl.errors import ConfigError

@dataclass(frozen=True)
class Picky(Algorithm):
    def init_server(self, model):
        raise ConfigError("needs another net")
"""


@pytest.fixture(scope="module", autouse=True)
def tiny() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        shrink(patch)
        yield


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("grid") / "runs"


@pytest.fixture(scope="module")
def outcome(runs: Path) -> dict[str, Any]:
    return making.make(request_of(runs, NAMES, SHIFTS))


def of(outcome: dict[str, Any], method: str, column: str) -> dict[str, Any]:
    (found,) = (run for run in outcome["runs"] if (run["method"], run["column"]) == (method, column))
    return dict(found)


def test_every_cell_has_what_is_reported(outcome: dict[str, Any], runs: Path) -> None:
    assert len(outcome["runs"]) == 6
    for run in outcome["runs"]:
        folder = RunFolder(runs / run["hash"])
        result, solo = folder.result(), RunFolder(runs / of(outcome, "solo", run["column"])["hash"])
        assert result is not None
        assert not folder.has_models
        assert run["scores"]["proportional"]["received"] == pytest.approx(result["accuracy"]["received"], abs=1e-5)
        assert run["scores"]["owned"]["personal"] == pytest.approx(
            result["tests"]["owned"]["accuracy"]["personal"], abs=1e-5
        )
        shares = below_local(folder.records()[-1], solo.records()[-1])
        assert run["below_local"]["proportional"]["received"] == shares["received"]
        assert run["megabytes"] == pytest.approx((result["bytes_down"] + result["bytes_up"]) / 1e6, abs=1e-5)
        assert run["true_clusters"] == (4 if run["column"] == "rotations" else None)
    assert of(outcome, "ifca", "rotations")["algorithm"] == {"name": "ifca", "clusters": 4}
    assert of(outcome, "fedavg", "rotations")["rounds_to_target"] in (1, 2)
    assert [of(outcome, name, "rotations")["given"] for name in NAMES] == [False, False, True]


def test_stored_and_exported_runs_are_not_run_again(
    outcome: dict[str, Any], runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = save(outcome, tmp_path / "out")
    assert load(tmp_path / "out", "quick") == outcome == json.loads(path.read_text())
    assert making.make(request_of(runs, NAMES, SHIFTS)) == outcome
    monkeypatch.setattr(making, "run_missing", lambda *_: pytest.fail("it was run"))
    again = making.make(request_of(tmp_path / "elsewhere", NAMES, SHIFTS, exported=outcome))
    assert again == outcome
    assert making.make(request_of(tmp_path / "elsewhere", NAMES, SHIFTS, run=False))["runs"] == []


class Killed(BaseException):
    """A session that ends in the middle of a run."""


def killed_after(n: int, patch: pytest.MonkeyPatch) -> list[str]:
    """End the session in its run number n, counted from 0; the hashes of all runs that were started."""
    started: list[str] = []

    def killed(one: Any, *rest: Any) -> Iterator[dict[str, Any]]:
        started.append(one.hash)
        if len(started) > n:
            raise Killed
        yield from run_missing(one, *rest)

    patch.setattr(making, "run_missing", killed)
    return started


def test_a_session_that_is_killed_loses_the_run_that_it_runs_wherever_it_is_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two methods with two trials each are six runs: sessions end in the second one, and in the last one."""
    shrink(monkeypatch, tuning=True)

    def session(n: int) -> list[str]:
        with monkeypatch.context() as patch:
            started = killed_after(n, patch)
            request = request_of(tmp_path / f"runs{n}", NAMES[:2], ("iid",), exported=load(tmp_path / "out", "quick"))
            with contextlib.suppress(Killed):
                for outcome in making.outcomes(request):
                    save(outcome, tmp_path / "out")
        return started

    first, second, third = (session(n) for n in (1, 4, 100))
    assert [*first[:-1], *second[:-1], *third] == list(dict.fromkeys([*first, *second, *third])), "none is run again"
    assert [len(first), len(second), len(third)] == [2, 5, 1]
    ended, whole = load(tmp_path / "out", "quick"), making.make(request_of(tmp_path / "whole", NAMES[:2], ("iid",)))
    assert ended is not None
    assert [without_times(run) for run in ended["runs"]] == [without_times(run) for run in whole["runs"]]
    assert ended["tuning"] == whole["tuning"]


def without_times(run: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in run.items() if key not in ("seconds", "processor")}


def test_a_run_is_compared_with_what_ended_on_another_machine_or_later(outcome: dict[str, Any], tmp_path: Path) -> None:
    def ifca(runs: dict[str, Any]) -> dict[str, Any]:
        return without_times(of(runs, "ifca", "rotations"))

    others = {**outcome, "runs": [run for run in outcome["runs"] if run["method"] != "ifca"]}
    there = making.make(request_of(tmp_path / "there", ("ifca",), SHIFTS[:1], exported=others))
    assert ifca(there) == ifca(outcome)
    alone = making.make(request_of(tmp_path / "there", ("ifca",), SHIFTS[:1]))
    assert ifca(alone)["below_local"]["owned"] == {"received": None, "personal": None}
    joined = {**alone, "runs": [*others["runs"], *alone["runs"]]}
    assert ifca(making.make(request_of(tmp_path / "there", NAMES, SHIFTS[:1], exported=joined))) == ifca(outcome)


def test_two_sessions_save_to_one_folder(outcome: dict[str, Any], tmp_path: Path) -> None:
    halves = [{**outcome, "runs": outcome["runs"][part]} for part in (slice(0, 2), slice(2, 6))]
    for half in halves:
        save(half, tmp_path)
    assert load(tmp_path, "quick") == outcome


def test_the_time_inside_the_native_engine_is_known(outcome: dict[str, Any], runs: Path) -> None:
    for run in outcome["runs"]:
        used = run["processor"]
        assert 0 < used["native"] < used["all"]
        assert RunFolder(runs / run["hash"]).description("processor") == pytest.approx(used, abs=1e-3)


def test_another_method_joins_an_outcome_and_it_alone_is_run(
    outcome: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "joining_methods.py").write_text(
        OWN.replace("raise", "return super().init_server(model)\n        raise")
    )
    monkeypatch.chdir(tmp_path)
    started = killed_after(100, monkeypatch)
    names = (*NAMES, "joining_methods:Picky")
    grown = making.make(request_of(tmp_path / "runs", names, SHIFTS[:1], exported=outcome))
    assert grown["runs"][:6] == outcome["runs"]
    (added,) = grown["runs"][6:]
    assert (added["method"], [added["hash"]]) == (names[-1], started)
    assert added["scores"] == of(outcome, "fedavg", "rotations")["scores"]


def test_a_damaged_outcome_is_refused(tmp_path: Path) -> None:
    assert load(tmp_path, "quick") is None
    for text in ("{", "[]", '{"scale": "full", "runs": [], "tuning": []}', '{"scale": "quick", "runs": [{}]}'):
        place(tmp_path, "quick").write_text(text)
        with pytest.raises(StoreError, match="is no outcome of the benchmark; export it again"):
            load(tmp_path, "quick")


def test_every_method_is_tuned_by_the_same_number_of_trials_and_runs_with_what_was_chosen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shrink(monkeypatch, tuning=True)
    found = making.make(request_of(tmp_path / "runs", ("fedavg", "fedprox"), ("iid",), n_seeds=2))
    assert [one["method"] for one in found["tuning"]] == ["fedavg", "fedprox"]
    for one in found["tuning"]:
        assert len(one["trials"]) == 2
        best = max(one["trials"], key=lambda trial: trial["accuracy"])
        assert one["chosen"].items() <= best.items()
        runs = [run for run in found["runs"] if run["method"] == one["method"]]
        assert [run["seed"] for run in runs] == [0, 1]
        assert {run["lr"] for run in runs} == {one["chosen"]["lr"]}
    (fedprox,) = {run["algorithm"]["mu"] for run in found["runs"] if run["method"] == "fedprox"}
    assert fedprox == found["tuning"][1]["chosen"]["mu"]


def test_a_method_that_does_not_fit_is_named_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "picky_methods.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    for tuning in (False, True):
        if tuning:
            shrink(monkeypatch, tuning)
        found = making.make(request_of(tmp_path / "runs", ("fedavg", "picky_methods:Picky"), ("iid",)))
        assert [run.get("refused") for run in found["runs"]] == [None, "needs another net"]
        again = making.make(request_of(tmp_path / "runs", ("fedavg", "picky_methods:Picky"), ("iid",), exported=found))
        assert again == found


def test_a_run_that_diverges_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def diverges(*_: Any, **__: Any) -> Any:
        raise DivergedError("its loss is nan")
        yield

    monkeypatch.setattr("pacfl.reproduce.missing_runs.resume", diverges)
    found = making.make(request_of(tmp_path / "runs", ("fedavg",), ("iid",)))
    assert found["runs"][0]["diverged"] == "its loss is nan"


def test_the_command_lists_runs_exports_and_shows(tmp_path: Path, run: Run) -> None:
    code, text, _ = run("benchmark", "--list", "--json")
    listed = json.loads(text)
    assert code == 0
    assert {"fedavg", "pacfl", "ifca"} < set(listed["methods"])
    assert listed["shifts"] == ["iid", "label-skew-20", "dirichlet-0.1", "rotations", "label-maps", "drift"]
    assert "ifca" in listed["given_clusters"]
    assert "four rotations" in run("benchmark", "--list")[1]
    words = ("benchmark", "--methods", "fedavg,solo", "--shifts", "iid", "--runs", tmp_path / "runs")
    code, text, _ = run(*words, "--export", tmp_path / "out", "--json")
    assert code == 0
    found = json.loads(text)
    assert {row["method"] for row in found["leaders"]["received"]} == {"fedavg", "solo"}
    shares = json.loads(run(*words[:3], "--list", "--json", "--from", tmp_path / "out")[1])["native_share"]
    assert set(shares) == {"fedavg", "solo"}
    assert all(0 < share < 1 for share in shares.values())
    assert "of its time in the native engine" in run(*words[:3], "--list", "--from", tmp_path / "out")[1]
    code, text, _ = run("benchmark", "--from", tmp_path / "out")
    assert code == 0
    assert "solo" in text
    assert "received, proportional test samples" in text
    code, _, error = run("benchmark", "--from", tmp_path / "nothing")
    assert code == 1
    assert "has no outcome of the benchmark at scale quick" in error
