"""Is a federation all right? status, deploy status."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.markup import escape
from rich.table import Table

from pacfl.cli.console import AsJson, app, err, out
from pacfl.cli.deploy import Folder, deploy, needs_flower
from pacfl.cli.result_tables import value
from pacfl.experiment.summary import metric_of
from pacfl.flower import health
from pacfl.folders import Kind, recognise, required

NO_SERVER: Final[Mapping[Kind, str]] = dict.fromkeys(("clusters", "run", "runs"), "no server writes a status there")
CODES = "0 all is well, 3 nothing runs here, 4 stalled, 5 failed or stopped, 6 it runs, with a problem."


@app.command("status", help=f"Show rounds, clusters, sites, and problems with what to do. Exit codes: {CODES}")
def federation_status(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="Of a server (its federation.folder), or of a deployment.")
    ],
    as_json: AsJson = False,
) -> None:
    """Show the status of a federation."""
    known = recognise(folder)
    if known is not None:
        required(folder, "status", "server", "deployment", why=NO_SERVER)
    where = folder if known is None else known.federation
    problems = health.problems(where)
    status = health.described(where)
    if as_json:
        kind = None if known is None else known.kind
        print(json.dumps({"kind": kind, **(status or {"phase": None}), "problems": _sentences(problems)}))
    else:
        if known is not None:
            out.print(str(known), soft_wrap=True, markup=False, highlight=False)
        _show(status, problems)
    raise typer.Exit(health.exit_code(problems))


@deploy.command("status", help=f"Show the processes and the federation, as 'pacfl status'. Exit codes: {CODES}")
def deployment_status(folder: Folder, as_json: AsJson = False) -> None:
    """Show the status of a deployment."""
    with needs_flower():
        from pacfl.flower.deploy import loopback
    processes, problems = loopback.state(folder)
    status = health.described(loopback.federation(folder))
    if as_json:
        content = {"kind": "deployment", "processes": processes, "federation": status, "problems": _sentences(problems)}
        print(json.dumps(content))
    else:
        for name, pid in processes.items():
            out.print(f"{name}: {'down' if pid is None else pid}", highlight=False)
        _show(status, problems)
    raise typer.Exit(health.exit_code(problems))


def _sentences(problems: Sequence[health.Problem]) -> list[str]:
    return [problem.what for problem in problems]


def _show(status: dict[str, Any] | None, problems: Sequence[health.Problem]) -> None:
    if status is not None:
        _show_federation(status)
    for problem in problems:
        err.print(f"problem: {escape(problem.what)}", highlight=False, soft_wrap=True)


def _show_federation(status: dict[str, Any]) -> None:
    clients = status["clients"]
    alive = sum(c["alive"] for c in clients.values())
    expected = sum(not c.get("removed") for c in clients.values())
    table = Table(
        title=f"round {status['round']} of {status['rounds']}, {status['phase']}, {alive} of {expected} alive"
    )
    for heading in ("client", "cluster", "alive", "missed rounds", "key", "node"):
        table.add_column(heading, overflow="fold")
    for c in clients.values():
        cluster = "-" if c["cluster"] is None else str(c["cluster"])
        key, node = escape(c["fingerprint"]), str(c["node"] or "-")
        missed = str(c.get("missed", 0) or "-")
        named = next((word for word in ("removed", "paused") if c.get(word)), "yes" if c["alive"] else "no")
        table.add_row(escape(c["name"]), cluster, named, missed, key, node)
    out.print(table)
    metric = metric_of(status)
    if status.get(metric) is not None:
        out.print(f"{metric} of the models as received: {value(status[metric], metric)}", highlight=False)
    for name, mean in status.get("metrics", {}).items():
        out.print(f"{name}: {value(mean, name)}", highlight=False, markup=False)
    out.print(f"last error: {escape(status.get('last_error') or 'none')}", highlight=False)
    out.print(f"last update: {status['silent']:.0f} s ago", highlight=False)
