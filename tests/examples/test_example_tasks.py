"""Tasks beyond image classification, each run from a TOML file with its data and its model beside it."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


def results(name: str, folder: Path, *settings: str) -> list[dict[str, Any]]:
    """What `pacfl run examples/NAME/NAME.toml --json` prints, for a few rounds, in an empty folder."""
    words = [word for setting in ("schedule.rounds=3", *settings) for word in ("--set", setting)]
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pacfl.cli",
            "run",
            str(EXAMPLES / name / f"{name}.toml"),
            "--json",
            "--workers",
            "1",
            *words,
        ],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_a_text_classifier_learns_from_token_ids(tmp_path: Path) -> None:
    alone, together = results("text", tmp_path, "schedule.rounds=6")
    assert together["accuracy"]["received"]["mean"] > 0.4  # of six chapters
    assert together["metrics"]["macro-f1"]["received"]["mean"] > 0.2
    assert {alone["algorithm"], together["algorithm"]} == {"solo", "fedavg"}


def test_a_regression_with_batch_normalisation_beats_the_mean(tmp_path: Path) -> None:
    """In units of 100 points, patients differ by 0.77 (standard deviation) from their mean."""
    runs = results("regression", tmp_path)
    assert len(runs) == 4
    shared = [run for run in runs if run["algorithm"] == "fedavg"]
    assert all(run["metrics"]["r2"]["received"]["mean"] > 0.2 for run in shared)
    assert shared[0]["mae"]["received"]["mean"] == pytest.approx(0.5, abs=0.15)
    averaged, local = shared
    assert averaged["mae"] != local["mae"]
