"""A live page: dashboard."""

import json
import time
from pathlib import Path
from typing import Annotated

import typer

from pacfl.cli.console import AsJson, app, err, out
from pacfl.flower.dashboard import WatchedServer
from pacfl.folders import required
from pacfl.report.progress import Watched


@app.command()
def dashboard(
    folder: Annotated[
        Path,
        typer.Argument(help="Of a server, of a deployment, of a run, of runs, or of clusters."),
    ] = Path("runs"),
    port: Annotated[int, typer.Option(min=0, max=65535, help="On 127.0.0.1. Default: a free one.")] = 0,
    prometheus: Annotated[bool, typer.Option("--prometheus", help="Also serve /metrics, for Prometheus.")] = False,
    as_json: AsJson = False,
) -> None:
    """Serve a page that shows how far something is while it runs, with the report. It can only be read, and from here.

    With --json, the address is printed as JSON. Ctrl-C ends it.
    """
    known = required(folder, "dashboard", "server", "deployment", "run", "runs", "clusters")
    from pacfl.report.serving import serving
    from pacfl.report.watching import watched

    shown: Watched = WatchedServer(known) if known.kind in ("server", "deployment") else watched(known)
    with serving(shown, port, with_metrics=prometheus) as url:
        if as_json:
            print(
                json.dumps({"kind": known.kind, "url": url, "metrics": f"{url}metrics" if prometheus else None}),
                flush=True,
            )
        else:
            out.print(f"{known}", soft_wrap=True, markup=False, highlight=False)
            out.print(f"{url} (Ctrl-C ends it)", soft_wrap=True, markup=False, highlight=False)
        try:
            while True:
                time.sleep(3600.0)
        except KeyboardInterrupt:
            err.print("ended", highlight=False)
