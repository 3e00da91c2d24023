"""Tables in CSV and Parquet files -> columns with their types, or features as numbers."""

import csv
import io
import math
import re
from collections import Counter
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pacfl.errors import DataError
from pacfl.features.cells import is_missing, number, typed

if TYPE_CHECKING:
    from pacfl.features.reading import Reading

Array = NDArray[Any]
CSV: Final = (".csv", ".tsv")
COMPRESSED: Final = (".gz", ".bz2", ".zst")
CSV_KINDS: Final = (*CSV, *(kind + packed for kind in CSV for packed in COMPRESSED))
PARQUET_KINDS: Final = (".parquet", ".pq")
SPREADSHEETS: Final = (".xlsx", ".xls", ".xlsm", ".xlsb", ".ods", ".numbers")
ENCODINGS: Final = ("utf-8", "cp1252", "latin-1")  # tried in this order where no byte order mark says
MARKS: Final = {b"\xef\xbb\xbf": "utf-8-sig", b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}
MOST_ROW_BYTES: Final = 1 << 26  # of a CSV: pyarrow takes a row in one block
BLOCK: Final = 1 << 24
REMEDY: Final = "leave out columns with --drop, or encode text and missing values by a schema: 'pacfl schema init'"

Table = tuple[Array, Array | None, tuple[str, ...] | None, Array | None]  # features, labels, names of columns, groups


class Layout(NamedTuple):
    """How a CSV file is written."""

    encoding: str
    delimiter: str
    first: list[str]  # cells of the first row
    has_header: bool

    @property
    def names(self) -> list[str]:
        """Of the columns: those of the header, or their positions from 0."""
        if not self.has_header:
            return [str(i) for i in range(len(self.first))]
        return [name.strip() or f"unnamed {i}" for i, name in enumerate(self.first, 1)]


def kind_of(path: Path) -> str:
    """The suffix that says how a file is read, in lower case: .csv, .csv.gz, .npy."""
    suffixes = [suffix.lower() for suffix in path.suffixes[-2:]]
    return "".join(suffixes) if suffixes[-1:] and suffixes[-1] in COMPRESSED else path.suffix.lower()


def stem_of(path: Path) -> str:
    """The name of a file without what says how it is read."""
    return path.name[: len(path.name) - len(kind_of(path))]


def refused_kind(path: Path) -> None:
    """Refuse files of spreadsheet programs, with a hint."""
    if kind_of(path) in SPREADSHEETS:
        raise DataError(f"{path}: workbooks are not read; save the sheet as CSV (in UTF-8), and give that file")


def read_table(path: Path, header: bool | None = None, as_text: bool = False) -> Any:
    """A pyarrow table whose columns are float64, bool, timestamp, string or, where all is missing, null.

    Cells such as NA, NaN, null, ? and empty ones are missing. Columns without a header are named by their positions.
    as_text: leave the cells of a CSV as they are written.
    """
    import pyarrow as pa

    if kind_of(path) in PARQUET_KINDS:
        columns, names, origin = *_parquet_columns(path), {"first_row": "1"}
    else:
        layout = _layout(path, header)
        parsed = _parse(path, layout, numbers=set())
        names, columns = layout.names, parsed.columns
        if not as_text:
            columns = [typed(column, layout.delimiter == ",") for column in columns]
        origin = {"first_row": "2" if layout.has_header else "1", "path": str(path)}
        origin |= {"encoding": layout.encoding, "delimiter": layout.delimiter}
    names = [" ".join("".join(c if c.isprintable() else " " for c in name).split()) for name in names]
    _check_different(path, names, "rename all but one of each")
    return pa.table(columns, names=names).replace_schema_metadata(origin)


def row_of(table: Any, index: int) -> int:
    """The row in the file, as an editor or a spreadsheet counts it, of a row of a table from `read_table`."""
    origin = {key.decode(): value.decode() for key, value in (table.schema.metadata or {}).items()}
    first = int(origin.get("first_row", "1"))
    if "path" not in origin:
        return first + index
    with _opened(Path(origin["path"]), origin["encoding"]) as file:  # again: blank rows are no rows of the table
        cells = enumerate(csv.reader(file, delimiter=origin["delimiter"]), 1)
        return next(islice((row for row, cell in cells if cell), first - 1 + index, None), first + index)


def read_csv(path: Path, how: "Reading") -> Table:
    """Features, labels and groups of text, names of columns. Comma, semicolon or tab; a header or none."""
    import pyarrow as pa

    layout = _layout(path, how.header)
    names, first = layout.names, layout.first
    labels_at, group_at, features_at = _columns(path, names, how)
    try:
        table = _parse(path, layout, numbers=set(features_at))
        x = np.stack([table.column(i).to_numpy() for i in features_at], axis=1)
    except pa.ArrowInvalid:
        x = None
    if x is None or not np.isfinite(x).all():  # parsed again as text: slower, with the cells that are no numbers
        table = _parse(path, layout, numbers=set())
        origin = {"first_row": "2" if layout.has_header else "1", "path": str(path), "encoding": layout.encoding}
        table = table.replace_schema_metadata(origin | {"delimiter": layout.delimiter})
        x = _numbers(path, table, names, features_at, layout.delimiter == ",")
    if how.header is None and not layout.has_header and _reads_like_header([first[i] for i in features_at], x[1:]):
        raise DataError(
            f"{path}: the first row ({', '.join(first[:5])}{', ...' if len(first) > 5 else ''}) may be a header or a "
            "sample; say which with --header or --no-header"
        )
    labels, groups = (None if i is None else table.column(i).to_numpy().astype(str) for i in (labels_at, group_at))
    return x, labels, tuple(names[i] for i in features_at) if layout.has_header else None, groups


