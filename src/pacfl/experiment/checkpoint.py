"""Checkpoints: a small list of what there is, and every array in a file that is named by its own digest.

Arrays that did not change since the round before are not written again, so a checkpoint costs what the round changed.
Lists and arrays are verified when they are read. What fails is named and deleted, and the checkpoint before is used.
What is written once, such as the models of a finished run, has the same form: `store` and `stored`.
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
    saved = {
        id(array): known.get(id(array)) or (array, _write_array(folder / ARRAYS, array)) for array in arrays.values()
    }
    for array in arrays.values():
        array.setflags(write=False)
    views = [id(array) for array in arrays.values() if array.base is not None]  # their base may still be changed
    names = {name: saved[id(array)][1] for name, array in arrays.items()}
    settle(folder / ARRAYS)  # a list may not outlast its arrays, nor arrays be deleted before their list
    last, before = (folder / name for name in LISTS)
    if last.exists():
        last.replace(before)
    _write_list(last, tree, names)
    settle(folder)
    _delete_others(folder / ARRAYS, {name for _, name in (*known.values(), *saved.values())})
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


def peek(folder: Path, tries: int = 5) -> dict[str, Any] | None:
    """The newest whole state, while another process may save the next one; nothing is deleted. None if there is none.

    Arrays of a list that was replaced meanwhile are gone: then the new list is read.
    """
    for path in (folder / name for _ in range(tries) for name in LISTS):
        try:
            return _read_state(folder, path, delete=False)[0]
        except (DamagedError, FileNotFoundError):
            continue
    return None


def store(folder: Path, name: str, value: Mapping[str, Any]) -> None:
    """Store a value in one step: the list NAME.json, and its arrays in the folder NAME."""
    (folder / name).mkdir(exist_ok=True)
    arrays: dict[str, NDArray[Any]] = {}
    tree = encode(dict(value), arrays)
    files: dict[tuple[Any, ...], str] = {}  # by place in memory: many clients may have one array
    places = {key: (array.ctypes.data, array.shape, array.strides, array.dtype.str) for key, array in arrays.items()}
    for key, array in arrays.items():
        if places[key] not in files:
            files[places[key]] = _write_array(folder / name, array)
    settle(folder / name)
    _write_list(folder / f"{name}.json", tree, {key: files[place] for key, place in places.items()})
    settle(folder)
    _delete_others(folder / name, set(files.values()))


def stored(folder: Path, name: str) -> dict[str, Any] | None:
    """What `store` stored, verified; None if there is nothing. Raises DamagedError."""
    path = folder / f"{name}.json"
    return _read_value(folder / name, path)[0] if path.exists() else None


def drop_stored(folder: Path, name: str) -> None:
    """Delete what `store` stored, the list first: what it lists is whole for as long as it is there."""
    (folder / f"{name}.json").unlink(missing_ok=True)
    shutil.rmtree(folder / name, ignore_errors=True)


def _read_state(folder: Path, path: Path, delete: bool = True) -> tuple[dict[str, Any], Saved]:
    """The state that a list of a checkpoint describes; delete: arrays that are damaged."""
    state, saved = _read_value(folder / ARRAYS, path, delete)
    if not isinstance(state.get("round"), int):
        raise DamagedError(path)
    return state, saved


def _read_value(folder: Path, path: Path, delete: bool = True) -> tuple[dict[str, Any], Saved]:
    """What a list describes. Whoever can write a list can also sign it: its content is checked too."""
    body = _read_list(path)
    try:
        files = dict(body["arrays"])
        if not all(re.fullmatch("[0-9a-f]{64}", file) for file in files.values()):
            raise DamagedError(path)  # a name that could lead out of the folder
        read = {file: _read_array(folder / file, delete) for file in sorted(set(files.values()))}
        value = decode(body["tree"], {name: read[file] for name, file in files.items()})
        if not isinstance(value, dict):
            raise DamagedError(path)
    except DamagedError:
        raise
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError, MemoryError):
        raise DamagedError(path) from None
    return value, {id(array): (array, file) for file, array in read.items()}


def exists(folder: Path) -> bool:
    """Whether anything of a checkpoint is there, whole or not."""
    return any((folder / name).exists() for name in (*LISTS, ARRAYS))


def drop(folder: Path) -> None:
    """Delete all checkpoints."""
    for name in LISTS:
        (folder / name).unlink(missing_ok=True)
    shutil.rmtree(folder / ARRAYS, ignore_errors=True)


def _write_array(folder: Path, array: NDArray[Any]) -> str:
    """Write an array into a folder, unless it is there; the name of its file."""
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    content = buffer.getvalue()
    name = hashlib.sha256(content).hexdigest()
    path = folder / name
    if not path.exists():
        write_atomically(path, content)
    return name


def _read_array(path: Path, delete: bool) -> NDArray[Any]:
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        content = b""
    if hashlib.sha256(content).hexdigest() != path.name:
        if delete:
            path.unlink(missing_ok=True)
        raise DamagedError(path)
    array: NDArray[Any] = np.load(io.BytesIO(content), allow_pickle=False)
    return array


def _write_list(path: Path, tree: Any, arrays: Mapping[str, str]) -> None:
    body = {"tree": tree, "arrays": arrays}
    write_atomically(path, json.dumps({"sha256": _digest(body), "body": body}).encode())


def _delete_others(folder: Path, needed: set[str]) -> None:
    for path in folder.iterdir():
        if path.name not in needed:
            path.unlink()


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
