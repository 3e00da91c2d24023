"""Checkpoints: a small list of what there is, and every array in a file that is named by its own digest.

Arrays that did not change since the round before are not written again, so a checkpoint costs what the round changed.
Lists and arrays are verified when they are read. What fails is named and deleted, and the checkpoint before is used.
"""

import hashlib
import io
import json
import logging
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from pacfl.experiment.codec import decode, encode
from pacfl.files import settle, write_atomically

log = logging.getLogger("pacfl")

LISTS: Final = ("checkpoint.json", "checkpoint-before.json")
ARRAYS: Final = "checkpoint"

# Arrays that are on disk, by identity, with the name of their file. They are referenced, so that no other array can
# have their identity, and made read-only, so that their content is still that of the file.
Saved = dict[int, tuple[NDArray[Any], str]]


class DamagedError(ValueError):
    """A file that is not what was written."""


def save(folder: Path, state: Mapping[str, Any], known: Saved) -> Saved:
    """Save a state in one step, given what the last save left on disk; what is on disk now."""
    (folder / ARRAYS).mkdir(exist_ok=True)
    arrays: dict[str, NDArray[Any]] = {}
    tree = encode(dict(state), arrays)
    saved = {id(array): known.get(id(array)) or (array, _write_array(folder, array)) for array in arrays.values()}
    for array in arrays.values():
        array.setflags(write=False)
    views = [id(array) for array in arrays.values() if array.base is not None]  # their base may still be changed
    body = {"tree": tree, "arrays": {name: saved[id(array)][1] for name, array in arrays.items()}}
    settle(folder / ARRAYS)  # a list may not outlast its arrays, nor arrays be deleted before their list
    last, before = (folder / name for name in LISTS)
    if last.exists():
        last.replace(before)
    write_atomically(last, json.dumps({"sha256": _digest(body), "body": body}).encode())
    settle(folder)
    needed = {name for _, name in (*known.values(), *saved.values())}
    for path in (folder / ARRAYS).iterdir():
        if path.name not in needed:
            path.unlink()
    return {identity: entry for identity, entry in saved.items() if identity not in views}


def load(folder: Path, at_most: int) -> tuple[dict[str, Any], Saved] | None:
    """The newest whole state of a round up to `at_most`, and what is on disk of it; None if there is none."""
    for path in (folder / name for name in LISTS):
        if path.exists():
            try:
                state, known = _read_state(folder, path)
                if state["round"] <= at_most:
                    return state, known
                log.warning("%s is ignored: it is of round %d, %d are recorded", path, state["round"], at_most)
            except DamagedError as damaged:
                log.warning("%s is ignored: %s is damaged", path, damaged)
            path.unlink()
    return None


def _read_state(folder: Path, path: Path) -> tuple[dict[str, Any], Saved]:
    """The state that a list describes. Whoever can write a list can also sign it: its content is checked too."""
    body = _read_list(path)
    try:
        files = dict(body["arrays"])
        if not all(re.fullmatch("[0-9a-f]{64}", file) for file in files.values()):
            raise DamagedError(path)  # a name that could lead out of the folder
        arrays = {name: _read_array(folder / ARRAYS / file) for name, file in files.items()}
        state = decode(body["tree"], arrays)
        if not isinstance(state, dict) or not isinstance(state["round"], int):
            raise DamagedError(path)
    except DamagedError:
        raise
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError, MemoryError):
        raise DamagedError(path) from None
    return state, {id(array): (array, files[name]) for name, array in arrays.items()}


def exists(folder: Path) -> bool:
    """Whether anything of a checkpoint is there, whole or not."""
    return any((folder / name).exists() for name in (*LISTS, ARRAYS))


def drop(folder: Path) -> None:
    """Delete all checkpoints."""
    for name in LISTS:
        (folder / name).unlink(missing_ok=True)
    shutil.rmtree(folder / ARRAYS, ignore_errors=True)


def _write_array(folder: Path, array: NDArray[Any]) -> str:
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    content = buffer.getvalue()
    name = hashlib.sha256(content).hexdigest()
    path = folder / ARRAYS / name
    if not path.exists():
        write_atomically(path, content)
    return name


def _read_array(path: Path) -> NDArray[Any]:
    content = path.read_bytes() if path.exists() else b""
    if hashlib.sha256(content).hexdigest() != path.name:
        path.unlink(missing_ok=True)
        raise DamagedError(path)
    array: NDArray[Any] = np.load(io.BytesIO(content), allow_pickle=False)
    return array


def _read_list(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_bytes())
        body: dict[str, Any] = content["body"]
        whole = content["sha256"] == _digest(body)
    except (ValueError, KeyError, TypeError, RecursionError):
        whole = False
    if not whole:
        raise DamagedError(path)
    return body


def _digest(body: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body).encode()).hexdigest()
