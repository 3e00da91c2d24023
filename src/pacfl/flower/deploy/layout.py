"""`pacfl deploy init`: everything that a server and its sites need, in one folder."""

import json
import socket
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from pacfl.errors import DeployError
from pacfl.flower.deploy import files, keys

PLAN: Final = "deploy.json"
LOOPBACK: Final = ("127.0.0.1", "localhost")


@dataclass(frozen=True)
class Plan:
    """What a deployment was made with."""

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
) -> Plan:
    """Write a deployment into a new folder. Without hosts it is for this machine only, on ports that are free now."""
    if folder.exists() and any(folder.iterdir()):
        raise DeployError(f"{folder} is not empty; choose another folder: keys are never written over")
    here = not hosts
    names = tuple(dict.fromkeys((*hosts, *LOOPBACK)))  # the server also speaks to itself, by these names
    free = free_ports(clients + 1)
    site_ports = tuple(free[1:]) if here else (9100,) * clients
    plan = Plan(clients, names, port or (free[0] if here else 8443), site_ports)
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)
    _write(folder / ".gitignore", "*\n")
    _write(folder / PLAN, json.dumps(asdict(plan), indent=2) + "\n")
    _write(folder / "README.md", files.readme(names[0], plan.port, range(clients)))
    certificate = _server(folder, plan, "127.0.0.1" if here else "0.0.0.0")
    _private(folder / "sites")
    for i in range(clients):
        _site(folder / "sites" / str(i), plan, i, certificate)
    _app(folder, settings or {}, seed)
    return plan


def load(folder: Path) -> Plan:
    """The plan of a folder that `make` wrote."""
    try:
        content = json.loads((folder / PLAN).read_text())
        return Plan(content["clients"], tuple(content["hosts"]), content["port"], tuple(content["site_ports"]))
    except (OSError, ValueError, KeyError):
        raise DeployError(f"{folder} is no deployment; 'pacfl deploy init {folder} --clients 3' makes one") from None


def add_site(folder: Path) -> int:
    """Prepare one more site; its number."""
    plan = load(folder)
    more = Plan(plan.clients + 1, plan.hosts, plan.port, (*plan.site_ports, free_ports(1)[0]))
    certificate = (folder / "server" / "ca.crt").read_bytes()
    _site(folder / "sites" / str(plan.clients), more, plan.clients, certificate)
    _write(folder / PLAN, json.dumps(asdict(more), indent=2) + "\n")
    return plan.clients


def free_ports(n: int) -> list[int]:
    """Ports on loopback that nobody has now."""
    sockets = [socket.socket() for _ in range(n)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()


def _server(folder: Path, plan: Plan, bind: str) -> bytes:
    server, authority = _private(folder / "server"), _private(folder / "authority")
    certificate = keys.write_certificates(authority, server, plan.hosts)
    _write(server / "start.sh", files.superlink(bind, plan.port), executable=True)
    _write(server / "register.sh", files.register(plan.port), executable=True)
    _write(server / "run.sh", files.start_run(plan.port), executable=True)
    return certificate


def _site(site: Path, plan: Plan, i: int, certificate: bytes) -> None:
    _private(site)
    keys.write_node_key(site)
    keys.write_secret(site / "ca.crt", certificate)
    script = files.supernode(plan.hosts[0], plan.port, plan.site_ports[i], i, plan.clients)
    _write(site / "start.sh", script, executable=True)
    _write(site / "site.config", "")


def _app(folder: Path, settings: Mapping[str, Mapping[str, Any]], seed: int) -> None:
    chosen = {**DEFAULTS, **settings, "federation": {**FEDERATION, **settings.get("federation", {})}}
    _write(_private(folder / "app") / "pyproject.toml", files.app(chosen, seed))


FEDERATION: Final[Mapping[str, Any]] = {
    "folder": "federation",  # where the server is started, in server/
    "task": "pacfl.flower.digits",
    "minimum-clients": 2,
    "deadline": 300.0,
    "poll": 0.5,
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
