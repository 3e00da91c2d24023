"""A schema: what the columns of a federation's tables are, and how they become numbers, the same for all parties."""

import hashlib
import json
import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pacfl.errors import DataError
from pacfl.features.cells import number
from pacfl.features.description import FORMAT, category_name, is_finite, is_name, read_json, require, write_json
from pacfl.features.tables import read_table, row_of

if TYPE_CHECKING:
    from pacfl.features.reading import Reading

Array = NDArray[np.float64]
OTHER: Final = "other"
CONSTANT: Final = "(constant)"
MOST: Final = 10.0  # scales from the centre: a longer tail would be most of what angles, and gradients, see
MAKE: Final = "pacfl schema init FILES... -o schema.json"


class MissingValuesWarning(UserWarning):
    """Missing cells in a column that had none when the schema was made."""


class Encoded(NamedTuple):
    """A table in numbers."""

    x: NDArray[np.float32]  # (n, features), as models take them and as they are signed
    names: tuple[str, ...]  # of the features


@dataclass(frozen=True)
class Number:
    """A column of numbers: (value - centre) / scale, at most 10 either way, 0 where it is missing."""

    name: str
    centre: float
    scale: float
    missing: bool = False  # whether an indicator of missing cells follows
    kind: Literal["number"] = "number"

    def names(self) -> list[str]:
        """Of its features."""
        return [self.name, *([f"{self.name} is missing"] if self.missing else [])]

    def encode(self, table: Any) -> list[Array]:
        """Its features, (n,) each."""
        values = numbers(table, self.name)
        absent = np.isnan(values)
        with np.errstate(over="ignore"):  # infinite, and then cut
            scaled = np.where(absent, 0.0, np.clip((values - self.centre) / self.scale, -MOST, MOST))
        return [scaled, *_indicator(self, absent)]


@dataclass(frozen=True)
class Category:
    """A column of categories: 1 in the feature of its value, or of `other`; 0 in all where it is missing."""

    name: str
    values: tuple[str, ...]
    missing: bool = False
    kind: Literal["category"] = "category"

    def names(self) -> list[str]:
        """Of its features."""
        features = [f"{self.name} = {value}" for value in (*self.values, OTHER)]
        return [*features, *([f"{self.name} is missing"] if self.missing else [])]

    def encode(self, table: Any) -> list[Array]:
        """Its features, (n,) each."""
        codes = category_codes(table, self.name, self.values)
        one_hot = [(codes == k).astype(np.float64) for k in range(len(self.values) + 1)]
        return [*one_hot, *_indicator(self, codes < 0)]


@dataclass(frozen=True)
class Dropped:
    """A column that is no feature."""

    name: str
    reason: str
    kind: Literal["dropped"] = "dropped"

    def names(self) -> list[str]:
        """Of its features: none."""
        return []

    def encode(self, table: Any) -> list[Array]:  # noqa: ARG002 - as of the others
        """Nothing: it may even be missing in the table."""
        return []


Column = Number | Category | Dropped


@dataclass(frozen=True)
class Labels:
    """The column to predict: classes with names, or values, with their centre and scale."""

    name: str
    kind: Literal["classes", "value"]
    classes: tuple[str, ...] = ()
    centre: float | None = None
    scale: float | None = None


