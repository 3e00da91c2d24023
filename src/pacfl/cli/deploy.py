"""Federations on real machines: deploy init, approve, up, down, deliver."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from pacfl.cli.console import app, err, out
from pacfl.errors import ConfigError, DataError, lacking
from pacfl.features import Schema, read_schema
from pacfl.learning.evaluation import Metrics

deploy = typer.Typer(help="Set up a federation of real sites on Flower.", no_args_is_help=True)
app.add_typer(deploy, name="deploy")

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="Folder of the deployment.")]


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
    loss: Annotated[
        str | None, typer.Option(help="Name of the loss, which says what the targets are. Default: cross-entropy.")
    ] = None,
    metrics: Annotated[
        str | None, typer.Option(metavar="NAMES", help="Metrics beside the primary one: auroc,calibration-error")
    ] = None,
    deadline: Annotated[float, typer.Option(min=1, help="Seconds within which a client has to reply.")] = 300.0,
) -> None:
    """Write certificates, keys, start scripts and a README for the operator into a new folder."""
    with needs_flower():
        from pacfl.flower import tables
        from pacfl.flower.deploy import layout
        from pacfl.learning.losses import find_loss
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
            "minimum-clients": len(names),
        },
    }
    if loss is None and agreed is not None and agreed.labels is not None and agreed.labels.kind == "value":
        loss = "squared-error"
    if loss is not None:
        settings["learning"] = {**layout.DEFAULTS["learning"], "loss": loss}
    if metrics is not None:
        wanted = [name.strip() for name in metrics.split(",")]
        Metrics(find_loss(loss or "cross-entropy").targets, tuple(wanted)).check()
        settings["evaluation"] = {"metrics": ", ".join(wanted)}
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
    with needs_flower():
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
    with needs_flower():
        from pacfl.flower.deploy import loopback
    for step in loopback.up(folder):
        out.print(f"started {step}", highlight=False)


@deploy.command()
def down(folder: Folder) -> None:
    """Stop what `up` has started."""
    with needs_flower():
        from pacfl.flower.deploy import loopback
    for name in loopback.down(folder):
        out.print(f"stopped {name}", highlight=False)


@deploy.command()
def deliver(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of the deployment, or of its federation.")],
) -> None:
    """Ask the server to deliver its present models to all sites, before the end or once more."""
    with needs_flower():
        from pacfl.flower.deploy import loopback
    out.print(loopback.deliver(folder), highlight=False)


@contextmanager
def needs_flower() -> Iterator[None]:
    """Say what to install where Flower is not."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise lacking(error, "a deployment", "flower") from None
