"""Where runs are kept: one folder for each, named by the hash of its content."""

import fcntl
import hashlib
import io
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from pacfl.experiment.codec import decode, encode
from pacfl.experiment.config import Run
from pacfl.files import write_atomically

CHECKPOINTS: Final = ("checkpoint.bin", "checkpoint.old")  # the one before is kept in case the last is damaged
DIGEST_BYTES: Final = 32


class StoreError(RuntimeError):
    """A folder of runs that cannot be used, and why."""


@dataclass(frozen=True)
class RunFolder:
    """One run's files."""

    path: Path

    def result(self) -> dict[str, Any] | None:
        """The finished run's result, or None."""
        return _json(self.path / "result.json")

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
                    records.append(json.loads(line))
                except ValueError:
                    break
        return records

    def append(self, record: Mapping[str, Any]) -> None:
        """Add the record of a round."""
        with (self.path / "rounds.jsonl").open("ab") as file:
            file.write(json.dumps(record, allow_nan=False).encode() + b"\n")

    def keep_records(self, n: int) -> None:
        """Forget the records of rounds that will be played again."""
        kept = self.records()[:n]
        lines = "".join(json.dumps(record, allow_nan=False) + "\n" for record in kept)
        write_atomically(self.path / "rounds.jsonl", lines.encode())

    def save_checkpoint(self, state: Mapping[str, Any]) -> None:
        """Keep everything needed to go on, in one step."""
        arrays: dict[str, Any] = {}
        tree = json.dumps(encode(dict(state), arrays))
        buffer = io.BytesIO()
        np.savez(buffer, tree=np.array(tree), **arrays)
        body = buffer.getvalue()
        last, before = (self.path / name for name in CHECKPOINTS)
        if last.exists():
            last.replace(before)
        write_atomically(last, body + hashlib.sha256(body).digest())

    def load_checkpoint(self) -> dict[str, Any] | None:
        """The newest state that is whole, or None."""
        for name in CHECKPOINTS:
            path = self.path / name
            content = path.read_bytes() if path.exists() else b""
            body, digest = content[:-DIGEST_BYTES], content[-DIGEST_BYTES:]
            if body and hashlib.sha256(body).digest() == digest:
                with np.load(io.BytesIO(body), allow_pickle=False) as arrays:
                    state: dict[str, Any] = decode(json.loads(str(arrays["tree"])), arrays)
                    return state
        return None

    def finish(self, result: Mapping[str, Any]) -> None:
        """Write the result, and drop what was only needed to get there."""
        write_atomically(self.path / "result.json", (json.dumps(result, indent=2, allow_nan=False) + "\n").encode())
        for name in CHECKPOINTS:
            (self.path / name).unlink(missing_ok=True)


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


@contextmanager
def owned(folder: RunFolder) -> Iterator[None]:
    """The folder for one process at a time."""
    handle = os.open(folder.path, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StoreError(f"{folder.path}: another process is working on this run; wait for it or stop it") from None
        yield
    finally:
        os.close(handle)


def _json(path: Path) -> dict[str, Any] | None:
    try:
        content: dict[str, Any] = json.loads(path.read_text())
    except FileNotFoundError:
        return None
    except ValueError:
        raise StoreError(f"{path}: is damaged; delete the folder to run it again") from None
    return content
