"""Where runs are stored: one folder for each, named by the hash of its settings."""

import io
import json
import logging
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np
from filelock import Timeout
from numpy.typing import NDArray

from pacfl.errors import StoreError
from pacfl.experiment import checkpoint
from pacfl.files import LOCK, blamed_on, locked, remove_parts, settle, write_atomically

log = logging.getLogger("pacfl")

FORMAT: Final = 2  # of runs: a new one makes stored results unfindable, so it changes only with their meaning
PYTHON: Final = "python"  # the origin of runs whose data and model were given from Python
MODELS: Final = "models"  # the name under which a finished run stores them
PATIENCE: Final = 2.0  # seconds to wait for a folder: the workers of a process that was killed take one to notice


class RunStore(Protocol):
    """Where a run is stored while it runs, and when it is finished."""

    def describe(self, name: str, content: Mapping[str, Any], **arrays: NDArray[Any]) -> None:
        """Store something about the run beside its rounds."""

    def records(self) -> list[dict[str, Any]]:
        """One record for each round so far."""

    def append(self, record: Mapping[str, Any]) -> None:
        """Add the record of a round."""

    def truncate_records(self, n: int) -> None:
        """Drop the records of rounds that will be run again."""

    def load_checkpoint(self) -> dict[str, Any] | None:
        """Everything needed to resume, or None."""

    def save_checkpoint(self, state: Mapping[str, Any]) -> None:
        """Save everything needed to resume."""

    def save_models(self, models: Mapping[str, Any]) -> None:
        """Store the models of a run that is about to finish."""

    def drop_models(self) -> None:
        """Delete the stored models, if there are any."""

    def finish(self, result: Mapping[str, Any]) -> None:
        """Store the result."""


@dataclass(frozen=True)
class RunFolder:
    """One run's files."""

    path: Path
    _saved: checkpoint.Saved = field(default_factory=dict, compare=False, repr=False)

    def result(self) -> dict[str, Any] | None:
        """The finished run's result, or None."""
        return _json(self.path / "result.json")

    @property
    def is_tidy(self) -> bool:
        """Whether the run is finished and its checkpoints are deleted. A process may be killed in between."""
        return self.result() is not None and not checkpoint.exists(self.path)

    def content(self) -> dict[str, Any] | None:
        """The settings of the run."""
        return _json(self.path / "run.json")

    def records(self) -> list[dict[str, Any]]:
        """One record for each round so far, without a last line that a crash cut short."""
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
        """Add the record of a round durably: the checkpoint that follows relies on it."""
        line = json.dumps(record, allow_nan=False).encode() + b"\n"
        path = self.path / "rounds.jsonl"
        with blamed_on(path), path.open("ab") as file:
            file.write(line)
            file.flush()
            os.fsync(file.fileno())

    def truncate_records(self, n: int) -> None:
        """Drop the records of rounds that will be run again."""
        lines = "".join(json.dumps(record, allow_nan=False) + "\n" for record in self.records()[:n])
        write_atomically(self.path / "rounds.jsonl", lines.encode())

    def describe(self, name: str, content: Mapping[str, Any], **arrays: NDArray[Any]) -> None:
        """Store something about the run beside its rounds: NAME.json, and NAME.npz if it has arrays."""
        if arrays:
            buffer = io.BytesIO()
            np.savez_compressed(buffer, **arrays)  # type: ignore[arg-type]  # names are those of arrays
            write_atomically(self.path / f"{name}.npz", buffer.getvalue())
        write_atomically(self.path / f"{name}.json", json.dumps(content, allow_nan=False).encode() + b"\n")

    def description(self, name: str) -> dict[str, Any] | None:
        """What was stored about the run under a name, without arrays; None if nothing was."""
        return _json(self.path / f"{name}.json")

    def save_checkpoint(self, state: Mapping[str, Any]) -> None:
        """Save everything needed to resume, in one step."""
        saved = checkpoint.save(self.path, state, self._saved)
        self._saved.clear()
        self._saved.update(saved)

    def load_checkpoint(self) -> dict[str, Any] | None:
        """The newest state that is whole and whose rounds are all recorded, or None."""
        recorded = len(self.records())
        found = checkpoint.load(self.path, at_most=recorded)
        start = 0 if found is None else found[0]["round"]
        if start < recorded:
            log.warning(
                "%s: %d recorded rounds are run again, from round %d on", self.path, recorded - start, start + 1
            )
        self._saved.clear()
        if found is None:
            return None
        self._saved.update(found[1])
        return found[0]

    def save_models(self, models: Mapping[str, Any]) -> None:
        """Store the models of a run that is about to finish, in one step."""
        checkpoint.store(self.path, MODELS, models)

    def load_models(self) -> dict[str, Any] | None:
        """What `save_models` stored, verified; None if the run stores no models."""
        try:
            return checkpoint.stored(self.path, MODELS)
        except checkpoint.DamagedError as damaged:
            raise StoreError(f"{damaged}: is damaged; run the experiment again (--rerun)") from None

    @property
    def has_models(self) -> bool:
        """Whether models are stored."""
        return (self.path / f"{MODELS}.json").exists()

    def drop_models(self) -> None:
        """Delete the stored models, if there are any."""
        checkpoint.drop_stored(self.path, MODELS)

    def finish(self, result: Mapping[str, Any]) -> None:
        """Write the result, and delete what was only needed to get there."""
        write_atomically(self.path / "result.json", (json.dumps(result, indent=2, allow_nan=False) + "\n").encode())
        self.tidy()

    def copy_to(self, folder: "RunFolder") -> None:
        """Copy the rounds and what is stored beside them, not the models and the result."""
        for path in self.path.iterdir():
            if path.is_file() and path.name not in ("run.json", "result.json", f"{MODELS}.json", LOCK):
                shutil.copy(path, folder.path / path.name)

    def tidy(self) -> None:
        """Delete what is only needed to finish the run."""
        settle(self.path)
        self._saved.clear()
        checkpoint.drop(self.path)

    def reset(self) -> None:
        """Delete everything but the settings, so that the run starts again."""
        (self.path / "result.json").unlink(missing_ok=True)
        self.tidy()
        self.drop_models()
        for path in self.path.iterdir():
            if path.is_file() and path.name not in ("run.json", ".lock"):
                path.unlink()


