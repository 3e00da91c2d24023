"""Reports: one page that shows runs, or federations."""

import json
from pathlib import Path
from typing import Annotated

import typer

from pacfl.cli.console import AsJson, app, out
from pacfl.cli.experiments import Runs
from pacfl.cli.signature_display import progress_bars
from pacfl.folders import recognise


@app.command()
def report(
    which: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="RUNS...",
            help="Folders of runs, of clusters, of servers or of deployments, or hashes of runs. Default: all runs.",
        ),
    ] = None,
    output: Annotated[Path, typer.Option("-o", "--output", help="The page to write.")] = Path("report.html"),
    runs: Runs = Path("runs"),
    as_json: AsJson = False,
) -> None:
    """Write one page about runs, or about federations: tables, clusters, learning curves, every client."""
    named = which or [str(runs)]
    folders = [recognise(Path(name)) for name in named]
    from pacfl.report.gather import gather
    from pacfl.report.page import write

    with progress_bars():
        found = gather(named, runs)
        size = write(found, output)
    if as_json:
        kinds = {"run" if one is None else one.kind for one in folders}
        names = [federation.name for federation in found.federations]
        kind = kinds.pop() if len(kinds) == 1 else None  # None: folders of several kinds
        written = {"kind": kind, "file": str(output), "bytes": size}
        print(json.dumps({**written, "runs": len(found.runs), "federations": names}))
        return
    n = sum(run.federation is None for run in found.runs)
    names = [*(one.name for one in found.federations), *(run.federation for run in found.runs if run.federation)]
    what = [f"{n} run{'s' if n > 1 else ''}"] if n else []
    what += [f"the federation {name}" for name in dict.fromkeys(names)]
    out.print(f"{output}: {', '.join(what)}, {size / 1e6:.1f} MB", soft_wrap=True, markup=False, highlight=False)
    for folder in folders:
        if folder is not None:
            out.print(f"of {folder}", soft_wrap=True, markup=False, highlight=False)