@dataclass(frozen=True)
class Schema:
    """What the columns of all parties' tables are. Parties with the same schema have comparable features."""

    columns: tuple[Column, ...]  # in the order of their names
    labels: Labels | None = None
    group: str | None = None  # rows with the same value in this column depend on each other

    @cached_property
    def features(self) -> tuple[str, ...]:
        """Names of the features of an encoded table."""
        return tuple(name for column in self.columns for name in column.names())

    @cached_property
    def zeros(self) -> tuple[float, ...]:
        """What 0 became in each feature: of numbers less the centre, over the scale; NaN of others."""
        return tuple(
            -column.centre / column.scale if column.kind == "number" and name == column.name else math.nan
            for column in self.columns
            for name in column.names()
        )

    @cached_property
    def sha256(self) -> str:
        """What identifies it: it does not depend on how its file is formatted."""
        canonical = json.dumps(self.as_json(), sort_keys=True, separators=(",", ":"), allow_nan=False)
        return hashlib.sha256(canonical.encode()).hexdigest()

    @property
    def classes_in(self) -> str | None:
        """The column of labels that are classes, if there is one."""
        return self.labels.name if self.labels is not None and self.labels.kind == "classes" else None

    def as_json(self) -> dict[str, Any]:
        """The contents of its file."""
        return {"pacfl": "schema", "format": FORMAT, **asdict(self)}

    def encode(self, table: Any) -> Encoded:
        """A table as `read_table` gives it, in numbers: rows and features (n, d), the order of columns does not matter.

        Values of a category that is not in the schema are `other`. Columns that the schema does not know are ignored.
        """
        self.check(table)
        parts = [part for column in self.columns for part in column.encode(table)]
        return Encoded(np.stack(parts, axis=1).astype(np.float32), self.features)

    def check(self, table: Any) -> None:
        """Refuse a table that lacks columns, or has other cells than numbers in those of numbers, by their names."""
        needed = [column.name for column in self.columns if column.kind != "dropped"]
        lacking = [name for name in needed if name not in table.column_names]
        if lacking:
            known = {column.name for column in self.columns} | {self.group, self.labels and self.labels.name}
            others = [name for name in table.column_names if name not in known]
            hint = f"; it has {_listed(others)}, which the schema does not know" if others else ""
            raise DataError(
                f"lacks {_listed(lacking)}, which the schema needs{hint}. Rename its columns, or make a schema without "
                "them: 'pacfl schema init --drop'"
            )
        wrong = {column.name: _wrong_row(table, column.name) for column in self.columns if column.kind == "number"}
        if found := {name: row for name, row in wrong.items() if row is not None}:
            raise _wrong_cells(table, found)

    def class_codes(self, table: Any) -> NDArray[np.int64]:
        """The class of each row as its position among the schema's classes: (n,)."""
        if self.labels is None or self.labels.kind != "classes":
            raise DataError("the schema names no classes; make one with 'pacfl schema init --labels COLUMN'")
        codes = category_codes(table, self.labels.name, self.labels.classes)
        wrong = np.flatnonzero((codes < 0) | (codes == len(self.labels.classes)))
        if len(wrong):
            cell = table.column(self.labels.name)[int(wrong[0])].as_py()
            what = "is missing" if cell is None else f"is {cell!r}, which is not among the schema's classes"
            raise DataError(f"column {self.labels.name!r}: the label in row {row_of(table, int(wrong[0]))} {what}")
        return codes

    def values(self, table: Any) -> Array:
        """The values to predict, as the table has them: (n,)."""
        if self.labels is None or self.labels.kind != "value":
            raise DataError("the schema names no values to predict; make one with 'pacfl schema init --labels COLUMN'")
        found = numbers(table, self.labels.name)
        if np.isnan(found).any():
            row = row_of(table, int(np.flatnonzero(np.isnan(found))[0]))
            raise DataError(f"column {self.labels.name!r}: the label in row {row} is missing")
        return found

    def scaled_values(self, table: Any) -> NDArray[np.float32]:
        """The values to predict as models are trained for them: (value - centre) / scale, (n,)."""
        found, labels = self.values(table), self.labels
        centre, scale = (0.0, 1.0) if labels is None else (labels.centre or 0.0, labels.scale or 1.0)
        return np.asarray((found - centre) / scale, dtype=np.float32)

    def groups(self, table: Any) -> NDArray[np.str_] | None:
        """The group of each row, where the schema has groups: (n,)."""
        return _names(table, self.group)


def read_encoded(path: Path, how: "Reading", schema: Schema) -> tuple[Any, Any, tuple[str, ...], Any]:
    """Features of a table, its labels, names of features and groups: the fields of `Samples`."""
    features = {column.name for column in schema.columns if column.kind != "dropped"}
    for option, name in (("labels", how.labels_at), ("group", how.group)):
        if name in features:
            raise DataError(
                f"{path}: {name!r} is a feature of the schema; make a schema with --{option} {name}, or leave it out"
            )
    table = read_table(path, how.header)
    try:
        encoded = schema.encode(table)
        named = how.labels is not None or how.per_class is not None or schema.classes_in in table.column_names
        labels = _names(table, how.labels_at) if named else None  # a schema's labels are used where there are some
        groups = _names(table, how.group or schema.group)
    except DataError as error:
        raise DataError(f"{path}: {error}") from None
    return encoded.x, labels, encoded.names, groups


def numbers(table: Any, name: str) -> Array:
    """A column as numbers, NaN where it is missing: (n,)."""
    from pyarrow import compute as pc

    wrong, column = _wrong_row(table, name), table.column(name)
    if wrong is not None:
        raise _wrong_cells(table, {name: wrong})
    if column.null_count == len(column):
        return np.full(len(column), np.nan)
    return np.array(pc.cast(column, "float64").to_numpy())


def category_codes(table: Any, name: str, values: Sequence[str]) -> NDArray[np.int64]:
    """The position of each row's value among the values, their number for others, -1 where it is missing: (n,)."""
    position = {value: k for k, value in enumerate(values)}
    encoded = table.column(name).combine_chunks().dictionary_encode()
    codes = [position.get(category_name(value), len(values)) for value in encoded.dictionary.to_pylist()]
    at = encoded.indices.fill_null(len(codes)).to_numpy(zero_copy_only=False)
    return np.asarray(np.array([*codes, -1], dtype=np.int64)[at])


def write_schema(path: Path, schema: Schema) -> int:
    """Write its file; the size in bytes."""
    return write_json(path, schema.as_json())