@dataclass
class RunMemory:
    """A run that is stored nowhere: what a folder would hold, until the process ends."""

    described: dict[str, tuple[Mapping[str, Any], dict[str, NDArray[Any]]]] = field(default_factory=dict)
    rounds: list[dict[str, Any]] = field(default_factory=list)
    models: dict[str, Any] | None = None
    outcome: dict[str, Any] | None = None

    def describe(self, name: str, content: Mapping[str, Any], **arrays: NDArray[Any]) -> None:
        """As in a folder."""
        self.described[name] = content, arrays

    def records(self) -> list[dict[str, Any]]:
        """One record for each round so far."""
        return self.rounds

    def append(self, record: Mapping[str, Any]) -> None:
        """Add the record of a round."""
        self.rounds.append(dict(record))

    def truncate_records(self, n: int) -> None:
        """Drop the records from the n-th on."""
        del self.rounds[n:]

    def load_checkpoint(self) -> dict[str, Any] | None:
        """Nothing: a process that was killed leaves no memory."""

    def save_checkpoint(self, state: Mapping[str, Any]) -> None:
        """Nothing is saved."""

    def save_models(self, models: Mapping[str, Any]) -> None:
        """Hold the models."""
        self.models = dict(models)

    def drop_models(self) -> None:
        """Let go of the models."""
        self.models = None

    def finish(self, result: Mapping[str, Any]) -> None:
        """Hold the result."""
        self.outcome = dict(result)

    def result(self) -> dict[str, Any] | None:
        """The finished run's result, or None."""
        return self.outcome

    def description(self, name: str) -> dict[str, Any] | None:
        """What was described under a name, without arrays; None if nothing was."""
        return dict(self.described[name][0]) if name in self.described else None

    def load_models(self) -> dict[str, Any] | None:
        """The models, if there are any."""
        return self.models

    @property
    def has_models(self) -> bool:
        """Whether there are models."""
        return self.models is not None

    def copy_to(self, folder: RunFolder) -> None:
        """Store the rounds and what is described beside them, not the models and the result."""
        for name, (content, arrays) in self.described.items():
            folder.describe(name, content, **arrays)
        for record in self.rounds:
            folder.append(record)


class Identified(Protocol):
    """What a folder is named after and begins with."""

    @property
    def hash(self) -> str:
        """The name of the content."""

    def content(self) -> dict[str, Any]:
        """Everything that decides the result, as plain values."""


def folder_of(run: Identified, runs: Path) -> RunFolder:
    """The folder of a run, created if need be."""
    return begin(runs / run.hash, run.content())


def begin(path: Path, content: Mapping[str, Any]) -> RunFolder:
    """A folder with the settings of a run, created if need be."""
    path.mkdir(parents=True, exist_ok=True)
    if not (path / "run.json").exists():
        write_atomically(path / "run.json", (json.dumps(content, indent=2) + "\n").encode())
    return RunFolder(path)


def all_folders(runs: Path) -> list[RunFolder]:
    """Every stored run, oldest first; those of another format are left out with a warning."""
    found = [p.parent for p in runs.glob("*/run.json")] if runs.is_dir() else []
    folders = [RunFolder(path) for path in sorted(found, key=lambda p: ((p / "run.json").stat().st_mtime, p.name))]
    other = [folder for folder in folders if _format(folder) != FORMAT]
    if other:
        log.warning(
            "%s: %d runs of another release of pacfl are left out, %s for one; run their experiments again",
            *(runs, len(other), other[0].path.name),
        )
    return [folder for folder in folders if folder not in other]


def _format(folder: RunFolder) -> Any:
    try:
        return (folder.content() or {}).get("format")
    except StoreError:
        return FORMAT  # damaged: that is said where the settings are needed


def data_digest(folder: RunFolder) -> str | None:
    """The digest of the data that the run was started on, if it was started."""
    return (folder.description("clients") or {}).get("digest")


@contextmanager
def owned(folder: RunFolder) -> Iterator[None]:
    """The folder for one process at a time."""
    try:
        with locked(folder.path, PATIENCE):
            remove_parts(folder.path, spare="run.json")
            yield
    except Timeout:
        raise StoreError(f"{folder.path}: another process is working on this run; wait for it or stop it") from None


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
