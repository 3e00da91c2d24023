"""Federations on real machines: deploy init, approve, up, down, deliver, status; status."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from pacfl.cli.console import AsJson, app, err, out
from pacfl.cli.result_tables import value
from pacfl.errors import ConfigError, DataError, missing
from pacfl.experiment.summary import metric_of
from pacfl.features import Schema, read_schema

deploy = typer.Typer(help="Set up a federation of real sites on Flower.", no_args_is_help=True)
app.add_typer(deploy, name="deploy")

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="Folder of the deployment.")]

OK, NOT_FOUND, STALLED, FAILED = 0, 3, 4, 5  # exit codes of the two status commands
SILENCE = 60.0  # seconds beyond two deadlines without a new status after which a server has stalled


@deploy.command()
def init(
    folder: Folder,
    clients: Annotated[
        int | None, typer.Option(min=1, help="Number of sites to prepare; they are called 0, 1, ...")
    ] = None,
    sites: Annotated[
        str | None, typer.Option(metavar="NAMES", help="Names of the sites to prepare: heidelberg,lyon,graz")
    ] = None,
    host: Annotated[
        list[str] | None,
        typer.Option(help="Name or address of the server, for the sites; may be repeated. Default: loopback."),
    ] = None,
    bind: Annotated[
        str, typer.Option(metavar="ADDRESS", help="IPv4 address on which the server listens; 0.0.0.0 for all.")
    ] = "127.0.0.1",
    port: Annotated[
        int | None, typer.Option(min=1, max=65535, help="Port of the server. Default: 8443, or a free one.")
    ] = None,
    rounds: Annotated[int, typer.Option(min=1)] = 10,
    task: Annotated[str, typer.Option(help="Module with load_data and build_model.")] = "pacfl.flower.digits",
    schema: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Of tables: makes the task. Made by 'pacfl schema init'.")
    ] = None,
    algorithm: Annotated[str, typer.Option(help="Name of the algorithm, as in an experiment.")] = "pacfl",
    deadline: Annotated[float, typer.Option(min=1, help="Seconds within which a client has to reply.")] = 300.0,
) -> None:
    """Write certificates, keys, start scripts and a README for the operator into a new folder."""
    with _flower():
        from pacfl.flower import tables
        from pacfl.flower.deploy import layout
    if (clients is None) == (sites is None):
        raise ConfigError(
            "give either --sites with names, such as heidelberg,lyon,graz, or --clients with their number"
        )
    names = tuple(map(str, range(clients or 0))) if sites is None else tuple(sites.split(","))
    agreed = None if schema is None else _schema_with_labels(schema)
    settings: dict[str, dict[str, Any]] = {
        "algorithm": {"name": algorithm},
        "schedule": {"rounds": rounds, "participation": 1.0},
        "federation": {
            "task": task if agreed is None else tables.MODULE,
            "deadline": deadline,
            "minimum-clients": min(2, len(names)),
        },
    }
    if agreed is not None and agreed.labels is not None and agreed.labels.kind == "value":
        settings["learning"] = {**layout.DEFAULTS["learning"], "loss": "squared-error"}
    modules = {} if agreed is None else {tables.MODULE: tables.task_module(agreed)}
    deployment = layout.make(folder, names, tuple(host or ()), port, settings, bind=bind, modules=modules)
    what = f"{len(names)} site{'s' if len(names) > 1 else ''}"
    out.print(f"{folder}: a server on {deployment.hosts[0]}:{deployment.port} and {what}; README.md has the next steps")
    if host and bind == layout.LOOPBACK[0]:
        err.print(
            f"note: the server listens on {bind} only, so sites need a tunnel to it; --bind 0.0.0.0 listens on all "
            "addresses of its machine",
            highlight=False,
        )


def _schema_with_labels(path: Path) -> Schema:
    found = read_schema(path)
    if found.labels is None:
        raise DataError(f"{path}: names no column to predict; make a schema with 'pacfl schema init --labels COLUMN'")
    return found


@deploy.command()
def approve(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of a site, of a server, or of a deployment.")],
    yes: Annotated[bool, typer.Option("--yes", help="Approve without a question.")] = False,
) -> None:
    """Show the app that waits for approval (hash, files, changes), and let it run here if you approve it.

    In the folder of a deployment, the app in app/ is approved for the server, and for sites on this machine. Sites
    elsewhere approve it themselves.
    """
    with _flower():
        from pacfl.flower.deploy import approval, layout
    whole = (folder / layout.FILE).exists()
    content, origin = approval.candidate(folder / "server" if whole else folder)
    out.print(f"an app, {origin}:", highlight=False)
    for line in approval.review(folder / "server" if whole else folder, content):
        print(line)
    if not yes:
        typer.confirm(f"Let this app run in {folder}?", abort=True)
    if whole:
        layout.approve(folder, content)
    else:
        approval.approve(folder, content)
    out.print(f"approved {approval.digest(content)}", highlight=False, soft_wrap=True)


@deploy.command()
def up(folder: Folder) -> None:
    """Start everything on this machine, with TLS and authentication, and start or resume the federation."""
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


@deploy.command()
def deliver(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of the deployment, or of its federation.")],
) -> None:
    """Ask the server to deliver its present models to all sites, before the end or once more."""
    with _flower():
        from pacfl.flower.deploy import loopback
    out.print(loopback.deliver(folder), highlight=False)


@deploy.command("status")
def deployment_status(folder: Folder, as_json: AsJson = False) -> None:
    """Show the processes and the federation. Exit code 3: a process is down; others as of `status`."""
    with _flower():
        from pacfl.flower.deploy import layout, loopback, processes
    deployment, running = layout.load(folder), processes.running(folder)
    expected = [loopback.SERVER, *(loopback.site(name) for name in deployment.sites)]
    status = _read(loopback.federation(folder))
    if as_json:
        print(json.dumps({"processes": {name: running.get(name) for name in expected}, "federation": status}))
    else:
        for name in expected:
            out.print(f"{name}: {running.get(name, 'down')}", highlight=False)
        if status:
            _show(status)
    if status and status["phase"] == "finished":
        return
    raise typer.Exit(NOT_FOUND if any(name not in running for name in expected) else _code(status))


@app.command("status")
def federation_status(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="The server's federation.folder.")],
    as_json: AsJson = False,
) -> None:
    """Show rounds, clusters, who is alive and the last error. Exit codes: 3 nothing here, 4 stalled, 5 failed."""
    status = _read(folder)
    if as_json:
        print(json.dumps(status))
    elif status is None:
        out.print(f"{folder}: no federation here", highlight=False)
    else:
        _show(status)
    raise typer.Exit(_code(status))


def _code(status: dict[str, Any] | None) -> int:
    if status is None:
        return NOT_FOUND
    if status["phase"] == "failed":
        return FAILED
    return STALLED if status["phase"] != "finished" and status["silent"] > 2 * status["deadline"] + SILENCE else OK


def _read(folder: Path) -> dict[str, Any] | None:
    path = folder / "status.json"
    if not path.exists():
        return None
    status: dict[str, Any] = json.loads(path.read_bytes())
    silent = max(time.time() - status["at"], 0.0)  # the clock may have been set back
    return {"deadline": 0.0, "clients": {}, "round": 0, "rounds": 0, **status, "silent": silent}


def _show(status: dict[str, Any]) -> None:
    clients = status["clients"]
    alive = sum(c["alive"] for c in clients.values())
    table = Table(
        title=f"round {status['round']} of {status['rounds']}, {status['phase']}, {alive} of {len(clients)} alive"
    )
    for heading in ("client", "cluster", "alive", "key", "node"):
        table.add_column(heading, overflow="fold")
    for c in clients.values():
        cluster = "-" if c["cluster"] is None else str(c["cluster"])
        key, node = escape(c["fingerprint"]), str(c["node"] or "-")
        table.add_row(escape(c["name"]), cluster, "yes" if c["alive"] else "no", key, node)
    out.print(table)
    metric = metric_of(status)
    if status.get(metric) is not None:
        out.print(f"{metric} of the models as received: {value(status[metric], metric)}", highlight=False)
    out.print(f"last error: {escape(status.get('last_error') or 'none')}", highlight=False)
    out.print(f"last update: {status['silent']:.0f} s ago", highlight=False)


@contextmanager
def _flower() -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        name = (error.name or "").split(".")[0]
        if name in ("flwr", "torch", "cryptography", "psutil", "ray"):
            raise missing(name, "a deployment", "flower") from None
        raise
