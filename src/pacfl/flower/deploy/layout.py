"""`pacfl deploy init`: everything that a server and its sites need, in one folder."""

import json
import socket
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from pacfl.errors import DeployError
from pacfl.flower.deploy import files, keys

FILE: Final = "deploy.json"
LOOPBACK: Final = ("127.0.0.1", "localhost")


@dataclass(frozen=True)
class Deployment:
    """The number of sites and the addresses of a deployment."""

    clients: int
    hosts: tuple[str, ...]
    port: int
    site_ports: tuple[int, ...] = field(default=())


def make(
    folder: Path,
    clients: int,
    hosts: Sequence[str] = (),
    port: int | None = None,
    settings: Mapping[str, Mapping[str, Any]] | None = None,
    seed: int = 0,
) -> Deployment:
    """Write a deployment into a new folder. Without hosts it is for this machine only, on free ports."""
    if folder.exists() and any(folder.iterdir()):
        raise DeployError(f"{folder} is not empty; choose another folder: keys are never overwritten")
    exposed = bool(hosts)
    names = tuple(dict.fromkeys((*hosts, *LOOPBACK)))  # the server's own processes connect to it by these names
    free = free_ports(clients + 1)
    site_ports = (9100,) * clients if exposed else tuple(free[1:])
    deployment = Deployment(clients, names, port or (8443 if exposed else free[0]), site_ports)
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)
    _write(folder / ".gitignore", "*\n")
    _write(folder / FILE, json.dumps(asdict(deployment), indent=2) + "\n")
    _write(folder / "README.md", files.readme(names[0], deployment.port, clients, exposed))
    certificate = _server(folder, deployment, "0.0.0.0" if exposed else "127.0.0.1")
    _private(folder / "sites")
    for i in range(clients):
        _site(folder / "sites" / str(i), deployment, i, certificate)
    _app(folder, settings or {}, seed)
    return deployment


def load(folder: Path) -> Deployment:
    """The deployment in a folder that `make` wrote."""
    try:
        content = json.loads((folder / FILE).read_text())
        return Deployment(content["clients"], tuple(content["hosts"]), content["port"], tuple(content["site_ports"]))
    except (OSError, ValueError, KeyError):
        raise DeployError(
            f"{folder} is not a deployment; 'pacfl deploy init {folder} --clients 3' creates one"
        ) from None


def free_ports(n: int) -> list[int]:
    """Ports on loopback that are free now."""
    sockets = [socket.socket() for _ in range(n)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()


def _server(folder: Path, deployment: Deployment, bind: str) -> bytes:
    server, authority = _private(folder / "server"), _private(folder / "authority")
    certificate = keys.write_certificates(authority, server, deployment.hosts)
    _write(server / "start.sh", files.superlink(bind, deployment.port), executable=True)
    _write(server / "register.sh", files.register(deployment.port), executable=True)
    _write(server / "run.sh", files.start_run(deployment.port), executable=True)
    return certificate


def _site(site: Path, deployment: Deployment, i: int, certificate: bytes) -> None:
    _private(site)
    keys.write_node_key(site)
    keys.write_secret(site / "ca.crt", certificate)
    script = files.supernode(deployment.hosts[0], deployment.port, deployment.site_ports[i], i, deployment.clients)
    _write(site / "start.sh", script, executable=True)
    _write(site / "site.config", "")


def _app(folder: Path, settings: Mapping[str, Mapping[str, Any]], seed: int) -> None:
    chosen = {**DEFAULTS, **settings, "federation": {**FEDERATION, **settings.get("federation", {})}}
    _write(_private(folder / "app") / "pyproject.toml", files.app(chosen, seed))


FEDERATION: Final[Mapping[str, Any]] = {
    "folder": "federation",  # in server/, where the server is started
    "task": "pacfl.flower.digits",
    "minimum-clients": 2,
    "deadline": 300.0,
    "poll": 0.5,
    "delivery": 86_400.0,
    "identity": "key",
}
DEFAULTS: Final[Mapping[str, Mapping[str, Any]]] = {
    "algorithm": {"name": "pacfl"},
    "learning": {"epochs": 2, "batch_size": 10, "lr": 0.05, "momentum": 0.5},
    "schedule": {"rounds": 10, "participation": 1.0},
}


def _private(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)
    return folder


def _write(path: Path, text: str, executable: bool = False) -> None:
    path.write_text(text, encoding="utf-8")
    path.chmod(0o700 if executable else 0o600)
