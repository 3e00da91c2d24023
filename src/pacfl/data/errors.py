"""What the data layer says when it cannot go on."""

import importlib
from collections.abc import Iterable
from difflib import get_close_matches
from types import ModuleType


class DataError(ValueError):
    """Data that are missing, cannot be read or cannot be divided as asked, and what to do."""


def library(module: str, purpose: str) -> ModuleType:
    """An optional library, imported where it is needed and nowhere else."""
    try:
        return importlib.import_module(module)
    except ImportError:
        name = {"sklearn": "scikit-learn", "PIL": "Pillow"}.get(module.split(".")[0], module.split(".")[0])
        raise DataError(f"{purpose} needs {name}: pip install 'pacfl[data]'") from None


def suggestion(word: str, known: Iterable[str]) -> str:
    """The nearest known word and all the others, to end a message with.

    >>> suggestion("dirichlett", ["iid", "dirichlet"])
    "did you mean 'dirichlet'? Known are dirichlet, iid"
    """
    words = sorted(known)
    near = get_close_matches(word, words, n=1)
    asked = f"did you mean {near[0]!r}? " if near else ""
    return f"{asked}{'Known' if asked else 'known'} are {', '.join(words) if words else 'none'}"
