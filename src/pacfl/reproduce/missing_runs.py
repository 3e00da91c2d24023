"""Run what is missing in the store. A run that diverged has ended too: it is not run again."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pacfl.errors import DivergedError
from pacfl.experiment.config import Run
from pacfl.experiment.run import resume
from pacfl.experiment.store import RunFolder, folder_of
from pacfl.federation.local import LocalBackend

DIVERGED = "diverged"  # the name under which a folder stores that its run diverged


def stored_result(run: Run, runs: Path) -> dict[str, Any] | None:
    """The result of a run that is finished or has diverged, or None."""
    folder = RunFolder(runs / run.hash)
    if not folder.path.is_dir():
        return None
    diverged = folder.path / f"{DIVERGED}.json"
    return folder.result() or (json.loads(diverged.read_text(encoding="utf-8")) if diverged.exists() else None)


def run_missing(run: Run, runs: Path, data: Path | None, workers: int) -> Iterator[dict[str, Any]]:
    """Records of a run, resumed where it was interrupted; the last one is its result. Only that if it has ended."""
    found = stored_result(run, runs)
    if found is not None and "diverged" in found:
        yield found
        return
    folder = folder_of(run, runs)
    try:
        yield from resume(run, folder, data, LocalBackend(workers), models=False)
    except DivergedError as error:
        result = {"hash": run.hash, "seed": run.seed, "diverged": str(error), "round": len(folder.records())}
        folder.describe(DIVERGED, result)
        yield result
