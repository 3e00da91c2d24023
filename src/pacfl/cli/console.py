"""What all commands share: the app, and where they print."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any, TypeVar

import typer
import typer.core
from rich.console import Console
from rich.markup import escape

F = TypeVar("F", bound=Callable[..., Any])


class _Help:
    """Typer escapes brackets in help for rich markup, also where there is none."""

    def get_help(self, ctx: Any) -> str:
        text: str = super().get_help(ctx)  # type: ignore[misc]  # of the command that it is mixed into
        return text.replace("\\[", "[")


class Command(_Help, typer.core.TyperCommand):
    """A command."""


class Group(_Help, typer.core.TyperGroup):
    """A group of commands."""


class App(typer.Typer):
    """Commands whose help is plain text."""

    def __init__(self, **options: Any) -> None:
        """As typer's."""
        super().__init__(cls=Group, rich_markup_mode=None, **options)

    def command(self, name: str | None = None, **options: Any) -> Callable[[F], F]:
        """As typer's."""
        return super().command(name, cls=Command, **options)


app = App(
    help="Clustered federated learning by principal angles.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    suggest_commands=False,  # click does
)
out = Console()
err = Console(stderr=True)


@contextmanager
def notes() -> Iterator[None]:
    """What the library warns of is a note on standard error."""

    def show(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
        if issubclass(category, UserWarning):
            note(str(message))
        else:
            others(message, category, *where, **more)

    with warnings.catch_warnings():
        others, warnings.showwarning = warnings.showwarning, show
        warnings.simplefilter("default", UserWarning)
        yield


def note(text: str) -> None:
    """Something to know, on standard error."""
    err.print(f"note: {escape(text)}", soft_wrap=True)


AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]
AsCsv = Annotated[bool, typer.Option("--csv", help="Print a table for spreadsheets.")]
