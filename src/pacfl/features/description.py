"""What a party shares of its table so that all can agree on a schema: types, counts, centres and scales of columns."""

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from pacfl.errors import DataError
from pacfl.features.cells import number
from pacfl.files import write_atomically

Array = NDArray[np.float64]
Type = Literal["number", "boolean", "category", "date", "identifier", "text", "empty"]
TYPES: Final[tuple[Type, ...]] = get_args(Type)

FORMAT: Final = 1
MINIMUM_COUNT: Final = 5  # rows of a category that is named
MOST_VALUES: Final = 200  # categories of a column that are counted
MOST_CLASSES: Final = 20  # distinct integers in a column of labels that are classes; more are values
MOST_NAME: Final = 200  # characters
MOST_BYTES: Final = 1 << 24  # of a file
WORDS: Final = 4  # in a cell of free text, on average
FEWEST_COUNTING: Final = 10  # distinct integers without a gap that count rows
FEWEST_SCATTERED: Final = 100  # distinct integers that number rows although most are somewhere else
SCATTERED: Final = 10  # times as many integers as there are rows
IDENTIFIER: Final = re.compile(r"(^|[\W_])(id|ids|uuid|guid|index|rownames)$|[a-z]I[dD]$|^unnamed [0-9]+$", re.ASCII)
MOST_SQUARED: Final = 1e100  # numbers whose squares can be added up
IQR_OF_NORMAL: Final = 1.3489795  # of standard deviation 1
WIDE_OF_NORMAL: Final = 3.2897073  # from its quantile 0.05 to 0.95


@dataclass(frozen=True)
class ColumnDescription:
    """What is shared of one column."""

    name: str
    type: Type
    missing: float = 0.0  # share of the rows
    centre: float | None = None  # of numbers; truth values are 0 and 1
    scale: float | None = None
    counts: Mapping[str, int] = field(default_factory=dict)  # rows of each category that is common enough


@dataclass(frozen=True)
class TableDescription:
    """What a party shares of its table."""

    rows: int
    columns: tuple[ColumnDescription, ...]
    labels: str | None = None
    group: str | None = None
    minimum_count: int = MINIMUM_COUNT
    epsilon: float | None = None  # with delta, the privacy of every single row
    delta: float | None = None

    def as_json(self) -> dict[str, Any]:
        """The contents of its file."""
        return {"pacfl": "description", "format": FORMAT, **asdict(self)}


def describe(
    table: Any,
    *,
    labels: str | None = None,
    group: str | None = None,
    drop: Sequence[str] = (),
    minimum_count: int = MINIMUM_COUNT,
) -> TableDescription:
    """The description of a table as `read_table` gives it. The column of groups is named and not described."""
    check_columns(table.column_names, labels, group, drop)
    if minimum_count < 1:
        raise DataError(f"--minimum-count is a number of rows, at least 1, got {minimum_count}")
    if not table.num_rows:
        raise DataError("the table has no rows")
    columns = tuple(
        (_of_labels if name == labels else _of_column)(name, table.column(name), minimum_count)
        for name in table.column_names
        if name not in drop and name != group
    )
    return TableDescription(table.num_rows, columns, labels, group, minimum_count)


def check_columns(names: Sequence[str], labels: str | None, group: str | None, drop: Sequence[str]) -> None:
    """Refuse names that no column has, and columns with two purposes."""
    special = [name for name in (labels, group) if name is not None]
    for name in (*special, *drop):
        if name not in names:
            raise DataError(f"has no column {name!r}; its columns are {', '.join(names[:20])}")
    asked = [*special, *drop]
    twice = sorted({name for name in asked if asked.count(name) > 1})
    if twice:
        raise DataError(f"column {twice[0]!r} was given twice among --labels, --group and --drop; give it once")


