"""Small runs as `pacfl run` runs them, and the files they write."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pacfl.experiment.config import Run, expand
from pacfl.experiment.run import resume
from pacfl.experiment.store import folder_of
from studies.kills import files_of_runs

TABLE: dict[str, Any] = {
    "engine": "eager",
    "data": {"name": "digits", "clients": 2, "scheme": {"kind": "by-set", "counts": [1, 1, 0, 0], "size": 20}},
    "model": {"name": "logistic"},
    "learning": {"epochs": 1, "lr": 0.05},
    "schedule": {"rounds": 2, "participation": 0.5, "joins": {"2": [1]}},
}


def one(**sections: Any) -> Run:
    """A run; sections replace those of TABLE."""
    (run,) = expand({**TABLE, "algorithm": {"name": "pacfl", "clusters": 2}, **sections})
    return run


def run_as_command(run: Run, runs: Path) -> Iterator[dict[str, Any]]:
    """Run or resume as `pacfl run` does: yields records, and last the result."""
    folder = folder_of(run, runs)
    yield from resume(run, folder)


def files_of(run: Run, runs: Path) -> dict[str, bytes]:
    """Every file of a finished run, its result without the seconds it took."""
    assert json.loads((runs / run.hash / "result.json").read_bytes())["seconds"] >= 0
    return files_of_runs(runs)