def read_parquet(path: Path, how: "Reading") -> Table:
    """Features (n, columns), labels and groups (n,), and names of columns."""
    table = _parquet(path)
    names = table.column_names
    labels_at, group_at, features_at = _columns(path, names, how)
    read = {i: table.column(i).to_numpy() for i in features_at}
    wrong = [i for i in features_at if read[i].dtype.kind not in "uifb" or not np.isfinite(read[i]).all()]
    if wrong:
        cells = {i: next((cell for cell in read[i].tolist() if not _is_finite(str(cell))), None) for i in wrong}
        raise _not_numbers(path, [(names[i], cells[i], None) for i in wrong])
    labels, groups = (None if i is None else table.column(i).to_numpy() for i in (labels_at, group_at))
    return np.stack([read[i] for i in features_at], axis=1), labels, tuple(names[i] for i in features_at), groups


def text_columns(path: Path, wanted: Sequence[str], header: bool | None = None) -> list[list[str]]:
    """Some columns of a CSV or Parquet file, as text; missing cells of Parquet are empty."""
    if kind_of(path) in PARQUET_KINDS:
        table = _parquet(path)
        names = table.column_names
    else:
        layout = _layout(path, header)
        table, names = _parse(path, layout, numbers=set()), layout.names
    _check_different(path, [name for name in names if name in wanted], "rename all but one of each")
    lacking = [name for name in wanted if name not in names]
    if lacking:
        raise DataError(f"{path}: has no column {lacking[0]!r}; its columns are {', '.join(names[:20])}")
    columns = (table.column(names.index(name)).to_pylist() for name in wanted)
    return [["" if cell is None else str(cell) for cell in column] for column in columns]


def _layout(path: Path, header: bool | None) -> Layout:
    encoding = _encoding(path)
    with _opened(path, encoding) as file:
        line = file.readline()
    if not line.strip():
        raise DataError(f"{path}: is empty, or its first line is")
    delimiter = max(",;\t", key=re.sub(r'"[^"]*"', "", line).count)
    with _opened(path, encoding) as file:  # again: quoted names may have line ends
        first = next(csv.reader(file, delimiter=delimiter))
    grouped = delimiter == ","
    numbers = all(number(cell, grouped) is not None or is_missing(cell) for cell in first)
    return Layout(encoding, delimiter, first, not numbers if header is None else header)


def _opened(path: Path, encoding: str) -> io.TextIOWrapper:
    """The text of a file, compressed or not."""
    import pyarrow as pa

    return io.TextIOWrapper(io.BufferedReader(pa.input_stream(str(path), compression="detect")), encoding, newline="")


def _encoding(path: Path) -> str:
    """UTF-8 if all of it is, what its byte order mark says, or what Windows writes in the West."""
    import codecs

    import pyarrow as pa

    decoders = {name: codecs.getincrementaldecoder(name)() for name in ENCODINGS}
    with pa.input_stream(str(path), compression="detect") as file:
        block = file.read(BLOCK)
        marked = next((name for mark, name in MARKS.items() if block.startswith(mark)), None)
        if block.startswith(b"PK\x03\x04"):
            raise DataError(f"{path}: is a workbook or another archive, not text; save it as CSV")
        if marked is not None:
            return marked
        while block:
            if b"\0" in block:
                raise DataError(f"{path}: is not text, or text in an encoding without a mark; save it as CSV in UTF-8")
            for name in list(decoders):
                try:
                    decoders[name].decode(block)
                except UnicodeDecodeError:
                    del decoders[name]
            block = file.read(BLOCK)
    return next(iter(decoders))


def _parse(path: Path, layout: Layout, numbers: set[int]) -> Any:
    """A pyarrow table of all columns, named by position, the header left out; those not among the numbers are text."""
    from pyarrow import csv as arrow

    packed = path.suffix.lower() in COMPRESSED
    n = len(layout.first)
    return arrow.read_csv(
        path,
        arrow.ReadOptions(
            column_names=[str(i) for i in range(n)],
            skip_rows_after_names=int(layout.has_header),
            block_size=MOST_ROW_BYTES if packed else min(path.stat().st_size + 1, MOST_ROW_BYTES),
            use_threads=False,  # errors then name the row
            encoding=layout.encoding,
        ),
        arrow.ParseOptions(delimiter=layout.delimiter, newlines_in_values=True),
        arrow.ConvertOptions(
            column_types={str(i): "float64" if i in numbers else "string" for i in range(n)}, null_values=[]
        ),
    )


