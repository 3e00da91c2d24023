"""Small tables in text: columns of words, and what of them are numbers."""

import csv
import io
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from pacfl.errors import DataError

MISSING: Final = ("", "?", "NA")


def words(content: bytes, names: tuple[str, ...]) -> dict[str, NDArray[Any]]:
    """The named columns of comma-separated text with a header, without spaces around the words."""
    header, *rows = [row for row in csv.reader(io.StringIO(content.decode("utf-8", "replace"))) if row]
    at = {name.strip(): i for i, name in enumerate(header)}
    if lacking := [name for name in names if name not in at]:
        raise DataError(f"has no column {lacking[0]!r}; its columns are {', '.join(at)}; is it the right file?")
    short = next((i for i, row in enumerate(rows, 2) if len(row) != len(header)), None)
    if short is not None:
        raise DataError(f"line {short} has another number of cells than the header; get the file again")
    return {name: np.array([row[at[name]].strip() for row in rows]) for name in names}


def numbers(column: NDArray[Any]) -> NDArray[np.float64]:
    """Words as numbers, NaN where one is missing."""
    return np.where(np.isin(column, MISSING), "nan", column).astype(np.float64)


def categories(column: NDArray[Any]) -> NDArray[Any]:
    """Words as categories, empty where one is missing; 1.0 and 1 are the same."""
    plain = [word[:-2] if word.endswith(".0") else word for word in column.tolist()]
    return np.array(["" if word in MISSING else word for word in plain])
