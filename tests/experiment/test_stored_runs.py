"""Stored runs as tables: every setting a column, every evaluation a row."""

import doctest
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import nn

from pacfl import FedAvg, LocalTraining, Result, federate
from pacfl.errors import StoreError
from pacfl.experiment import stored_runs
from pacfl.experiment.config import expand
from pacfl.experiment.run import resume
from pacfl.experiment.store import folder_of
from pacfl.experiment.stored_runs import runs

pandas = pytest.importorskip("pandas")

TABLE: dict[str, Any] = {
    "data": {"name": "digits", "clients": 4, "scheme": {"kind": "dirichlet", "alpha": 0.5}},
    "model": {"name": "logistic"},
    "learning": {"epochs": 1, "lr": [0.1, 0.01]},
    "schedule": {"rounds": 2, "participation": 0.5, "evaluate-every": 1},
    "algorithm": [{"name": "fedavg"}, {"name": "solo"}],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four finished runs of a file, one from Python, and one that was interrupted."""
    path: Path = tmp_path_factory.mktemp("runs")
    for run in expand(TABLE):
        list(resume(run, folder_of(run, path)))
    x, y = np.random.default_rng(0).normal(size=(20, 5)), np.arange(20) % 2
    clients = dict.fromkeys(("a", "b"), (x, y, x, y))
    federate(clients, lambda: nn.Linear(5, 2), FedAvg(), LocalTraining(lr=0.2), rounds=1, runs=path)
    (interrupted,) = expand({**TABLE, "seeds": [7], "learning": {"lr": 0.1}, "algorithm": {"name": "fedavg"}})
    next(resume(interrupted, folder_of(interrupted, path)))
    return path


def test_a_frame_has_a_row_for_each_run_and_a_column_for_each_setting(folder: Path) -> None:
    frame = runs(folder).frame().set_index("hash")
    assert len(frame) == 6
    assert frame["finished"].sum() == 5
    assert sorted(frame["learning.lr"]) == [0.01, 0.01, 0.1, 0.1, 0.1, 0.2]
    assert frame["data.scheme.alpha"].dropna().tolist() == [0.5] * 5
    for run in expand(TABLE):
        stored = folder_of(run, folder).result()
        assert stored is not None
        row = frame.loc[run.hash]
        assert (row["algorithm"], row["seed"], row["algorithm.name"]) == (run.label(), 0, run.algorithm["name"])
        assert row["accuracy.received.mean"] == stored["accuracy"]["received"]["mean"]
        assert row["bytes_up"] == stored["bytes_up"]
    assert frame[~frame["finished"]]["accuracy.received.mean"].isna().all()


def test_curves_have_a_row_for_each_evaluation_protocol_and_metric(folder: Path) -> None:
    curves = runs(folder).curves()
    (run, *_) = expand(TABLE)
    own = curves[(curves["hash"] == run.hash) & (curves["metric"] == "accuracy") & (curves["protocol"] == "received")]
    expected = [record["accuracy"]["received"]["mean"] for record in folder_of(run, folder).records()]
    assert own["mean"].tolist() == expected
    assert own["round"].tolist() == [1, 2, 3]
    assert own["final"].tolist() == [False, False, True]
    assert set(curves["hash"]) == set(runs(folder).frame()["hash"])


def test_iterating_yields_the_results_of_finished_runs(folder: Path) -> None:
    stored = runs(folder)
    results = list(stored)
    assert len(results) == len(stored) == 5
    assert all(isinstance(result, Result) for result in results)
    assert results[-1].clients == ("a", "b")
    assert repr(stored).endswith("6 runs, 5 finished)")


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="no folder"):
        runs(tmp_path / "nowhere")
    assert len(runs(tmp_path)) == 0
    assert len(runs(tmp_path).frame()) == len(runs(tmp_path).curves()) == 0


def test_the_example_of_the_docstring_runs() -> None:
    assert doctest.testmod(stored_runs).attempted > 0


def test_tables_need_no_torch(folder: Path) -> None:
    program = f"""
import sys
from tests.without import Without
sys.meta_path.insert(0, Without("torch"))
import pacfl
stored = pacfl.runs({str(folder)!r})
assert len(stored.frame()) == 6 and len(stored.curves()) > 20
print(next(iter(stored)).clusters)
"""
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", program], cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
