"""pacfl benchmark: the grid of methods and shifts."""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich import box
from rich.markup import escape
from rich.table import Table

from pacfl.cli.console import AsJson, app, err, out
from pacfl.cli.display import count, display
from pacfl.cli.experiments import DataFolder, Runs, needs_torch
from pacfl.errors import StoreError

if TYPE_CHECKING:
    from pacfl.benchmark.making import Request


@app.command()
def benchmark(
    scale: Annotated[str, typer.Option(help="quick, or full for 100 clients and 50 rounds.")] = "quick",
    methods: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAMES",
            help="Of --list, with commas; module:Class adds your own to them, or to all. [default: all]",
        ),
    ] = None,
    shifts: Annotated[
        list[str] | None, typer.Option(metavar="NAMES", help="Of --list, with commas. Default: those of the scale.")
    ] = None,
    on: Annotated[
        str | None, typer.Option(metavar="DATASET", help="A data set of the grid. Default: that of the scale.")
    ] = None,
    seeds: Annotated[int | None, typer.Option(min=1, help="How many. Default: those of the scale.")] = None,
    listed: Annotated[bool, typer.Option("--list", help="List methods and shifts; run nothing.")] = False,
    estimate: Annotated[
        bool,
        typer.Option("--estimate", help="Measure a few rounds of each method, and say how long the rest takes."),
    ] = False,
    show: Annotated[bool, typer.Option("--show", help="Show what has been run so far; run nothing.")] = False,
    export: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Add the summaries to what is there, which is not run again. No models."),
    ] = None,
    source: Annotated[
        Path | None, typer.Option("--from", metavar="FOLDER", help="Show what was exported there; run nothing.")
    ] = None,
    page: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a page of HTML with the leaderboard.")
    ] = None,
    workers: Annotated[int, typer.Option(min=1, help="Threads or processes that train clients.")] = os.cpu_count() or 1,
    runs: Runs = Path("runs"),
    data: DataFolder = None,
    as_json: AsJson = False,
) -> None:
    """Run every method on every kind of shift, and compare them. Stored runs are not run again."""
    with needs_torch():
        from pacfl.benchmark import grid
        from pacfl.benchmark.making import Request, outcomes
        from pacfl.benchmark.outcome import load, place, save, shown
    size = grid.scale_of(scale)
    by, of = grid.methods(_words(methods)), grid.columns(size, on, _words(shifts))
    folder = source or export
    stored = None if folder is None else load(folder, size)
    if source is not None and stored is None:
        raise StoreError(f"{source}: has no outcome of the benchmark at scale {scale}; export one there first")
    request = Request(
        methods=by,
        columns=of,
        scale=size,
        data=data,
        runs=runs,
        workers=workers,
        n_seeds=seeds,
        run=not show,
        exported=stored,
        watch=partial(display, quiet=as_json),
    )
    if listed:
        _list(request, as_json)
        return
    if estimate:
        _estimate(request, as_json)
        return
    for outcome in [stored] if source is not None and stored is not None else outcomes(request):
        if export is not None:
            save(outcome, export)  # after each run: a process that is killed loses the one that it runs
    if export is not None:
        err.print(f"wrote {place(export, size)}")
    asked = [] if source is not None and methods is None else [one.name for one in by]
    columns = [] if source is not None and shifts is None and on is None else [(c.data_set, c.name) for c in of]
    found = shown(outcome, asked, columns)
    if page is not None:
        from pacfl.report.leaderboard import write

        err.print(f"wrote {page}, {write(found, page) / 1e6:.1f} MB")
    _print(found, grid.settings(size).data["test"][0], as_json)


def _words(named: list[str] | None) -> tuple[str, ...]:
    return tuple(word for words in named or () for word in words.split(",") if word)


def _list(request: "Request", as_json: bool) -> None:
    """Methods and shifts, with what stored and exported runs say of the native engine."""
    from pacfl.benchmark.leaders import native_share
    from pacfl.benchmark.making import make

    methods, columns = request.methods, request.columns
    has_runs = request.exported is not None or request.runs.is_dir()
    runs = make(replace(request, run=False))["runs"] if has_runs else ()
    found = {one.name: native_share([run for run in runs if run["method"] == one.name]) for one in methods}
    native = {name: share for name, share in found.items() if share is not None}
    if as_json:
        given = [one.name for one in methods if one.given]
        titles = {column.name: column.shift.title for column in columns}
        names = {"methods": [one.name for one in methods], "shifts": [column.name for column in columns]}
        print(json.dumps({**names, "given_clusters": given, "titles": titles, "native_share": native}))
        return
    shares = {name: f"{100 * share:.0f} % of its time in the native engine" for name, share in native.items()}
    for heading, rows in (
        (
            count(len(methods), "method"),
            [(one.name, "given the number of clusters" * one.given, shares.get(one.name, "")) for one in methods],
        ),
        (count(len(columns), "shift"), [(one.name, one.shift.title) for one in columns]),
    ):
        table = Table(title=heading, box=box.SIMPLE_HEAD, show_header=False)
        for row in rows:
            table.add_row(*map(escape, row))
        out.print(table)


def _estimate(request: "Request", as_json: bool) -> None:
    from pacfl.benchmark.estimate import estimates

    table = Table(title="What is left", box=box.SIMPLE_HEAD, caption="s: processor seconds of a run, on one core")
    for heading in ("data", "method", "s", "runs", "trials", "core hours"):
        table.add_column(heading, justify="left" if heading in ("data", "method") else "right")
    found = []
    for one in estimates(request):
        found.append(one)
        seconds = "-" if one.run_seconds is None else f"{one.run_seconds:.1f}"
        table.add_row(
            one.data_set, escape(one.method), seconds, str(one.runs), str(one.trials), f"{one.core_hours:.2f}"
        )
        if not as_json:
            err.print(f"{one.data_set} {escape(one.method)}: {seconds} s for a run", highlight=False)
    total = sum(one.core_hours for one in found)
    if as_json:
        print(json.dumps({"core_hours": total, "methods": [asdict(one) for one in found]}))
        return
    out.print(table)
    out.print(f"about {total:.1f} core hours", highlight=False)


def _print(outcome: Mapping[str, Any], kind: str, as_json: bool) -> None:
    from pacfl.benchmark.leaders import leaders, missing

    rows = {protocol: leaders(outcome["runs"], kind, protocol) for protocol in ("received", "personal")}
    if as_json:
        found = {protocol: [asdict(row) for row in of] for protocol, of in rows.items()}
        print(json.dumps({**outcome, "test": kind, "leaders": found}))
        return
    for protocol, of in rows.items():
        table = Table(
            title=f"{protocol}, {kind} test samples", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), caption=CAPTION
        )
        for heading in HEADINGS:
            table.add_column(heading, justify="left" if heading == "method" else "right", no_wrap=True)
        for row in of:
            table.add_row(*map(escape, row.row()))
        out.print(table)
    for line in missing(outcome["runs"]):
        out.print(escape(line), highlight=False)


HEADINGS = ("method", "rank", "%", "worst", "below", "ARI", "MB", "s", "gain", "p")
CAPTION = (
    "Means over cells. k: given the number of clusters; rank: mean rank, ties share theirs; worst: the worst tenth of "
    "clients; below: clients below local training, %; gain: points that PACFL is ahead; p: after Holm's correction"
)
