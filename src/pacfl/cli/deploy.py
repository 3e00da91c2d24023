"""Federations on real machines: deploy init, up, down, status; status."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from pacfl.cli.console import AsJson, app, out
from pacfl.errors import MissingLibraryError

deploy = typer.Typer(help="Set up a federation of real sites on Flower.", no_args_is_help=True)
app.add_typer(deploy, name="deploy")

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="Folder of the deployment.")]

FINE, NOTHING_HERE, STALLED, FAILED = 0, 3, 4, 5  # exit codes of the two status commands
SILENCE = 60.0  # seconds beyond two deadlines after which a server that says nothing has stalled


@deploy.command()
def init(
    folder: Folder,
    clients: Annotated[int, typer.Option(min=1, help="Sites to prepare.")],
    host: Annotated[
        list[str] | None,
        typer.Option(help="Name or address by which sites reach the server; may be given again. Default: loopback."),
    ] = None,
    port: Annotated[
        int | None, typer.Option(min=1, max=65535, help="The server's. Default: 8443, or a free one.")
    ] = None,
    rounds: Annotated[int, typer.Option(min=1)] = 10,
    task: Annotated[str, typer.Option(help="Module with load_data and build_model.")] = "pacfl.flower.digits",
    algorithm: Annotated[str, typer.Option(help="As in an experiment.")] = "pacfl",
    deadline: Annotated[float, typer.Option(min=1, help="Seconds in which a client has to answer.")] = 300.0,
) -> None:
    """Write certificates, keys, start scripts and a README for the operator into a new folder."""
    with _flower():
        from pacfl.flower.deploy.layout import make
    settings: dict[str, dict[str, Any]] = {
        "algorithm": {"name": algorithm},
        "schedule": {"rounds": rounds, "participation": 1.0},
        "federation": {"task": task, "deadline": deadline, "minimum-clients": min(2, clients)},
    }
    plan = make(folder, clients, tuple(host or ()), port, settings)
    out.print(f"{folder}: a server on {plan.hosts[0]}:{plan.port} and {clients} sites; README.md says how to go on")


@deploy.command()
def up(folder: Folder) -> None:
    """Start all of it on this machine, with TLS and authentication, and begin or go on with the federation."""
    with _flower():
        from pacfl.flower.deploy import loopback
    for step in loopback.up(folder):
        out.print(f"started {step}", highlight=False)


@deploy.command()
def down(folder: Folder) -> None:
    """Stop what `up` has started."""
    with _flower():
        from pacfl.flower.deploy import loopback
    for name in loopback.down(folder):
        out.print(f"stopped {name}", highlight=False)


@deploy.command("status")
def deployment_status(folder: Folder, as_json: AsJson = False) -> None:
    """Show which processes run, and how the federation is. Exit code 3: something is down; others as of `status`."""
    with _flower():
        from pacfl.flower.deploy import layout, loopback, processes
    plan, running = layout.load(folder), processes.running(folder)
    wanted = [loopback.SERVER, *(loopback.site(i) for i in range(plan.clients))]
    told = _read(loopback.federation(folder))
    if as_json:
        print(json.dumps({"processes": {name: running.get(name) for name in wanted}, "federation": told}))
    else:
        for name in wanted:
            out.print(f"{name}: {running.get(name, 'down')}", highlight=False)
        if told:
            _show(told)
    if told and told["phase"] == "finished":
        return
    raise typer.Exit(NOTHING_HERE if any(name not in running for name in wanted) else _code(told))


@app.command("status")
def federation_status(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="federation.folder of the server.")],
    as_json: AsJson = False,
) -> None:
    """Show rounds, clusters, who is alive and the last error. Exit codes: 3 nothing here, 4 stalled, 5 failed."""
    told = _read(folder)
    if as_json:
        print(json.dumps(told))
    elif told is None:
        out.print(f"{folder}: no federation has been here", highlight=False)
    else:
        _show(told)
    raise typer.Exit(_code(told))


def _code(told: dict[str, Any] | None) -> int:
    if told is None:
        return NOTHING_HERE
    if told["phase"] == "failed":
        return FAILED
    return STALLED if told["phase"] != "finished" and told["silent"] > 2 * told["deadline"] + SILENCE else FINE


def _read(folder: Path) -> dict[str, Any] | None:
    path = folder / "status.json"
    if not path.exists():
        return None
    told: dict[str, Any] = json.loads(path.read_bytes())
    silent = max(time.time() - told["at"], 0.0)  # a clock may have been put back
    return {"deadline": 0.0, "clients": {}, "round": 0, "rounds": 0, **told, "silent": silent}


def _show(told: dict[str, Any]) -> None:
    clients = told["clients"]
    alive = sum(c["alive"] for c in clients.values())
    table = Table(title=f"round {told['round']} of {told['rounds']}, {told['phase']}, {alive} of {len(clients)} alive")
    for heading in ("client", "identity", "cluster", "alive"):
        table.add_column(heading)
    for number, c in clients.items():
        cluster = "-" if c["cluster"] is None else str(c["cluster"])
        table.add_row(number, escape(c["identity"]), cluster, "yes" if c["alive"] else "no")
    out.print(table)
    if told.get("accuracy") is not None:
        out.print(f"accuracy of the models as received: {100 * told['accuracy']:.1f} %", highlight=False)
    out.print(f"last error: {escape(told.get('last_error') or 'none')}", highlight=False)
    out.print(f"last heard of: {told['silent']:.0f} s ago", highlight=False)


@contextmanager
def _flower() -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        missing = (error.name or "").split(".")[0]
        if missing in ("flwr", "torch", "cryptography", "ray"):
            raise MissingLibraryError(f"deployments need {missing}: pip install 'pacfl[flower]'") from None
        raise
