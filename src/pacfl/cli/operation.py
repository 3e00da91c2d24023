"""What runs for as long as a federation does: deploy supervise."""

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


def _clock(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))
