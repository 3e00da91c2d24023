"""Reports: one page that shows runs, or a federation of signatures."""

import json
from pathlib import Path
from typing import Annotated

import typer

from pacfl.cli.console import AsJson, app, out
from pacfl.cli.experiments import Runs
from pacfl.cli.signature_display import progress_bars


@app.command()
def report(
    which: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="RUNS...",
            help="Run folders, folders of runs, hashes, or folders that pacfl cluster wrote. Default: all runs.",
        ),
    ] = None,
    output: Annotated[Path, typer.Option("-o", "--output", help="The page to write.")] = Path("report.html"),
    runs: Runs = Path("runs"),
    as_json: AsJson = False,
) -> None:
    """Write one page about runs, or about clusters of signatures: tables, clusters, learning curves, every client."""
    from pacfl.report.gather import gather
    from pacfl.report.page import write

    with progress_bars():
        found = gather(which or [str(runs)], runs)
        size = write(found, output)
    if as_json:
        names = [federation.name for federation in found.federations]
        print(json.dumps({"file": str(output), "bytes": size, "runs": len(found.runs), "federations": names}))
        return
    what = [f"{n} run{'s' if n > 1 else ''}"] if (n := len(found.runs)) else []
    what += [f"the federation {federation.name}" for federation in found.federations]
    out.print(f"{output}: {', '.join(what)}, {size / 1e6:.1f} MB", soft_wrap=True, markup=False, highlight=False)
