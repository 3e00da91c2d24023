"""Tables in CSV and Parquet files -> features as numbers, labels as the file has them."""

import csv
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from pacfl.errors import DataError

if TYPE_CHECKING:
    from pacfl.features.reading import Reading

Array = NDArray[Any]
MOST_ROW_BYTES: Final = 1 << 26  # of a CSV: pyarrow takes a row in one block
REMEDY: Final = "fill empty cells, and leave out columns that are not numbers with --drop"


Table = tuple[Array, Array | None, tuple[str, ...] | None, Array | None]  # features, labels, names of columns, groups


def read_csv(path: Path, how: "Reading") -> Table:
    """Features, labels and groups of text, names of columns. Comma, semicolon or tab; a header or none."""
    import pyarrow

    first, delimiter = _first_row(path)
    has_header = how.header if how.header is not None else not all(map(_is_number, first))
    names = [name.strip() for name in first] if has_header else [str(i) for i in range(len(first))]
    labels_at, group_at, features_at = _columns(path, names, how)
    try:
        table = _parse(path, delimiter, len(first), has_header, numbers=set(features_at))
        x = np.stack([table.column(i).to_numpy() for i in features_at], axis=1)
    except pyarrow.ArrowInvalid:  # parsed again as text: slower, with the cell that is no number
        table = _parse(path, delimiter, len(first), has_header, numbers=set())
        x = np.array([_numbers(path, names[i], table.column(i).to_pylist()) for i in features_at]).T
    if how.header is None and not has_header and _reads_like_header([first[i] for i in features_at], x[1:]):
        raise DataError(
            f"{path}: the first row ({', '.join(first[:5])}{', ...' if len(first) > 5 else ''}) may be a header or a "
            "sample; say which with --header or --no-header"
        )
    labels, groups = (None if i is None else table.column(i).to_numpy().astype(str) for i in (labels_at, group_at))
    return x, labels, tuple(names[i] for i in features_at) if has_header else None, groups


def read_parquet(path: Path, how: "Reading") -> Table:
    """Features (n, columns), labels and groups (n,), and names of columns."""
    from pyarrow import parquet

    table = parquet.read_table(path)
    labels_at, group_at, features_at = _columns(path, table.column_names, how)
    features = []
    for i in features_at:
        column = table.column(i).to_numpy()
        if column.dtype.kind not in "uifb":
            raise DataError(f"{path}: column {table.column_names[i]!r} is not numbers; leave it out with --drop")
        features.append(column)
    labels, groups = (None if i is None else table.column(i).to_numpy() for i in (labels_at, group_at))
    return np.stack(features, axis=1), labels, tuple(table.column_names[i] for i in features_at), groups


def _first_row(path: Path) -> tuple[list[str], str]:
    """Its cells, and the delimiter between them."""
    with path.open(newline="", encoding="utf-8-sig") as file:
        first = file.readline()
    if not first.strip():
        raise DataError(f"{path}: is empty, or its first line is")
    delimiter = max(",;\t", key=re.sub(r'"[^"]*"', "", first).count)
    return next(csv.reader([first], delimiter=delimiter)), delimiter


def _parse(path: Path, delimiter: str, n: int, has_header: bool, numbers: set[int]) -> Any:
    """A pyarrow table of n columns, the header left out; those not among the numbers are text."""
    from pyarrow import csv as arrow

    return arrow.read_csv(
        path,
        arrow.ReadOptions(
            column_names=[str(i) for i in range(n)],
            skip_rows=int(has_header),
            block_size=min(path.stat().st_size + 1, MOST_ROW_BYTES),
            use_threads=False,  # errors then name the row
        ),
        arrow.ParseOptions(delimiter=delimiter, newlines_in_values=True),
        arrow.ConvertOptions(
            column_types={str(i): "float64" if i in numbers else "string" for i in range(n)}, null_values=[]
        ),
    )


def _columns(path: Path, names: list[str], how: "Reading") -> tuple[int | None, int | None, list[int]]:
    """Positions of the labels, of the groups and of the features."""
    special = [name for name in (how.labels_at, how.group) if name is not None]
    for name in (*how.drop, *special):
        if name not in names:
            raise DataError(f"{path}: has no column {name!r}; its columns are {', '.join(names[:20])}")
    features = [i for i, name in enumerate(names) if name not in (*how.drop, *special)]
    if not features:
        raise DataError(f"{path}: has no columns left to be features")
    labels_at, group_at = (None if name is None else names.index(name) for name in (how.labels_at, how.group))
    return labels_at, group_at, features


def _numbers(path: Path, column: str, cells: list[str]) -> list[float]:
    for row, cell in enumerate(cells, 1):
        if not _is_number(cell):
            what = f"{cell!r} is not a number" if cell.strip() else "is empty"
            raise DataError(f"{path}: column {column!r}, row {row} after the header: {what}; {REMEDY}")
    return [float(cell) for cell in cells]


def _reads_like_header(first: list[str], below: Array) -> bool:
    """Integers in increasing order that count the columns, or that all lie outside the columns below, as years do."""
    if len(first) < 2 or not len(below) or not all(re.fullmatch(r"\s*[0-9]{1,9}\s*", cell) for cell in first):
        return False
    cells = np.array([int(cell) for cell in first])
    counts = len(cells) > 2 and cells[0] in (0, 1) and bool((np.diff(cells) == 1).all())
    outside = (cells < below.min(axis=0)) | (cells > below.max(axis=0))
    return counts or bool((np.diff(cells) > 0).all() and outside.all())


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
