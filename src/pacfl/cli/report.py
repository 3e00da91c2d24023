"""Reports: one page to look at what was run."""

from pathlib import Path
from typing import Annotated

import typer

from pacfl.cli.console import app, out
from pacfl.cli.experiments import Runs, needs_torch


@app.command()
def report(
    which: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="RUNS...",
            help="Run folders, folders of runs, hashes, or what pacfl cluster made. Default: all runs.",
        ),
    ] = None,
    output: Annotated[Path, typer.Option("-o", "--output", help="The page.")] = Path("report.html"),
    runs: Runs = Path("runs"),
) -> None:
    """Make one page of runs, or of who is alike: tables, clusters to explore, learning curves, every client."""
    with needs_torch():
        from pacfl.report.gather import gather
        from pacfl.report.page import write
    gathered = gather(which or [str(runs)], runs)
    size = write(gathered, output)
    what = [f"{len(gathered.runs)} runs"] if gathered.runs else []
    what += [f"the federation {alike.name}" for alike in gathered.federations]
    out.print(f"{output}: {', '.join(what)}, {size / 1e6:.1f} MB", soft_wrap=True, markup=False, highlight=False)
