"""Play runs that are missing in the store; a run that diverges has ended too, and is not tried again."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pacfl.errors import DivergedError
from pacfl.experiment.config import Run
from pacfl.experiment.run import resume
from pacfl.experiment.store import RunFolder, folder_of
from pacfl.federation.local import LocalBackend

DIVERGED = "diverged"  # the name under which the store keeps how a run diverged


def ended(run: Run, runs: Path) -> dict[str, Any] | None:
    """The result of a run that is finished or has diverged, or None."""
    folder = RunFolder(runs / run.hash)
    if not folder.path.is_dir():
        return None
    diverged = folder.path / f"{DIVERGED}.json"
    return folder.result() or (json.loads(diverged.read_text(encoding="utf-8")) if diverged.exists() else None)


def playing(run: Run, runs: Path, data: Path | None, workers: int) -> Iterator[dict[str, Any]]:
    """Records of a run as it goes on, unless it has ended; the last one is its result."""
    found = ended(run, runs)
    if found is not None and "diverged" in found:
        yield found
        return
    folder = folder_of(run, runs)
    try:
        yield from resume(run, folder, data, LocalBackend(workers))
    except DivergedError as error:
        told = {"hash": run.hash, "seed": run.seed, "diverged": str(error), "round": len(folder.records())}
        folder.describe(DIVERGED, told)
        yield told
