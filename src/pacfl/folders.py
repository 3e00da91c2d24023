"""What a folder is, by the files in it: which command made it, and for which commands it is."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final, Literal

from pacfl.errors import PacflError, StoreError

Kind = Literal["clusters", "store", "server", "deployment", "run", "runs"]

CLUSTERS: Final = "proximity.npz"  # what `pacfl cluster` writes
STORE: Final = "store.json"  # what `pacfl store add` writes
DEPLOYMENT: Final = "deploy.json"  # what `pacfl deploy init` writes
RUN: Final = "run.json"  # what a run begins with
FEDERATION: Final = Path("server") / "federation"  # in a deployment: where its server stores the federation

WORDS: Final[Mapping[Kind, str]] = {
    "clusters": "a folder of clusters, made by 'pacfl cluster'",
    "store": "a store of signatures, made by 'pacfl store add'",
    "server": "the folder in which a server stores its federation",
    "deployment": "a deployment, made by 'pacfl deploy init'",
    "run": "the folder of a run, made by 'pacfl run'",
    "runs": "a folder of runs, made by 'pacfl run'",
}
COMMANDS: Final[Mapping[Kind, str]] = {
    "clusters": "show, explain, join, leave, replace, report, dashboard",
    "store": "store add, store show, cluster, join",
    "server": "status, show, explain, report, export, dashboard, deploy deliver",
    "deployment": "deploy status, status, show, explain, report, export, dashboard",
    "run": "show, report, export, dashboard",
    "runs": "ls --runs, report, dashboard",
}


@dataclass(frozen=True)
class Folder:
    """A folder whose kind is known."""

    path: Path  # as it was named
    kind: Kind

    @property
    def federation(self) -> Path:
        """Where a server stores the federation; others are where they are."""
        if self.kind == "deployment":
            return self.path / FEDERATION
        return self.path / FEDERATION.name if self.kind == "server" and _is_of_server(self.path) else self.path

    @property
    def name(self) -> str:
        """What reports and tables call it: of a server inside a deployment, the name of the deployment."""
        own = self.path.resolve()
        if self.kind != "server":
            return own.name
        outer = own if _is_of_server(own) else own.parent
        return outer.parent.name if _is_of_server(outer) and (outer.parent / DEPLOYMENT).exists() else own.name

    def __str__(self) -> str:
        return f"{self.path}, {WORDS[self.kind]}"


def recognise(path: Path) -> Folder | None:
    """The kind of a folder; None if it is none of these."""
    if (path / CLUSTERS).exists():
        return Folder(path, "clusters")
    if (path / STORE).exists():
        return Folder(path, "store")
    if (path / DEPLOYMENT).exists():
        return Folder(path, "deployment")
    if (path / RUN).exists():
        return Folder(path, "run")
    if _is_of_server(path) or any((path / name).exists() for name in ("status.json", "checkpoint.json")):
        return Folder(path, "server")
    return Folder(path, "runs") if path.is_dir() and any(path.glob(f"*/{RUN}")) else None


def is_store(path: Path) -> bool:
    """Whether a folder is a store of signatures."""
    found = recognise(path)
    return found is not None and found.kind == "store"


def required(
    path: Path,
    command: str,
    *kinds: Kind,
    error: type[PacflError] = StoreError,
    why: Mapping[Kind, str] = MappingProxyType({}),
) -> Folder:
    """The folder, refused with a sentence if it is not of one of the kinds that a command needs.

    why: the command has no use for other kinds.
    """
    found = recognise(path)
    if found is not None and found.kind in kinds:
        return found
    if found is not None:
        expected = " or ".join(WORDS[kind] for kind in kinds)
        reason = f", since {why[found.kind]}" if found.kind in why else ""
        raise error(
            f"{path}: is {WORDS[found.kind]}, and 'pacfl {command}' needs {expected}{reason}; commands for it are "
            f"{COMMANDS[found.kind]}"
        )
    expected = " or ".join(WORDS[kind] for kind in kinds)
    raise error(f"{path}: is {_unknown(path)}; 'pacfl {command}' needs {expected}")


def _unknown(path: Path) -> str:
    """What is known of something else."""
    if not path.is_dir():
        return "a file" if path.exists() else "no folder: nothing has this name"
    if (path / "node.key").exists():
        return "the folder of a site, for 'pacfl deploy approve'; its models are in models/"
    if (path / "export.json").exists():
        return "an export, for 'pacfl predict'"
    return "a folder without clusters, runs, the federation of a server, or a deployment"


def _is_of_server(path: Path) -> bool:
    """Whether it is the part of a deployment that belongs on the server."""
    return (path / "register.sh").exists()
