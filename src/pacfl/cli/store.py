"""Stores of very many signatures: store add, store show, and what other commands do with a store."""

import csv
import json
import sys
from pathlib import Path
from typing import Annotated, Final

import click
import typer
from click.core import ParameterSource
from rich.markup import escape
from rich.table import Table

from pacfl.cli.console import App, AsCsv, AsJson, app, out
from pacfl.cli.signature_display import progress_bars
from pacfl.errors import DataError
from pacfl.signatures import SignatureStore, StoreClusters, add_to_store, cluster_store, join_store
from pacfl.signatures.federation import count
from pacfl.signatures.store_clusters import SUMMARY
from pacfl.subspace import Measure, Method

MOST_SHOWN: Final = 40  # clusters, or newcomers; --json has all

store = App(help="Very many signatures in one folder.", no_args_is_help=True)
app.add_typer(store, name="store")

Folder = Annotated[Path, typer.Argument(metavar="STORE", help="The folder of the store.")]


@store.command()
def add(
    folder: Folder,
    files: Annotated[list[Path], typer.Argument(help="Signature files NAME.sig, or folders of them.")],
    dimensions: Annotated[
        int | None,
        typer.Option(
            min=1, help="Of a new store: dimensions of the random projection. [default: 128]", show_default=False
        ),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Of the projection of a new store. [default: 0]", show_default=False)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Add signatures to a store, which is made if it is not there. The same command resumes after a kill."""
    with progress_bars() as advance:
        found, added = add_to_store(folder, files, dimensions=dimensions, seed=seed, on_progress=advance)
    if as_json:
        print(json.dumps({"added": added, **found.summary()}))
        return
    out.print(f"{count(added, 'signature')} added to {escape(str(folder))}, which has {len(found):,}", highlight=False)


@store.command()
def show(folder: Folder, as_json: AsJson = False, as_csv: AsCsv = False) -> None:
    """Show how many signatures a store has, how they were made, and its clusters; as CSV, that of each client."""
    found = SignatureStore(folder)
    clusters = StoreClusters.load(folder) if as_csv or (folder / SUMMARY).exists() else None
    summary = found.summary()
    if as_csv and clusters is not None:
        rows = csv.writer(sys.stdout, lineterminator="\n")
        rows.writerow(("client", "cluster"))
        rows.writerows(zip(found.names, clusters.labels.tolist(), strict=False))
    elif as_json:
        of_clusters = {} if clusters is None else {"clusters": clusters.summary}
        print(json.dumps({"kind": "store", **summary, **of_clusters}))
    else:
        table = Table(title=escape(str(folder)), show_header=False)
        for key, value in summary.items():
            if value is not None:
                table.add_row(key.replace("_", " "), f"{value:,}" if type(value) is int else escape(str(value)))
        out.print(table)
        if clusters is not None:
            _print_clusters(clusters)


def cluster_in_store(folder: Path, measure: Measure | None, method: Method, as_json: bool) -> None:
    """`pacfl cluster STORE`."""
    _refuse_options("cluster", folder, {"files", "measure", "method", "as_json"})
    with progress_bars() as advance:
        found = cluster_store(folder, measure=measure, method=method, on_progress=advance)
    if as_json:
        print(json.dumps({"kind": "store", **found.summary}))
    else:
        _print_clusters(found)


def join_to_store(folder: Path, files: list[Path], as_json: bool) -> None:
    """`pacfl join STORE NEW.sig...`."""
    _refuse_options("join", folder, {"folder", "files", "as_json"})
    with progress_bars() as advance:
        placed = join_store(folder, files, advance)
    if as_json:
        print(json.dumps({"kind": "store", "placed": placed}))
        return
    for name, cluster in list(placed.items())[:MOST_SHOWN]:
        where = f"in cluster {cluster}" if cluster >= 0 else "cannot be judged, and is in no cluster"
        out.print(f"{escape(name)} {where}", highlight=False)
    if len(placed) > MOST_SHOWN:
        out.print(f"and {len(placed) - MOST_SHOWN:,} more; --json lists all", highlight=False)


def _refuse_options(command: str, folder: Path, allowed: set[str]) -> None:
    """Refuse options that do not apply to a store."""
    context = click.get_current_context()
    for name in context.params:
        if name not in allowed and context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            option = next(one.opts[0] for one in context.command.params if one.name == name)
            raise DataError(
                f"{option}: does not apply to a store, and {folder} is one; leave it out of 'pacfl {command}'"
            )


def _print_clusters(found: StoreClusters) -> None:
    n_clusters, evidence = len(found.sizes), found.summary["evidence"]
    headings, *rows = found.table()
    table = Table(title=f"{count(n_clusters, 'cluster')} of {len(found):,} clients")
    for heading in headings:
        table.add_column(heading, justify="right")
    for row in rows[:MOST_SHOWN]:
        table.add_row(*row)
    out.print(table)
    if len(rows) > MOST_SHOWN:
        out.print(f"and {len(rows) - MOST_SHOWN:,} more; --json lists all", highlight=False)
    out.print(evidence["reasons"], highlight=False)
    since = len(found) - found.summary["clustered"]
    if since:
        out.print(f"{since:,} clients joined since; the evidence is that of the clustering.", highlight=False)
    left = len(found.store) - len(found)
    if left:
        out.print(
            f"{left:,} clients were added since, and are in no cluster yet: 'pacfl join' places them.", highlight=False
        )
