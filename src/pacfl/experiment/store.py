"""Where runs are kept: one folder for each, named by the hash of its content."""

import fcntl
import io
import json
import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from pacfl.errors import StoreError
from pacfl.experiment import checkpoint
from pacfl.experiment.config import Run
from pacfl.files import blamed_on, settle, write_atomically

log = logging.getLogger("pacfl")

PATIENCE: Final = 2.0  # seconds to wait for a folder: the workers of a process that was killed take one to notice
PAUSE: Final = 0.1


@dataclass(frozen=True)
class RunFolder:
    """One run's files."""

    path: Path
    _known: checkpoint.DatasetSpec = field(default_factory=dict, compare=False, repr=False)

    def result(self) -> dict[str, Any] | None:
        """The finished run's result, or None."""
        return _json(self.path / "result.json")

    @property
    def is_tidy(self) -> bool:
        """Whether the run is finished and nothing is left of the way there. A process may be killed in between."""
        return self.result() is not None and not checkpoint.exists(self.path)

    def content(self) -> dict[str, Any] | None:
        """The settings of the run."""
        return _json(self.path / "run.json")

    def records(self) -> list[dict[str, Any]]:
        """One record for each round so far; a line that a crash cut short does not count."""
        path = self.path / "rounds.jsonl"
        records = []
        if path.exists():
            for line in path.read_bytes().split(b"\n")[:-1]:
                try:
                    record = json.loads(line)
                except (ValueError, RecursionError):
                    break
                if not isinstance(record, dict):
                    break
                records.append(record)
        return records

    def append(self, record: Mapping[str, Any]) -> None:
        """Add the record of a round, and be sure of it: the checkpoint that follows counts on it."""
        line = json.dumps(record, allow_nan=False).encode() + b"\n"
        path = self.path / "rounds.jsonl"
        with blamed_on(path), path.open("ab") as file:
            file.write(line)
            file.flush()
            os.fsync(file.fileno())

    def keep_records(self, n: int) -> None:
        """Forget the records of rounds that will be played again."""
        kept = self.records()[:n]
        lines = "".join(json.dumps(record, allow_nan=False) + "\n" for record in kept)
        write_atomically(self.path / "rounds.jsonl", lines.encode())

    def describe(self, name: str, content: Mapping[str, Any], **arrays: NDArray[Any]) -> None:
        """Keep something about the run beside its rounds: NAME.json, and NAME.npz if it has arrays."""
        if arrays:
            buffer = io.BytesIO()
            np.savez_compressed(buffer, **arrays)  # type: ignore[arg-type]  # names are those of arrays
            write_atomically(self.path / f"{name}.npz", buffer.getvalue())
        write_atomically(self.path / f"{name}.json", json.dumps(content, allow_nan=False).encode() + b"\n")

    def description(self, name: str) -> dict[str, Any] | None:
        """What was kept about the run under a name, but for arrays; None if nothing was."""
        return _json(self.path / f"{name}.json")

    def save_checkpoint(self, state: Mapping[str, Any]) -> None:
        """Keep everything needed to go on, in one step."""
        saved = checkpoint.save(self.path, state, self._known)
        self._known.clear()
        self._known.update(saved)

    def load_checkpoint(self) -> dict[str, Any] | None:
        """The newest state that is whole and whose rounds are all recorded, or None."""
        recorded = len(self.records())
        found = checkpoint.load(self.path, at_most=recorded)
        start = 0 if found is None else found[0]["round"]
        if start < recorded:
            log.warning("%s: %d recorded rounds are played again, from round %d on", self.path, recorded - start, start)
        self._known.clear()
        if found is None:
            return None
        self._known.update(found[1])
        return found[0]

    def finish(self, result: Mapping[str, Any]) -> None:
        """Write the result, and drop what was only needed to get there."""
        write_atomically(self.path / "result.json", (json.dumps(result, indent=2, allow_nan=False) + "\n").encode())
        self.tidy()

    def tidy(self) -> None:
        """Drop what is only needed to finish the run."""
        settle(self.path)
        self._known.clear()
        checkpoint.drop(self.path)


def folder_of(run: Run, runs: Path) -> RunFolder:
    """The folder of a run, made if need be."""
    path = runs / run.hash
    path.mkdir(parents=True, exist_ok=True)
    if not (path / "run.json").exists():
        write_atomically(path / "run.json", (json.dumps(run.content(), indent=2) + "\n").encode())
    return RunFolder(path)


def all_folders(runs: Path) -> list[RunFolder]:
    """Every run that is kept, oldest first."""
    found = [p.parent for p in runs.glob("*/run.json")] if runs.is_dir() else []
    return [RunFolder(path) for path in sorted(found, key=lambda p: ((p / "run.json").stat().st_mtime, p.name))]


def played(folder: RunFolder, play: Callable[[], Iterator[dict[str, Any]]]) -> Iterator[dict[str, Any]]:
    """Records of a run as `play` yields them, its result last; only the result if the run is finished."""
    if not folder.is_tidy:
        with owned(folder):
            if folder.result() is None:  # another process may have finished it while this one waited
                yield from play()
                return
            folder.tidy()
    yield folder.result() or {}


def data_digest(folder: RunFolder) -> str | None:
    """The name of the data that the run was played on, if it is known."""
    return (folder.description("clients") or {}).get("digest")


@contextmanager
def owned(folder: RunFolder) -> Iterator[None]:
    """The folder for one process at a time."""
    handle = os.open(folder.path, os.O_RDONLY)
    try:
        if not any(_locked(handle) for _ in range(int(PATIENCE / PAUSE))):
            raise StoreError(f"{folder.path}: another process is working on this run; wait for it or stop it")
        for part in folder.path.glob(".*.part"):  # of a process that was killed while it wrote
            if not part.name.startswith(".run.json"):  # which whoever comes next may be writing
                part.unlink()
        yield
    finally:
        os.close(handle)


def _locked(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        time.sleep(PAUSE)
        return False
    return True


def _json(path: Path) -> dict[str, Any] | None:
    try:
        content = json.loads(path.read_text())
    except FileNotFoundError:
        return None
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict):
        raise StoreError(f"{path}: is damaged; delete the folder to run it again")
    return content
