"""Options that several commands have in common, listed once."""

import functools
import inspect
from collections.abc import Callable
from typing import Any

Command = Callable[..., None]


def sharing(options: Callable[..., object], parameter: str) -> Callable[[Command], Command]:
    """Give a command the options of a function in place of a parameter, which gets what the function makes of them.

    >>> def length(feet: int = 0, inches: int = 0) -> int: return 12 * feet + inches
    >>> @sharing(length, "long")
    ... def cut(what: str, long: int = 0, times: int = 1) -> None: print(what, long, times)
    >>> print(inspect.signature(cut))
    (what: str, feet: int = 0, inches: int = 0, times: int = 1) -> None
    >>> cut("rope", feet=2)
    rope 24 1
    """
    shared = inspect.signature(options).parameters

    def decorate(command: Command) -> Command:
        whole = inspect.signature(command)
        own = ([*shared.values()] if name == parameter else [one] for name, one in whole.parameters.items())
        parameters = [one for part in own for one in part]

        @functools.wraps(command)
        def run(*args: Any, **given: Any) -> None:
            made = options(**{name: given.pop(name) for name in shared if name in given})
            command(*args, **{parameter: made}, **given)

        run.__signature__ = whole.replace(parameters=parameters)  # type: ignore[attr-defined]  # what typer reads
        run.__annotations__ = {one.name: one.annotation for one in parameters}
        return run

    return decorate