def read_schema(path: Path) -> Schema:
    """A schema from a file that anybody may have made, checked."""
    try:
        return from_contents(read_json(path, "schema", MAKE))
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{path}: is no valid schema ({error}); was it damaged or edited?") from None


def from_contents(found: dict[str, Any]) -> Schema:
    """The schema that `as_json` gave; an error of Python says what cannot be."""
    listed, group = found["labels"], found["group"]
    labels = None if listed is None else Labels(**{**listed, "classes": tuple(listed["classes"])})
    schema = Schema(tuple(map(_column, found["columns"])), labels, group)
    _check(schema)
    return schema


def _column(table: dict[str, Any]) -> Column:
    fields = {key: value for key, value in table.items() if key != "kind"}
    match table["kind"]:
        case "number":
            return Number(**fields)
        case "category":
            return Category(**{**fields, "values": tuple(fields["values"])})
        case "dropped":
            return Dropped(**fields)
    raise ValueError(f"columns are number, category or dropped, got {str(table['kind'])[:40]!r}")


def _check(schema: Schema) -> None:
    names = [column.name for column in schema.columns]
    require(all(map(is_name, names)) and len(set(names)) == len(names), "columns have different printable names")
    require(schema.group is None or (is_name(schema.group) and schema.group not in names), "group is another column")
    for column in schema.columns:
        if column.kind == "dropped":
            require(is_name(column.reason), "a column is dropped for a printable reason")
            continue
        require(isinstance(column.missing, bool), "missing is true or false")
        if column.kind == "number":
            _check_scale(column.centre, column.scale)
        else:
            require(all(map(is_name, column.values)), "values of categories are printable")
            require(OTHER not in column.values and len(set(column.values)) == len(column.values), "values differ")
    require(len(schema.features) > 0, "at least one column is a feature")
    if schema.labels is not None:
        _check_labels(schema.labels, names)


def _check_labels(labels: Labels, names: Sequence[str]) -> None:
    require(is_name(labels.name) and labels.name not in names, "labels are another column")
    require(labels.kind in ("classes", "value"), "labels are classes or value")
    if labels.kind == "value":
        _check_scale(labels.centre, labels.scale)
    require((len(labels.classes) > 0) == (labels.kind == "classes"), "classes, and only they, have names")
    require(all(map(is_name, labels.classes)) and len(set(labels.classes)) == len(labels.classes), "classes differ")


def _check_scale(centre: object, scale: object) -> None:
    require(is_finite(centre) and is_finite(scale) and float(str(scale)) > 0, "centre is finite and scale positive")


def _indicator(column: Number | Category, absent: NDArray[np.bool_]) -> list[Array]:
    if column.missing:
        return [absent.astype(np.float64)]
    if absent.any():
        warnings.warn(
            f"column {column.name!r} has {int(absent.sum())} missing cells and had none when the schema was made: they "
            "count as average. If they mean more, make the schema again with this table",
            MissingValuesWarning,
            stacklevel=5,
        )
    return []


def _names(table: Any, name: str | None) -> NDArray[np.str_] | None:
    """Labels or groups of the rows as text: (n,)."""
    if name is None:
        return None
    if name not in table.column_names:
        raise DataError(f"has no column {name!r}; its columns are {_listed(table.column_names)}")
    cells = table.column(name).to_pylist()
    if None in cells:
        raise DataError(f"column {name!r} is empty in row {row_of(table, cells.index(None))}; fill it, or leave it out")
    return np.array([category_name(cell) for cell in cells])


def _wrong_row(table: Any, name: str) -> int | None:
    """The first row in which a column has something else than a number; None if there is none."""
    from pyarrow import compute as pc
    from pyarrow import types as kinds

    column = table.column(name)
    if column.null_count == len(column) or kinds.is_boolean(column.type):
        return None
    if kinds.is_floating(column.type):
        infinite = pc.index(pc.is_inf(column), True).as_py()
        return None if infinite < 0 else int(infinite)
    return next((i for i, cell in enumerate(column.to_pylist()) if not _is_number(cell)), 0)


def _wrong_cells(table: Any, rows: Mapping[str, int]) -> DataError:
    """Columns that are not all numbers, each with a cell."""
    cells = {name: str(table.column(name)[at].as_py())[:40] for name, at in rows.items()}
    has = ", ".join(f"{name!r} has {cell!r} in row {row_of(table, rows[name])}" for name, cell in cells.items())
    what = "a column is a number" if len(rows) == 1 else f"{len(rows)} columns are numbers"
    return DataError(
        f"{what} in the schema, and not in the table: {has}; fix or empty such cells, or make a schema without the "
        f"column{'s' if len(rows) > 1 else ''}: 'pacfl schema init --drop'"
    )


def _is_number(cell: Any) -> bool:
    return cell is None or (isinstance(cell, str) and number(cell) is not None)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names[:20])) + (f" and {len(names) - 20} more" if len(names) > 20 else "")
