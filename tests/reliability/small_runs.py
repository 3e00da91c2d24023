"""Small runs as the command line plays them, and what they leave behind."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pacfl.experiment.config import Run, expand
from pacfl.experiment.run import resume
from pacfl.experiment.store import folder_of
from studies.kills import left

TABLE: dict[str, Any] = {
    "engine": "eager",
    "data": {"name": "digits", "clients": 4, "scheme": {"kind": "by-set", "counts": [1, 1, 1, 1], "size": 20}},
    "model": {"name": "logistic"},
    "learning": {"epochs": 1, "lr": 0.05},
    "schedule": {"rounds": 2, "participation": 0.5, "joins": {"1": [3]}},
}


def one(**sections: Any) -> Run:
    """A run."""
    (run,) = expand({**TABLE, "algorithm": {"name": "pacfl", "clusters": 2}, **sections})
    return run


def commanded(run: Run, runs: Path) -> Iterator[dict[str, Any]]:
    """What `pacfl run` does with one run: records, and at last the result."""
    folder = folder_of(run, runs)
    yield from resume(run, folder)


def left_by(run: Run, runs: Path) -> dict[str, bytes]:
    """Every file that a finished run left, its result without the time that it took."""
    assert json.loads((runs / run.hash / "result.json").read_bytes())["seconds"] >= 0
    return left(runs)
