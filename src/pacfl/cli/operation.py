"""While a federation runs: deploy supervise, pause, resume."""

import json
import time
from pathlib import Path
from typing import Annotated

import typer

from pacfl.cli.console import AsJson
from pacfl.cli.deploy import deploy, needs_flower


@deploy.command()
def supervise(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of a deployment, or of its server.")],
    as_json: AsJson = False,
) -> None:
    """Keep it running until this command is stopped: whatever has died is started again, and the run resumes.

    In the folder of a server only the run is started: the server itself is a service of its own. With --json, each
    action is a line.
    """
    with needs_flower():
        from pacfl.flower.deploy import supervisor
    for action in supervisor.supervise(folder):
        at = time.time()
        said = json.dumps({"at": round(at, 3), "action": action}) if as_json else f"{_clock(at)} {action}"
        print(said, flush=True)


Site = Annotated[Path, typer.Argument(metavar="DIR", help="Folder of a site.")]


@deploy.command()
def pause(folder: Site, as_json: AsJson = False) -> None:
    """Answer no request of the server from now on, until 'pacfl deploy resume'. What is being computed still leaves.

    The server sees the site as paused, not as failed, and goes on without it.
    """
    with needs_flower():
        from pacfl.flower.deploy import pausing
    _say(folder, "is paused" if pausing.pause(folder) else "was paused already", True, as_json)


@deploy.command()
def resume(folder: Site, as_json: AsJson = False) -> None:
    """Answer the server again. It asks a paused site about once a minute."""
    with needs_flower():
        from pacfl.flower.deploy import pausing
    _say(folder, "answers again" if pausing.resume(folder) else "was not paused", False, as_json)


def _say(folder: Path, what: str, paused: bool, as_json: bool) -> None:
    print(json.dumps({"site": str(folder), "paused": paused}) if as_json else f"{folder} {what}")


def _clock(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))
