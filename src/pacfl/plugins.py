"""Parts by name: of pacfl itself, of an installed package that offers them, or by import path.

An import path is "package.module:Name". A package offers parts as entry points of the group "pacfl.KIND".
"""

import hashlib
import sys
from collections.abc import Iterable, Mapping
from functools import lru_cache
from importlib import import_module, util
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, Final, Literal

from pacfl.errors import ConfigError
from pacfl.settings import suggestion

Kind = Literal["algorithms", "models", "datasets", "partitions", "losses", "metrics", "optimisers", "encoders"]

_SINGULAR: Final[Mapping[Kind, str]] = {
    "algorithms": "algorithm",
    "models": "model",
    "datasets": "data set",
    "partitions": "partition",
    "losses": "loss",
    "metrics": "metric",
    "optimisers": "optimiser",
    "encoders": "encoder",
}


def find(kind: Kind, name: str, own: Mapping[str, Any]) -> Any:
    """The part of a name: one of pacfl's own, an entry point, or what an import path leads to."""
    if name in own:
        return own[name]
    path = import_path(kind, name)
    if path is None:
        raise ConfigError(f"no {_SINGULAR[kind]} {name!r}{suggestion(name, (*own, *offered(kind)))}")
    module, _, attribute = path.partition(":")
    try:
        found: Any = import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise ConfigError(
            f"{_SINGULAR[kind]} {name!r} cannot be imported: {error}; an import path is package.module:Name, and the "
            "module is installed, in the folder of the experiment, or in the current one"
        ) from error
    except Exception as error:  # the module may do anything
        raise ConfigError(f"{_SINGULAR[kind]} {name!r} fails on import: {type(error).__name__}: {error}") from error
    return found


def import_path(kind: Kind, name: str) -> str | None:
    """Where a part that is not pacfl's own comes from, as package.module:Name; None if there is none of the name."""
    module, colon, attribute = name.partition(":")
    if colon:
        well_formed = all(word.isidentifier() for word in (*module.split("."), *attribute.split(".")))
        return name if well_formed else None
    return offered(kind)[name].value if name in offered(kind) else None


def offered(kind: Kind) -> dict[str, EntryPoint]:
    """What installed packages offer, by name."""
    return {entry.name: entry for entry in entry_points(group=f"pacfl.{kind}")}


def digests(paths: Iterable[str]) -> dict[str, str]:
    """The top-level packages of import paths, each with the SHA-256 of all its Python files."""
    return {package: source_digest(package) for package in sorted({path.split(":")[0].split(".")[0] for path in paths})}


@lru_cache
def source_digest(package: str) -> str:
    """The SHA-256 of all Python files of a package or module: results are found by it, so code without is refused."""
    try:
        found = util.find_spec(package)
    except ValueError:  # __main__ of a program, for one
        found = None
    files: list[tuple[str, Path]] = []
    if found is not None and found.submodule_search_locations:
        folders = [Path(folder) for folder in found.submodule_search_locations]
        files = [(str(path.relative_to(folder)), path) for folder in folders for path in folder.rglob("*.py")]
    elif found is not None and found.origin and found.origin.endswith(".py"):
        files = [(Path(found.origin).name, Path(found.origin))]
    if not files:
        raise ConfigError(
            f"{package!r} has no Python source that could be found; a plug-in is stored with the digest of its code, "
            "so install it with its source"
        )
    digest = hashlib.sha256()
    for name, path in sorted(files):
        digest.update(f"{name}\n".encode() + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def search_in(folder: str | Path) -> None:
    """Let import paths lead to modules in a folder, after everything that is installed."""
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
