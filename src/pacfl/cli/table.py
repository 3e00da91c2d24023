"""Tables: finished runs, mean and standard deviation over seeds."""

import json
from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.markup import escape
from rich.table import Table

from pacfl.cli.console import AsCsv, AsJson, app, out
from pacfl.cli.experiments import Runs
from pacfl.errors import ConfigError
from pacfl.experiment.csv_tables import as_csv as csv_of
from pacfl.experiment.pivot import table as table_of
from pacfl.experiment.result_table import Protocol, ResultTable


@app.command()
def table(
    rows: Annotated[
        list[str] | None,
        typer.Option(metavar="SETTING", help="By path, as learning.lr; may be repeated. [default: algorithm]"),
    ] = None,
    columns: Annotated[
        list[str] | None, typer.Option(metavar="SETTING", help="By path, as data.scheme.alpha; may be repeated.")
    ] = None,
    metric: Annotated[
        str | None,
        typer.Option(help="A metric of the runs, loss, ari, clusters, megabits-per-client. Default: the primary one."),
    ] = None,
    protocol: Annotated[Protocol | None, typer.Option(help="The model that was evaluated. Default: received.")] = None,
    test: Annotated[
        str | None,
        typer.Option(help="A kind of test samples: owned, proportional, global. Default: the primary one of each run."),
    ] = None,
    latex: Annotated[bool, typer.Option("--latex", help="Print LaTeX, for the package booktabs.")] = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print Markdown.")] = False,
    runs: Runs = Path("runs"),
    as_json: AsJson = False,
    as_csv: AsCsv = False,
) -> None:
    """Finished runs as a table of settings: mean and standard deviation over seeds, the best marked."""
    if latex + markdown + as_json + as_csv > 1:
        raise ConfigError("choose one of --latex, --markdown, --json and --csv")
    found = table_of(runs, rows or "algorithm", columns or (), metric, protocol, test)
    if latex:
        print(found.latex(), end="")
    elif markdown:
        print(found.markdown(), end="")
    elif as_json:
        about = {"metric": found.metric, "protocol": found.protocol}
        named = {} if found.test is None else {"test": found.test}
        print(json.dumps({**about, **named, "cells": found.records()}))
    elif as_csv:
        print(csv_of(found.records()), end="")
    else:
        out.print(_drawn(found))


def _drawn(found: ResultTable) -> Table:
    head, *body = found.text(bold="{} ★")  # a file shows no bold letters
    notes = " ".join(found.notes).replace("Bold:", "★:")
    drawn = Table(box=box.SIMPLE_HEAD, caption=escape(notes))
    for i, heading in enumerate(head):
        drawn.add_column(escape(heading), justify="left" if i < len(found.rows) else "right", overflow="fold")
    for key, row in zip(found.row_keys, body, strict=True):
        means = [None] * len(found.rows) + [found.cells.get((key, column)) for column in found.column_keys]
        marks = (mean is not None and mean.best for mean in means)
        drawn.add_row(
            *(f"[bold]{escape(cell)}[/]" if best else escape(cell) for cell, best in zip(row, marks, strict=True))
        )
    return drawn