def _parquet(path: Path) -> Any:
    """All columns of a file, also those of one name, which pyarrow's reader of data sets does not take."""
    from pyarrow import parquet

    with parquet.ParquetFile(path) as file:
        return file.read()


def _parquet_columns(path: Path) -> tuple[list[Any], list[str]]:
    """Columns of the types that `read_table` gives."""
    import pyarrow as pa
    from pyarrow import compute as pc
    from pyarrow import types as kinds

    table = _parquet(path)
    columns = []
    for column in table.columns:
        kind = column.type.value_type if kinds.is_dictionary(column.type) else column.type
        if kinds.is_integer(kind) or kinds.is_floating(kind) or kinds.is_decimal(kind):
            numbers = pc.cast(column, pa.float64(), safe=False)
            columns.append(pc.if_else(pc.is_nan(numbers), pa.scalar(None, pa.float64()), numbers))
        elif kinds.is_string(kind) or kinds.is_large_string(kind):
            columns.append(typed(pc.cast(column, pa.string())))
        else:
            columns.append(column)
    return columns, table.column_names


def _columns(path: Path, names: list[str], how: "Reading") -> tuple[int | None, int | None, list[int]]:
    """Positions of the labels, of the groups and of the features."""
    special = [name for name in (how.labels_at, how.group) if name is not None]
    dropped = [name for name in how.drop if name] + [n for n in names if n.startswith("unnamed ") and "" in how.drop]
    for name in (*dropped, *special):
        if name not in names:
            raise DataError(f"{path}: has no column {name!r}; its columns are {', '.join(names[:20])}")
    features = [i for i, name in enumerate(names) if name not in (*dropped, *special)]
    if not features:
        raise DataError(f"{path}: has no columns left to be features")
    sample = "; if the first row is a sample: --no-header" if kind_of(path) in CSV_KINDS and how.header is None else ""
    used = [name for name in names if name not in dropped]
    _check_different(path, used, f"rename all but one of each, or leave all of them out with --drop{sample}")
    labels_at, group_at = (None if name is None else names.index(name) for name in (how.labels_at, how.group))
    return labels_at, group_at, features


def _check_different(path: Path, names: Sequence[str], remedy: str) -> None:
    """Refuse a name that several columns have: nobody can say which is meant, or whether they are the same."""
    twice = sorted(name for name, times in Counter(names).items() if times > 1)
    if twice:
        more = f" and {len(twice) - 5} more" if len(twice) > 5 else ""
        several = "names" if len(twice) == 1 else "each name"
        raise DataError(f"{path}: {', '.join(map(repr, twice[:5]))}{more} {several} several columns; {remedy}")


def _numbers(path: Path, table: Any, names: list[str], features_at: list[int], grouped: bool) -> Array:
    """Features (n, columns) of columns of text, or an error that names all that are not numbers."""
    from pyarrow import types as kinds

    read, wrong = [], []
    for i in features_at:
        column = typed(table.column(i), grouped)
        numeric = kinds.is_floating(column.type) or kinds.is_boolean(column.type)
        values = np.asarray(column.to_numpy(), dtype=np.float64) if numeric else None
        if values is not None and np.isfinite(values).all():
            read.append(values)
            continue
        cells = table.column(i).to_pylist()
        sound = _is_boolean if kinds.is_boolean(column.type) else lambda cell: _is_finite(cell, grouped)
        at = next((row for row, cell in enumerate(cells) if not sound(cell)), 0)
        wrong.append((names[i], cells[at], row_of(table, at)))
    if wrong:
        raise _not_numbers(path, wrong)
    return np.stack(read, axis=1)


def _not_numbers(path: Path, wrong: Sequence[tuple[str, Any, int | None]]) -> DataError:
    """All columns that are not numbers, each with a cell and its row."""
    found = []
    for name, cell, row in wrong:
        empty = cell is None or cell != cell or not str(cell).strip()
        where = "" if row is None else f" in row {row}"
        found.append(f"{name!r} (an empty cell{where})" if empty else f"{name!r} ({str(cell)[:40]!r}{where})")
    few = "a column is" if len(found) == 1 else f"{len(found)} columns are"
    return DataError(f"{path}: {few} not all numbers: {', '.join(found)}; {REMEDY}")


def _is_finite(cell: str, grouped: bool = True) -> bool:
    value = number(cell, grouped)
    return value is not None and math.isfinite(value)


def _is_boolean(cell: str) -> bool:
    return cell.strip().lower() in ("true", "false")


def _reads_like_header(first: list[str], below: Array) -> bool:
    """Integers in increasing order that count the columns, or that all lie outside the columns below, as years do."""
    if len(first) < 2 or not len(below) or not all(re.fullmatch(r"\s*[0-9]{1,9}\s*", cell) for cell in first):
        return False
    cells = np.array([int(cell) for cell in first])
    counts = len(cells) > 2 and cells[0] in (0, 1) and bool((np.diff(cells) == 1).all())
    outside = (cells < below.min(axis=0)) | (cells > below.max(axis=0))
    return counts or bool((np.diff(cells) > 0).all() and outside.all())