def category_name(value: Any) -> str:
    """A value as it names a category: printable, on one line; numbers in one way of writing them."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value + 0.0:.12g}"  # + 0.0: no negative zero
    text = " ".join("".join(c if c.isprintable() else " " for c in str(value)).split())[:MOST_NAME]
    as_number = number(text)
    return text if as_number is None or not math.isfinite(as_number) else f"{as_number + 0.0:.12g}"


def value_counts(column: Any) -> dict[str, int]:
    """Rows of each category, the most frequent first."""
    from pyarrow import compute as pc

    counts: dict[str, int] = {}
    for pair in pc.value_counts(pc.drop_null(column)).to_pylist():
        name = category_name(pair["values"])
        counts[name] = counts.get(name, 0) + int(pair["counts"])
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def centre_and_scale(values: Array) -> tuple[float, float]:
    """Median and interquartile range, as of a normal distribution of that standard deviation; scale 0 if all are equal.

    Of at most two distinct values, which have no outliers: mean and standard deviation. Where half of all values are
    equal, the range from quantile 0.05 to 0.95 takes the place of the quartiles, and then the standard deviation.
    """
    largest = float(np.abs(values).max())
    if largest > MOST_SQUARED:
        centre, scale = centre_and_scale(values / largest)
        return centre * largest, scale * largest
    if len(np.unique(values[:10_000])) <= 2 and len(np.unique(values)) <= 2:
        return rounded(float(values.mean()), float(values.std()))
    low, first, middle, third, high = np.quantile(values, [0.05, 0.25, 0.5, 0.75, 0.95]).tolist()
    scale = (third - first) / IQR_OF_NORMAL or (high - low) / WIDE_OF_NORMAL or float(values.std())
    return rounded(middle, scale)


def rounded(centre: float, scale: float) -> tuple[float, float]:
    """Both to three digits of the scale: more would say more of single rows, and change no angle."""
    if scale <= 0:
        return float(f"{centre:.6g}"), 0.0
    digits = 2 - math.floor(math.log10(scale))
    return round(centre, digits) + 0.0, float(f"{scale:.3g}")


def _of_column(name: str, column: Any, minimum_count: int) -> ColumnDescription:
    from pyarrow import types as kinds

    missing = math.ceil(1000 * column.null_count / len(column)) / 1000  # some stays more than none
    if column.null_count == len(column):
        return ColumnDescription(name, "empty", 1.0)
    if kinds.is_floating(column.type) or kinds.is_boolean(column.type):
        values = np.asarray(column.drop_null().to_numpy(), dtype=np.float64)
        if not np.isfinite(values).all():
            raise DataError(f"column {name!r} has infinite numbers; fix them, or leave it out with --drop")
        if kinds.is_floating(column.type) and _numbers_rows(name, values):
            return ColumnDescription(name, "identifier", missing)
        kind: Type = "number" if kinds.is_floating(column.type) else "boolean"
        return ColumnDescription(name, kind, missing, *centre_and_scale(values))
    if kinds.is_string(column.type):
        return _of_text(name, column, missing, minimum_count)
    if kinds.is_timestamp(column.type) or kinds.is_date(column.type) or kinds.is_time(column.type):
        return ColumnDescription(name, "date", missing)
    raise DataError(f"column {name!r} holds {column.type}, not numbers, text or dates; leave it out with --drop")


def _of_text(name: str, column: Any, missing: float, minimum_count: int) -> ColumnDescription:
    counts = value_counts(column)
    n = sum(counts.values())
    many = len(counts) > n / 2 and n >= FEWEST_COUNTING
    if many or (IDENTIFIER.search(name) and len(counts) > MOST_CLASSES):
        words = sum(len(value.split()) for value in counts) / len(counts)
        return ColumnDescription(name, "text" if words >= WORDS else "identifier", missing)
    return ColumnDescription(name, "category", missing, counts=_common(counts, minimum_count))


def _of_labels(name: str, column: Any, minimum_count: int) -> ColumnDescription:
    """Text, truth values and few integers are classes, with counts; other numbers are values."""
    from pyarrow import types as kinds

    if kinds.is_string(column.type):
        missing = math.ceil(1000 * column.null_count / len(column)) / 1000
        return ColumnDescription(name, "category", missing, counts=_common(value_counts(column), minimum_count))
    found = _of_column(name, column, minimum_count)
    if found.type not in ("number", "boolean", "identifier"):
        return found
    values = np.asarray(column.drop_null().to_numpy(), dtype=np.float64)
    distinct = np.unique(values)
    classes = len(distinct) <= MOST_CLASSES and bool((distinct == np.rint(distinct)).all())
    counts = _common(value_counts(column), minimum_count) if classes else {}
    kind: Type = "boolean" if found.type == "boolean" else "number"
    return ColumnDescription(name, kind, found.missing, *centre_and_scale(values), counts)


def _numbers_rows(name: str, values: Array) -> bool:
    """Whether integers distinguish rows and measure nothing."""
    distinct = np.unique(values)
    if not (distinct == np.rint(distinct)).all():
        return False
    if IDENTIFIER.search(name) and len(distinct) > MOST_CLASSES:
        return True
    if len(distinct) < len(values):
        return False
    span = distinct[-1] - distinct[0] + 1
    contiguous = len(distinct) >= FEWEST_COUNTING and span == len(distinct)
    return bool(contiguous or (len(distinct) >= FEWEST_SCATTERED and span <= SCATTERED * len(distinct)))


def _common(counts: Mapping[str, int], minimum_count: int) -> dict[str, int]:
    common = [item for item in counts.items() if item[1] >= minimum_count]
    return dict(common[:MOST_VALUES])


def write_json(path: Path, contents: Mapping[str, Any]) -> int:
    """Write a description or a schema for people to read; its size in bytes."""
    text = json.dumps(contents, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    return write_atomically(path, text.encode())


def read_json(path: Path, wanted: str, make: str) -> dict[str, Any]:
    """The contents of a file that anybody may have made, if it is what is wanted; make: the command for it."""
    try:
        if path.stat().st_size > MOST_BYTES:
            raise DataError(f"{path}: has more than {MOST_BYTES} bytes, which no {wanted} has")
        found = json.loads(path.read_bytes())
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from None
    except (ValueError, RecursionError):
        raise DataError(f"{path}: is not JSON, or damaged; make a {wanted} with '{make}'") from None
    if not isinstance(found, dict) or found.get("pacfl") != wanted:
        kind = found.get("pacfl") if isinstance(found, dict) else None
        other = f"a {kind}" if kind in ("description", "schema") else "another kind of JSON"
        raise DataError(f"{path}: is {other}, a {wanted} was expected; make one with '{make}'")
    if found.get("format") != FORMAT:
        raise DataError(f"{path}: has format {found.get('format')!r}, this pacfl reads {FORMAT}; use matching releases")
    return found


def read_description(path: Path) -> TableDescription:
    """A description that anybody may have made, checked."""
    found = read_json(path, "description", "pacfl schema describe DATA -o NAME.json")
    try:
        fields = {key: found[key] for key in ("rows", "labels", "group", "minimum_count", "epsilon", "delta")}
        columns = tuple(ColumnDescription(**column) for column in found["columns"])
        made = TableDescription(columns=columns, **fields)
        _check(made)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DataError(f"{path}: is no valid description ({error}); was it damaged or edited?") from None
    return made


def _check(made: TableDescription) -> None:
    names = [column.name for column in made.columns]
    for value in (made.rows, made.minimum_count):
        require(type(value) is int and 0 < value < 2**48, "rows and minimum_count are positive integers")
    require(0 < len(set(names)) == len(names), "columns have different names")
    for name in (made.labels, made.group, *names):
        require(name is None or is_name(name), f"names have 1 to {MOST_NAME} printable characters")
    require(made.labels is None or made.labels in names, "labels is one of the columns")
    for column in made.columns:
        require(column.type in TYPES, f"types are {', '.join(TYPES)}")
        require(is_finite(column.missing) and 0 <= column.missing <= 1, "missing is a share")
        for statistic in (column.centre, column.scale):
            sound = is_finite(statistic) if column.type in ("number", "boolean") else statistic is None
            require(sound, "numbers, and only they, have centre and scale")
        require(column.scale is None or column.scale >= 0, "scale is not negative")
        require(isinstance(column.counts, dict) and len(column.counts) <= MOST_VALUES, "counts is a short table")
        for name, count in column.counts.items():
            require(is_name(name) and type(count) is int and 0 < count < 2**48, "counts are positive integers by name")


def require(condition: bool, rule: str) -> None:
    """Refuse what breaks a rule."""
    if not condition:
        raise ValueError(rule)


def is_finite(value: object) -> bool:
    """Whether a value of JSON is a finite number."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def is_name(name: object) -> bool:
    """Whether a value of JSON can name a column or a category."""
    return isinstance(name, str) and 0 < len(name) <= MOST_NAME and name.isprintable()
