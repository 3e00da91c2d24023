"""Certificates that end: the server's, and those with which a site talks to its own executor."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from pacfl.errors import DeployError
from pacfl.flower.deploy import keys, layout, roster

SERVER: Final = "server"
EXECUTOR: Final = "executor"


@dataclass(frozen=True)
class Renewal:
    """A new certificate."""

    name: str
    file: Path
    ends: datetime
    next_step: str


def renew(folder: Path, name: str, authority: Path | None = None) -> Renewal:
    """Renew the certificate of the server (`server`) or of the executor of a site. The keys remain, as do all names.

    folder: of a deployment, or of a server or a site alone (`executor`). authority: the folder with ca.key, if it is
    not beside the server's.
    """
    whole = (folder / layout.FILE).exists()
    if name == SERVER:
        return _server(folder / SERVER if whole else folder, authority or _beside(folder, whole))
    if authority is not None:
        raise DeployError("--authority is for the certificate of the server; that of an executor signs itself")
    site = folder
    if whole:
        if name not in (sites := layout.load(folder).sites):
            raise roster.unknown(name, [SERVER, *sites])
        site = folder / "sites" / name
    elif name != EXECUTOR:
        raise DeployError(f"{folder} is no deployment: expected {SERVER!r} or {EXECUTOR!r}, got {name!r}")
    if not (site / "node.pub").exists():
        raise DeployError(f"{site} is not the folder of a site; give the command where the site is")
    keys.write_executor_secrets(site / EXECUTOR)
    ends = datetime.now(UTC) + timedelta(days=365 * keys.YEARS["authority"])
    return Renewal(name, site / EXECUTOR / "server.crt", ends, "it is used when the site is started again")


def _server(server: Path, authority: Path) -> Renewal:
    if not (server / "server.crt").exists():
        raise DeployError(f"{server} is not the folder of a server: it has no server.crt")
    ends = keys.renew_certificate(authority, server)
    return Renewal(
        SERVER,
        server / "server.crt",
        ends,
        "a server that runs from this folder uses it within seconds; sites need no change. If the server is elsewhere, "
        "copy the file into its folder",
    )


def _beside(folder: Path, whole: bool) -> Path:
    return (folder if whole else folder.absolute().parent) / "authority"
