"""The command line. The only place that prints."""

import errno
import json
import sys
from typing import Annotated

import click
import typer
from rich.markup import escape

from pacfl import __version__
from pacfl.cli import (  # noqa: F401 - they add their commands
    benchmark,
    dashboard,
    deploy,
    experiments,
    export,
    operation,
    report,
    reproduce,
    schema,
    signatures,
    sites,
    status,
    store,
    table,
)
from pacfl.cli.console import app, err, notes, out
from pacfl.errors import PacflError

INTERRUPTED = 130  # what typer makes of Ctrl-C
FULL = "; nothing is half written: make room, and give the same command again"


def main() -> None:
    """Run, and turn errors that the user can fix into one clear line and exit code 1; with --json, an object too."""
    try:
        with notes():
            code = app(standalone_mode=False)
        if code == INTERRUPTED:
            words = "interrupted; nothing is half written, and the same command resumes"
            err.print(words, highlight=False)
            _print_for_programs("Interrupted", words, code)
        sys.exit(code)
    except click.ClickException as error:
        error.show()
        _print_for_programs(type(error).__name__, error.format_message(), error.exit_code)
        sys.exit(error.exit_code)
    except (PacflError, OSError) as error:
        words = str(error) + (FULL if getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT) else "")
        err.print(f"[bold red]error:[/] {escape(words)}", soft_wrap=True)
        _print_for_programs(type(error).__name__, words, 1)
        sys.exit(1)


def _print_for_programs(kind: str, words: str, code: int) -> None:
    """The error on standard output, where --json was asked for."""
    if "--json" in sys.argv:
        print(json.dumps({"error": {"kind": kind, "message": words, "exit_code": code}}))


def _show_version(asked: bool) -> None:
    if asked:
        out.print(f"pacfl {__version__}", highlight=False)
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and stop.", is_eager=True, callback=_show_version)
    ] = False,
) -> None:
    """Clustered federated learning by principal angles."""
