"""Texts: lines of a file, files of a folder, a column of a table, a field of JSON lines -> documents (n,)."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from pacfl.errors import DataError
from pacfl.features.tables import text_columns

if TYPE_CHECKING:
    from pacfl.features.reading import Reading

Array = NDArray[Any]
Texts = tuple[Array, Array | None, None, Array | None]  # documents, labels, no names of columns, groups
FIELD: Final = "text"  # of JSON lines, unless another is named


def read_lines(path: Path, how: "Reading") -> Texts:
    """One document for each line that is not empty; labels and groups in files with as many lines, or .npy files."""
    lines = _text(path).splitlines()
    filled = np.array([bool(line.strip()) for line in lines], dtype=bool)
    found: list[Array | None] = []
    for at, what in ((how.labels_at, "labels"), (how.group, "groups")):
        if at is None:
            found.append(None)
            continue
        if not Path(at).is_file():
            raise DataError(f"{path}: {what} of a .txt file are wanted in another .txt or .npy file, found no {at}")
        values = np.load(at, allow_pickle=False) if at.endswith(".npy") else np.array(_text(Path(at)).splitlines())
        if len(values) != len(lines):
            raise DataError(f"{at}: has {len(values)} {what} for the {len(lines)} lines of {path}; give one a line")
        found.append(values[filled])
    return _texts(path, [line for line in lines if line.strip()]), found[0], None, found[1]


def read_documents(path: Path, how: "Reading") -> Texts:
    """One document for each .txt file in a folder; the names of their folders as labels or groups."""
    for at, option in ((how.labels_at, "labels"), (how.group, "groups")):
        if at not in (None, "folders"):
            raise DataError(f"{path}: {option} of a folder are the names of its folders; use 'folders', not {at!r}")
    files = documents_in(path)
    folders = np.array([str(file.parent.relative_to(path)) for file in files])
    labels, groups = (None if at is None else folders for at in (how.labels_at, how.group))
    return _texts(path, [_text(file) for file in files]), labels, None, groups


def documents_in(folder: Path) -> list[Path]:
    """Its .txt files, at any depth."""
    return sorted(file for file in folder.rglob("*") if file.suffix.lower() == ".txt" and file.is_file())


def read_column(path: Path, how: "Reading") -> Texts:
    """The texts, labels and groups in columns of a table, or fields of JSON lines."""
    text = how.text or FIELD
    wanted = [name for name in (text, how.labels_at, how.group) if name is not None]
    found = _fields(path, wanted) if path.suffix.lower() == ".jsonl" else text_columns(path, wanted, how.header)
    columns = dict(zip(wanted, found, strict=True))
    labels, groups = (None if at is None else np.array(columns[at]) for at in (how.labels_at, how.group))
    return _texts(path, columns[text]), labels, None, groups


def _fields(path: Path, wanted: Sequence[str]) -> list[list[str]]:
    """Of every JSON line the fields that are wanted, as text."""
    rows: list[list[str]] = []
    for k, line in enumerate(_text(path).split("\n"), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            raise DataError(f"{path}: line {k} is not JSON ({error}); each line is an object") from None
        lacking = [name for name in wanted if name not in row] if isinstance(row, dict) else list(wanted)
        if lacking:
            there = f"; it has {', '.join(row)}" if isinstance(row, dict) else ""
            raise DataError(f"{path}: line {k} has no field {lacking[0]!r}{there}; name the field with --text")
        rows.append([str(row[name]) for name in wanted])
    return [[row[i] for row in rows] for i in range(len(wanted))]


def _texts(path: Path, texts: list[str]) -> Array:
    if not texts:
        raise DataError(f"{path}: has no text; expected at least one document")
    return np.array(texts, dtype=object)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: is not UTF-8 ({error.reason} at byte {error.start}); save it as UTF-8") from None
