"""What `pacfl schema describe` and `pacfl schema init` do. The command line only parses and prints."""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np

from pacfl.errors import DataError
from pacfl.features.cells import number
from pacfl.features.description import (
    MINIMUM_COUNT,
    TableDescription,
    check_columns,
    describe,
    read_description,
    write_json,
)
from pacfl.features.merging import merged
from pacfl.features.private_description import describe_privately, text_cells
from pacfl.features.schema import Schema, write_schema
from pacfl.features.splitting import rows_for_testing
from pacfl.features.tables import CSV_KINDS, PARQUET_KINDS, kind_of, read_table, refused_kind, row_of, stem_of

DELTA: Final = 1e-5
LOOKED_AT: Final = 1000  # cells of a column of text
MISTYPED: Final = 0.1  # of them, at most, other than numbers: more are no mistakes
_NOT_PRIVATE: Final = {
    "--group": "a private description hides single rows, not groups of them",
    "--minimum-count": "with a guarantee of privacy, noise says which counts can be shown",
}


class MistypedWarning(UserWarning):
    """A column that would be one of numbers but for a few cells."""


def describe_file(
    path: Path,
    output: Path | None = None,
    *,
    labels: str | None = None,
    group: str | None = None,
    drop: Sequence[str] = (),
    minimum_count: int | None = None,
    header: bool | None = None,
    without_test: bool = False,
    epsilon: float | None = None,
    delta: float | None = None,
) -> TableDescription:
    """What one party shares of its table, written to `output`; with epsilon, every single row is hidden.

    without_test: describe only the rows that are not for testing, as `rows_for_testing` says.
    """
    _check_output(output)
    if epsilon is None:
        if delta is not None:
            raise DataError("--delta belongs to a guarantee of privacy; give --epsilon too")
        own = labels, group, drop, minimum_count, header, without_test
        made = _described(path, *own)[0]
    else:
        for option, given in (("--group", group), ("--minimum-count", minimum_count)):
            if given is not None:
                raise DataError(f"{option}: {_NOT_PRIVATE[option]}; leave it out with --epsilon")
        _check_kind(path)
        with _blamed_on(path):
            table = _table(path, header, as_text=True)
            cells = text_cells(_for_training(table, None) if without_test else table)
            delta = DELTA if delta is None else delta
            made = describe_privately(cells, epsilon=epsilon, delta=delta, labels=labels, drop=drop)
    if output is not None:
        write_json(output, made.as_json())
    return made


def init_schema(
    paths: Sequence[Path],
    output: Path | None = None,
    *,
    labels: str | None = None,
    group: str | None = None,
    drop: Sequence[str] = (),
    minimum_count: int | None = None,
    header: bool | None = None,
    without_test: bool = False,
) -> Schema:
    """The schema of tables and of descriptions (.json) of tables, one for each party, written to `output`.

    without_test: make it of the rows that are not for testing, as `rows_for_testing` says.
    """
    _check_output(output)
    names = [stem_of(path) for path in paths]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise DataError(f"parties are named by their files, and {', '.join(twice)} occurs twice; rename a file")
    by_name = dict(zip(names, paths, strict=True))
    described = {name: read_description(path) for name, path in by_name.items() if path.suffix == ".json"}
    known = {column.name for one in described.values() for column in one.columns}
    for one in described.values():
        labels, group = labels or one.labels, group or one.group
    for name, path in by_name.items():
        if name not in described:
            own = labels, group, drop, minimum_count, header, without_test
            described[name], columns = _described(path, *own, lenient=True)
            known |= columns
    unknown = [name for name in drop if name not in known]
    if unknown:
        raise DataError(f"--drop {unknown[0]}: no table has this column; their columns are {', '.join(sorted(known))}")
    for what, wanted in (("labels", labels), ("group", group)):
        lacking = [name for name, one in described.items() if getattr(one, what) != wanted]
        if lacking:
            raise DataError(f"{', '.join(lacking)}: was described without --{what} {wanted}; describe it again with it")
    schema = merged(described, drop)
    if output is not None:
        write_schema(output, schema)
    return schema


def _described(
    path: Path,
    labels: str | None,
    group: str | None,
    drop: Sequence[str],
    minimum_count: int | None,
    header: bool | None,
    without_test: bool = False,
    lenient: bool = False,
) -> tuple[TableDescription, set[str]]:
    """The description of a file and the names of all its columns; lenient: columns to drop may be missing."""
    _check_kind(path)
    whole = table = _table(path, header)
    names = table.column_names
    present = [name for name in drop if name in names] if lenient else drop
    fewest = MINIMUM_COUNT if minimum_count is None else minimum_count
    with _blamed_on(path):
        if without_test:
            check_columns(names, labels, group, present)
            table = _for_training(table, group)
        made = describe(table, labels=labels, group=group, drop=present, minimum_count=fewest)
    for column in made.columns:
        if column.name != made.labels:
            _check_text(path, whole, column.name)
    return made, set(names)


def _check_text(path: Path, table: Any, name: str) -> None:
    """Warn of a column that would be one of numbers but for a few cells, which may be mistyped."""
    from pyarrow import types as kinds

    column = table.column(name)
    if not kinds.is_string(column.type):
        return
    some = column.drop_null().slice(0, LOOKED_AT).to_pylist()
    wrong = [cell for cell in some if number(cell) is None]
    if 0 < len(wrong) <= MISTYPED * len(some):
        where = f"{wrong[0][:40]!r} in row {row_of(table, column.to_pylist().index(wrong[0]))}"
        warnings.warn(
            f"{path}: column {name!r} is text because of {len(wrong)} of {len(some)} cells, as {where}; the others are "
            f"numbers. If it is a number, fix or empty such cells; else leave it out: --drop {name!r}",
            MistypedWarning,
            stacklevel=3,
        )


def _for_training(table: Any, group: str | None) -> Any:
    """The rows that are not for testing."""
    groups = None if group is None else np.array([str(cell) for cell in table.column(group).to_pylist()])
    return table.filter(~rows_for_testing(table.num_rows, groups))


@contextmanager
def _blamed_on(path: Path) -> Iterator[None]:
    """Errors name the file."""
    try:
        yield
    except DataError as error:
        known = str(error).startswith(str(path))
        raise error if known else DataError(f"{path}: {error}") from None


def _table(path: Path, header: bool | None, as_text: bool = False) -> Any:
    """The table in a file that may be damaged."""
    try:
        return read_table(path, header, as_text)
    except DataError:
        raise
    except Exception as error:  # a damaged file can make a decoder fail in any way
        raise DataError(f"{path}: cannot be read: {' '.join(str(error).split())[:200]}") from None


def _check_output(output: Path | None) -> None:
    if output is None:
        return
    if output.suffix != ".json":
        raise DataError(f"{output}: is a JSON file; name it NAME.json")
    if not output.parent.is_dir():
        raise DataError(f"{output}: there is no folder {output.parent}; make it first")


def _check_kind(path: Path) -> None:
    if not path.is_file():
        raise DataError(f"{path}: there is no such file")
    refused_kind(path)
    if kind_of(path) not in (*CSV_KINDS, *PARQUET_KINDS):
        raise DataError(
            f"{path}: schemas are of tables, in .csv, .tsv or .parquet files; got {kind_of(path) or 'no suffix'}"
        )
