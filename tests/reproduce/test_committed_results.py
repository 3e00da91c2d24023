"""The committed results are those of the committed experiments: every hash is found again."""

import json
from pathlib import Path
from typing import Any

import pytest

from pacfl.reproduce.items import Item, items
from pacfl.reproduce.planning import plan, with_chosen
from pacfl.reproduce.tuning import trials

RESULTS = Path(__file__).parents[2] / "results"
TRAINED = [item for item in items() if item.trains and (RESULTS / f"{item.name}.json").exists()]


def outcome(item: Item) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((RESULTS / f"{item.name}.json").read_text(encoding="utf-8"))
    return found


@pytest.mark.parametrize("item", TRAINED, ids=lambda item: item.name)
def test_every_committed_run_is_described_by_its_experiment(item: Item) -> None:
    committed = outcome(item)
    for column in {run["column"] for run in committed["runs"]}:
        chosen = {t["method"]: t["chosen"] for t in committed["tuning"] if t["column"] == column}
        planned = plan(item, column, committed["scale"])
        described = {(one.method, one.run.seed): with_chosen(one, chosen).run for one in planned}
        for run in (run for run in committed["runs"] if run["column"] == column):
            same = described[run["method"], run["seed"]]
            assert (same.hash, dict(same.algorithm)) == (run["hash"], run["algorithm"])


@pytest.mark.parametrize("item", TRAINED, ids=lambda item: item.name)
def test_every_committed_trial_is_described_by_its_experiment(item: Item) -> None:
    committed = outcome(item)
    for tuned in committed["tuning"]:
        tuning = item.tuned(tuned["column"], committed["scale"])
        assert tuning is not None
        tried = {trial.run.hash for trial in trials(plan(item, tuned["column"], committed["scale"]), tuning)}
        assert {trial["hash"] for trial in tuned["trials"]} <= tried


def test_there_are_committed_runs() -> None:
    assert sum(len(outcome(item)["runs"]) for item in TRAINED) > 100
