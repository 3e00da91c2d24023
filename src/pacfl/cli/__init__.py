"""The command line. The only place that prints."""

import errno
import sys
from typing import Annotated

import typer
from rich.markup import escape

from pacfl import __version__
from pacfl.cli import deploy, experiments, report, reproduce, signatures  # noqa: F401 - they add their commands
from pacfl.cli.console import app, err, out
from pacfl.errors import PacflError

FULL = "; nothing is half written: make room, and give the same command again"


def main() -> None:
    """Run, and turn errors that the user can fix into one clear line and exit code 1."""
    try:
        app()
    except (PacflError, OSError) as error:
        remedy = FULL if getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT) else ""
        err.print(f"[bold red]error:[/] {escape(str(error))}{remedy}", soft_wrap=True)
        sys.exit(1)


@app.callback()
def options(
    version: Annotated[bool, typer.Option("--version", help="Show the version and stop.", is_eager=True)] = False,
) -> None:
    """Show the version where asked."""
    if version:
        out.print(f"pacfl {__version__}")
        raise typer.Exit
