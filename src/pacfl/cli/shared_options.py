"""Options that several commands have in common, listed once."""

import functools
import inspect
from collections.abc import Callable, Collection
from typing import Any

Command = Callable[..., None]


def sharing(
    options: Callable[..., object], parameter: str, without: Collection[str] = ()
) -> Callable[[Command], Command]:
    """Give a command the options of a function in place of a parameter, which gets what the function makes of them.

    without: options that the command does not have; they are at their defaults.

    >>> def length(feet: int = 0, inches: int = 0) -> int: return 12 * feet + inches
    >>> @sharing(length, "long")
    ... def cut(what: str, long: int = 0, times: int = 1) -> None: print(what, long, times)
    >>> print(inspect.signature(cut))
    (what: str, feet: int = 0, inches: int = 0, times: int = 1) -> None
    >>> cut("rope", feet=2)
    rope 24 1
    >>> @sharing(length, "long", without=["inches"])
    ... def saw(long: int = 0) -> None: print(long)
    >>> print(inspect.signature(saw))
    (feet: int = 0) -> None
    """
    parameters = inspect.signature(options).parameters
    shared = {name: one for name, one in parameters.items() if name not in without}

    def decorate(command: Command) -> Command:
        whole = inspect.signature(command)
        own = ([*shared.values()] if name == parameter else [one] for name, one in whole.parameters.items())
        listed = [one for part in own for one in part]

        @functools.wraps(command)
        def run(*args: Any, **given: Any) -> None:
            made = options(**{name: given.pop(name) for name in shared if name in given})
            command(*args, **{parameter: made}, **given)

        run.__signature__ = whole.replace(parameters=listed)  # type: ignore[attr-defined]  # what typer reads
        run.__annotations__ = {one.name: one.annotation for one in listed}
        return run

    return decorate
