"""Runs in which some clients change group in mid-run."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pacfl.errors import ConfigError
from pacfl.experiment.config import Run, expand
from pacfl.experiment.run import build, divide, resume
from pacfl.experiment.store import RunFolder, folder_of

TABLE: dict[str, Any] = {
    "data": {
        "name": "digits",
        "options": {"domains": ["upright"]},
        "clients": 8,
        "scheme": {"kind": "iid", "groups": {"rotate": [0, 180]}},
    },
    "model": {"name": "logistic"},
    "learning": {"epochs": 1, "lr": 0.05},
    "schedule": {"rounds": 4, "participation": 1.0, "evaluate-every": 1},
}
DRIFT = {"round": 3, "share": 0.5}


def one(algorithm: str = "fedavg", drift: dict[str, Any] | None = None, **learning: Any) -> Run:
    data = TABLE["data"] if drift is None else {**TABLE["data"], "drift": drift}
    table = {**TABLE, "data": data, "learning": {**TABLE["learning"], **learning}, "algorithm": {"name": algorithm}}
    (run,) = expand(table)
    return run


def records(run: Run, path: Path) -> list[dict[str, Any]]:
    folder = folder_of(run, path)
    for _ in resume(run, folder, models=False):
        pass
    return folder.records()


def test_until_the_round_of_the_drift_the_run_is_the_one_without_it(tmp_path: Path) -> None:
    plain, drifted = records(one(), tmp_path), records(one(drift=DRIFT), tmp_path)
    assert plain[:2] == drifted[:2]
    assert plain[2] != drifted[2]


def test_from_that_round_on_a_client_is_evaluated_as_the_one_whose_data_it_has(tmp_path: Path) -> None:
    """A model that does not move scores at each client what it scored at the former owner of the data."""
    run = one(drift=DRIFT, lr=1e-30)
    swap = divide(run)[1].swap
    assert swap is not None
    assert len(swap.clients) == 4
    _, before, after, *_ = (record["by_client"]["received"] for record in records(run, tmp_path))
    assert after == {str(c): before[str(swap.source[c])] for c in range(8)}
    assert after != before


def test_clients_train_on_the_data_that_they_have_then(tmp_path: Path) -> None:
    """Local training forgets: on upright digits, models of clients that turned to them in round 3 become good."""
    run = one("solo", DRIFT)
    swap = divide(run)[1].swap
    assert swap is not None
    _, before, after, _, last = (r["by_client"]["received"] for r in records(run, tmp_path))
    moved = list(map(str, swap.clients))

    def mean(scores: dict[str, list[float]]) -> float:
        return float(np.mean([scores[c][0] for c in moved]))

    assert mean(after) < mean(before) - 0.1
    assert mean(last) > mean(after)


def test_pacfl_finds_the_new_groups_if_the_clients_profile_again(tmp_path: Path) -> None:
    unnoticed, noticed = (
        [r["ari"] for r in records(one("pacfl", {**DRIFT, "reprofile": reprofile}), tmp_path)]
        for reprofile in (False, True)
    )
    assert unnoticed[:2] == noticed[:2] == [1.0, 1.0]
    assert max(unnoticed[2:]) < 0.5, "half of the clients are in the other group"
    assert noticed[2:] == [1.0, 1.0, 1.0]


def test_true_clusters_are_stored_before_and_after(tmp_path: Path) -> None:
    run = one(drift=DRIFT)
    records(run, tmp_path)
    swap = divide(run)[1].swap
    described = RunFolder(tmp_path / run.hash).description("clients")
    assert described is not None
    assert swap is not None
    groups = [client["true_cluster"] for client in described["clients"]]
    after = described["drift"]["clients"]
    assert described["drift"]["round"] == 3
    assert set(after) == set(map(str, swap.clients))
    for c, own in after.items():
        assert own == {"data_of": swap.source[int(c)], "true_cluster": groups[swap.source[int(c)]]}
        assert own["true_cluster"] != groups[int(c)]


@pytest.mark.parametrize("after", [1, 2, 3])
def test_an_interrupted_run_resumes(tmp_path: Path, after: int) -> None:
    run = one("pacfl", {**DRIFT, "reprofile": True})
    whole = records(run, tmp_path / "whole")
    folder = folder_of(run, tmp_path / "parts")
    running = resume(run, folder, models=False)
    for _ in range(after):
        next(running)
    running.close()  # type: ignore[attr-defined]  # it is a generator
    assert records(run, tmp_path / "parts") == whole


def test_drift_after_the_last_round_is_refused() -> None:
    with pytest.raises(ConfigError, match="drift: round 5 is after the last of 4 rounds"):
        build(one(drift={"round": 5, "share": 0.5}))
