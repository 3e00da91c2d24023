"""Stores of very many signatures: store add, store show."""

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from pacfl.cli.console import App, AsJson, app, out
from pacfl.cli.signature_display import progress_bars
from pacfl.signatures.federation import count
from pacfl.signatures.store import SignatureStore, add_to_store

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
def show(folder: Folder, as_json: AsJson = False) -> None:
    """Show how many signatures a store has, and how they were made."""
    summary = SignatureStore(folder).summary()
    if as_json:
        print(json.dumps({"kind": "store", **summary}))
        return
    table = Table(title=escape(str(folder)), show_header=False)
    for key, value in summary.items():
        if value is not None:
            table.add_row(key.replace("_", " "), f"{value:,}" if type(value) is int else escape(str(value)))
    out.print(table)
