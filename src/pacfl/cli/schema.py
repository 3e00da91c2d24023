"""Schemas of tables: schema describe, schema init."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from pacfl.cli.console import App, AsJson, app, out
from pacfl.cli.shared_options import sharing
from pacfl.cli.signature_display import progress_bars
from pacfl.cli.signature_options import Drop, Header
from pacfl.features import Schema, TableDescription, describe_file, init_schema

schema = App(help="Agree on what the columns of tables are.", no_args_is_help=True)
app.add_typer(schema, name="schema")

MOST_SHOWN = 8  # categories


def table_options(
    labels: Annotated[str | None, typer.Option(metavar="COLUMN", help="The column to predict; no feature.")] = None,
    group: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN", help="Rows with the same value in this column depend on each other; no feature."
        ),
    ] = None,
    drop: Drop = None,
    minimum_count: Annotated[
        int | None,
        typer.Option(metavar="N", help="Rows of a category that is named. [default: 5]", show_default=False),
    ] = None,
    header: Header = None,
    without_test: Annotated[
        bool,
        typer.Option(
            "--without-test",
            help="Leave out the rows that experiments test on: every fifth, or all of every fifth group.",
        ),
    ] = False,
) -> dict[str, Any]:
    """How tables are described: keywords of `describe_file` and `init_schema`."""
    columns = {"labels": labels, "group": group, "drop": drop or (), "header": header}
    return {**columns, "minimum_count": minimum_count, "without_test": without_test}


@schema.command()
@sharing(table_options, "how")
def describe(
    data: Annotated[Path, typer.Argument(help="A table: .csv, .tsv, .parquet, or .csv.gz.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="The file to write and share, NAME.json.")],
    how: dict[str, Any],
    epsilon: Annotated[
        float | None, typer.Option(help="Hide every single row, with this epsilon of differential privacy.")
    ] = None,
    delta: Annotated[
        float | None, typer.Option(help="Far below 1 / number of rows. [default: 1e-05]", show_default=False)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write what you share of your table: types, counts, centres and scales of its columns."""
    with progress_bars():
        found = describe_file(data, output, **how, epsilon=epsilon, delta=delta)
    if as_json:
        print(json.dumps({"file": str(output), **found.as_json()}))
    else:
        _print_description(found, output)


@schema.command()
@sharing(table_options, "how")
def init(
    files: Annotated[list[Path], typer.Argument(help="Tables, or their descriptions (.json), one for each party.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="The file to write, for example schema.json.")],
    how: dict[str, Any],
    as_json: AsJson = False,
) -> None:
    """Merge the tables of all parties, or their descriptions, into one schema."""
    with progress_bars():
        made = init_schema(files, output, **how)
    if as_json:
        print(json.dumps({"file": str(output), "sha256": made.sha256, "features": made.features, **made.as_json()}))
    else:
        _print_schema(made, output)


def _print_description(found: TableDescription, output: Path) -> None:
    private = (
        "" if found.epsilon is None else f"; private for every row: epsilon {found.epsilon:g}, delta {found.delta:g}"
    )
    table = Table(title=f"{found.rows:,} rows{private}", title_justify="left")
    for heading in ("column", "type", "missing", "what is shared"):
        table.add_column(heading)
    for column in found.columns:
        shared = "" if column.centre is None else f"centre {column.centre:g}, scale {column.scale:g}"
        counts = ", ".join(f"{value} {n}" for value, n in list(column.counts.items())[:MOST_SHOWN])
        more = f" and {len(column.counts) - MOST_SHOWN} more" if len(column.counts) > MOST_SHOWN else ""
        name = f"{column.name} (labels)" if column.name == found.labels else column.name
        whole = "; ".join(part for part in (shared, counts + more) if part)
        table.add_row(*map(escape, (name, column.type, f"{column.missing:.1%}" if column.missing else "", whole)))
    out.print(table)
    out.print(
        f"Written to {escape(str(output))}: all of it is above; share it with who makes the schema", highlight=False
    )


def _print_schema(made: Schema, output: Path) -> None:
    table = Table(title=f"{len(made.features)} features", title_justify="left")
    for heading in ("column", "kind", "how it is encoded"):
        table.add_column(heading)
    for column in made.columns:
        match column.kind:
            case "number":
                how = f"centre {column.centre:g}, scale {column.scale:g}"
            case "category":
                more = f" and {len(column.values) - MOST_SHOWN} more" if len(column.values) > MOST_SHOWN else ""
                how = f"{', '.join(column.values[:MOST_SHOWN])}{more}, other"
            case "dropped":
                how = column.reason
        indicator = "; missing or not" if column.kind != "dropped" and column.missing else ""
        table.add_row(*map(escape, (column.name, column.kind, how + indicator)))
    if made.labels is not None:
        how = ", ".join(made.labels.classes) or f"centre {made.labels.centre:g}, scale {made.labels.scale:g}"
        table.add_row(*map(escape, (made.labels.name, f"labels: {made.labels.kind}", how)))
    if made.group is not None:
        table.add_row(escape(made.group), "groups", "rows that depend on each other")
    out.print(table)
    out.print(
        f"Written to {escape(str(output))}: SHA-256 {made.sha256[:12]}...; give it to all parties", highlight=False
    )
