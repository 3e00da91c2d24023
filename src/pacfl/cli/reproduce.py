"""pacfl reproduce: the paper's tables and figures."""

import json
import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.markup import escape
from rich.table import Table

from pacfl.cli.console import AsJson, app, err, out
from pacfl.cli.display import display
from pacfl.cli.experiments import DataFolder, Runs, needs_torch

if TYPE_CHECKING:
    from pacfl.reproduce.items import Item
    from pacfl.reproduce.making import Request
    from pacfl.reproduce.outcome import Outcome


@app.command()
def reproduce(
    name: Annotated[str | None, typer.Argument(help="An item, by name or number; without one, all are listed.")] = None,
    scale: Annotated[str, typer.Option(help="quick, or paper for the paper's settings.")] = "quick",
    only: Annotated[list[str] | None, typer.Option(help="A method, as pacfl. May be repeated.")] = None,
    on: Annotated[list[str] | None, typer.Option(help="A data set, as cifar10. May be repeated.")] = None,
    seeds: Annotated[int | None, typer.Option(min=1, help="How many of the item's seeds. Default: 1 if quick.")] = None,
    tune: Annotated[
        bool | None, typer.Option(help="Tune every method on held-out training samples. Default: if paper.")
    ] = None,
    source: Annotated[
        Path | None, typer.Option("--from", metavar="FOLDER", help="Show what was exported there; run nothing.")
    ] = None,
    show: Annotated[bool, typer.Option("--show", help="Show what has been run so far; run nothing.")] = False,
    export: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Add the outcome to what is there, which is not run again. No models."),
    ] = None,
    figures: Annotated[Path | None, typer.Option(metavar="FOLDER", help="Draw the pictures there.")] = None,
    page: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="With --from: write the item, or all of the paper, as a page of Markdown."),
    ] = None,
    workers: Annotated[int, typer.Option(min=1, help="Processes that train clients.")] = os.cpu_count() or 1,
    runs: Runs = Path("runs"),
    data: DataFolder = None,
    as_json: AsJson = False,
) -> None:
    """Reproduce a table or figure of the paper, its values beside ours. Stored runs are not run again."""
    with needs_torch():
        from pacfl.reproduce.items import SCALES, item
        from pacfl.reproduce.kinds import kind_of, stored
        from pacfl.reproduce.making import Request
        from pacfl.reproduce.outcome import load, merged, save
    if scale not in SCALES:
        raise typer.BadParameter(f"must be one of {', '.join(SCALES)}, got {scale!r}", param_hint="--scale")
    if page is not None:
        _write_page(page, source or Path("results"), name)
        return
    exported = None if export is None or name is None else load(export, item(name).name, scale)
    request = Request(
        scale=scale,
        data=data,
        runs=runs,
        workers=workers,
        only=tuple(only or ()),
        on=tuple(on or ()),
        n_seeds=seeds,
        tune=scale == "paper" if tune is None else tune,
        run=not show,
        exported=exported,
        watch=partial(display, quiet=as_json),
    )
    if name is None:
        _list(request, as_json)
        return
    wanted = item(name)
    if export is not None and wanted.of:
        raise typer.BadParameter(
            f"{wanted.name} shows the runs of {', '.join(wanted.of)}: export those", param_hint="--export"
        )
    outcome = kind_of(wanted).make(wanted, request) if source is None else stored(wanted, source, request.scale)
    if outcome is None:
        err.print(f"[bold red]error:[/] {escape(str(source))} has no outcome of {wanted.name}", soft_wrap=True)
        raise typer.Exit(1)
    if export is not None:
        outcome = merged(exported, outcome)
        err.print(f"wrote {save(outcome, export)}")
    _print(wanted, outcome, as_json)
    if figures is not None:
        for path in kind_of(wanted).figures(wanted, outcome, figures):
            err.print(f"wrote {path}")


def _print(item: "Item", outcome: "Outcome", as_json: bool) -> None:
    from pacfl.reproduce.kinds import kind_of

    if as_json:
        print(json.dumps(outcome))
        return
    for table in kind_of(item).tables(item, outcome):
        printed = Table(*table.head, title=table.title, box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
        for row in table.rows:
            printed.add_row(*(escape(cell) for cell in row))
        out.print(printed)
        for note in table.notes:
            out.print(escape(note), highlight=False)


def _list(request: "Request", as_json: bool) -> None:
    from pacfl.reproduce.listing import listed

    rows, speed = listed(request)
    if as_json:
        for row in rows:
            print(json.dumps(row))
        return
    caption = (
        f"At {request.scale} scale. Trials are the short runs of tuning; left are runs that have not ended. Hours "
        f"are an estimate for what is left, from {speed:,.0f} steps a second of LeNet-5, measured now with "
        f"{request.workers} workers; ResNet-9 is far slower, and evaluation is not counted."
    )
    table = Table(box=box.SIMPLE_HEAD, caption=caption, padding=(0, 1, 0, 0))
    for heading in ("", "name", "what", "data here", "runs", "trials", "left", "rounds", "hours"):
        table.add_column(heading, no_wrap=heading not in ("what", "data here"))
    for row in rows:
        hours = "-" if row["hours"] is None else f"{row['hours']:.1f}"
        what = f"{row['title']} ({row['paper'] or 'not in the paper'})"
        counts = (row[key] if row["runs"] else "-" for key in ("runs", "trials", "left", "rounds"))
        cells = (row["number"], row["name"], what, row["data"], *counts, hours)
        table.add_row(*(escape(str(cell)) for cell in cells))
    out.print(table)


def _write_page(path: Path, source: Path, name: str | None) -> None:
    from pacfl.reproduce.items import item
    from pacfl.reproduce.page import write_page

    write_page(path, source, None if name is None else item(name))
    out.print(f"wrote {path}")
