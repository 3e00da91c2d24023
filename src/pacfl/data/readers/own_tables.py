"""A federation of tables, one file for each client -> a data set, by a schema."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from pacfl.data.dataset import Dataset, from_arrays
from pacfl.data.natural import natural_clients
from pacfl.errors import DataError
from pacfl.features import Schema, init_schema, read_schema, read_table
from pacfl.features.splitting import rows_for_testing
from pacfl.features.tables import stem_of


def tables(
    folder: Path,
    *,
    files: str | Sequence[str] = "*.csv",
    schema: str | None = None,
    labels: str | None = None,
    group: str | None = None,
    drop: str | Sequence[str] = (),
) -> Dataset:
    """The rows of tables, of which every fifth is for testing, or every fifth group; each file is a client.

    files: names or patterns, in the folder of data or the current one. Without a schema, one is made of the rows for
    training, with labels, group and drop.
    """
    paths = _found(folder, [files] if isinstance(files, str) else files)
    if schema is None:
        if labels is None:
            raise DataError(
                "tables need a column to predict: options = { labels = 'outcome' }, or a schema that has it"
            )
        dropped = [drop] if isinstance(drop, str) else drop
        agreed = init_schema(paths, labels=labels, group=group, drop=dropped, without_test=True)
    else:
        if labels is not None or group is not None or drop:
            raise DataError("a schema says what labels, group and drop are; leave them out, or make a new schema")
        agreed = read_schema(_found(folder, [schema])[0])
    parts = [_rows(path, agreed) for path in paths]
    x, y, test, groups = (np.concatenate(part) for part in zip(*parts, strict=True))
    client = np.repeat([stem_of(path) for path in paths], [len(part[0]) for part in parts])
    own = natural_clients(client[~test], client[test], groups[~test] if agreed.group is not None else None)
    n_classes = len(agreed.labels.classes) if agreed.labels is not None else 0
    halves = x[~test], y[~test], x[test], y[test]
    return from_arrays(*halves, "tables", n_classes or None, natural=own, columns=agreed.features)


def _rows(path: Path, schema: Schema) -> tuple[np.ndarray, ...]:
    """Features, targets, which rows are for testing, and the group of each."""
    if schema.labels is None:
        raise DataError("the schema names no column to predict; make one with 'pacfl schema init --labels COLUMN'")
    try:
        table = read_table(path)
        x = schema.encode(table).x
        y = schema.class_codes(table) if schema.labels.kind == "classes" else schema.scaled_values(table)
        groups = schema.groups(table)
    except DataError as error:
        raise DataError(f"{path}: {str(error).removeprefix(f'{path}: ')}") from None
    named = np.arange(len(x)).astype(str) if groups is None else groups
    return x, y, rows_for_testing(len(x), groups), np.char.add(f"{stem_of(path)}/", named)


def _found(folder: Path, patterns: Sequence[str]) -> list[Path]:
    """Files by name or pattern, each once, in the order of their names."""
    found: set[Path] = set()
    for pattern in patterns:
        places = [Path(pattern).parent] if Path(pattern).is_absolute() else [folder, Path()]
        inside = Path(pattern).name if Path(pattern).is_absolute() else pattern
        matched = next((files for place in places if (files := sorted(place.glob(inside)))), None)
        if matched is None:
            raise DataError(f"{pattern}: no such file in {folder} or the current folder")
        found |= set(matched)
    paths = sorted(found)
    names = [stem_of(path) for path in paths]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise DataError(f"clients are named by their files, and {', '.join(twice)} occurs twice; rename a file")
    return paths
