"""`pacfl deploy init`: everything that a server and its sites need, in one folder."""

import ipaddress
import json
import socket
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from pacfl.errors import DeployError
from pacfl.files import write_atomically
from pacfl.flower.client_registry import NAME
from pacfl.flower.deploy import approval, files, keys, services, trust
from pacfl.folders import DEPLOYMENT, required

FILE: Final = DEPLOYMENT
SITE: Final = "site.json"  # in the folder of a site: what it is
LOOPBACK: Final = ("127.0.0.1", "localhost")


@dataclass(frozen=True)
class Deployment:
    """The names of the sites and the addresses of a deployment."""

    sites: tuple[str, ...]
    hosts: tuple[str, ...]
    port: int
    site_ports: tuple[int, ...] = field(default=())
    bind: str = LOOPBACK[0]  # where the server listens
    removed: Mapping[str, int] = field(default_factory=dict)  # the ports of sites that have left, by name

    @property
    def one_machine(self) -> bool:
        """Whether server and sites are all on this machine, and so have one operator."""
        return self.hosts == LOOPBACK


def make(
    folder: Path,
    sites: Sequence[str],
    hosts: Sequence[str] = (),
    port: int | None = None,
    settings: Mapping[str, Mapping[str, Any]] | None = None,
    seed: int = 0,
    bind: str = LOOPBACK[0],
    modules: Mapping[str, str] | None = None,
) -> Deployment:
    """Write a deployment into a new folder. Without hosts it is for this machine only, on free ports.

    bind: the IPv4 address on which the server listens, or 0.0.0.0 for all of this machine.
    modules: Python modules that go to the sites with the app, as text.
    """
    if folder.exists() and any(folder.iterdir()):
        raise DeployError(f"{folder} is not empty; choose another folder: keys are never overwritten")
    check_names(sites)
    own = () if bind in ("0.0.0.0", *LOOPBACK) else (_address(bind),)
    if bind != LOOPBACK[0] and not hosts:
        raise DeployError(f"a server that listens on {bind} needs the name by which sites reach it: give --host, too")
    names = tuple(dict.fromkeys((*hosts, *own, *LOOPBACK)))  # its own processes connect to the server by these names
    free = free_ports(len(sites) + 1)
    site_ports = (9100,) * len(sites) if hosts else tuple(free[1:])
    deployment = Deployment(tuple(sites), names, port or (8443 if hosts else free[0]), site_ports, bind)
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)
    _write(folder / ".gitignore", "*\n")
    save(folder, deployment)
    _write(folder / "README.md", files.readme(names[0], deployment.port, bind, sites))
    certificate = _server(folder, deployment)
    _private(folder / "sites")
    for i, name in enumerate(sites):
        write_site(folder / "sites" / name, deployment, site_ports[i], i, certificate)
    trust.write(folder, sites)
    _app(folder, settings or {}, seed, len(sites))
    for name, text in (modules or {}).items():
        _write(folder / "app" / f"{name}.py", text)
    approve(folder, approval.build(folder / "app"))
    return deployment


def check_names(sites: Sequence[str]) -> None:
    """Refuse names that cannot be those of sites, or that are not different."""
    for name in sites:
        if not NAME.fullmatch(name) or [s.lower() for s in sites].count(name.lower()) > 1:
            raise DeployError(
                f"a site is called {name!r}; expected different names of letters, digits, dots and hyphens, with at "
                "most 63 characters"
            )


def save(folder: Path, deployment: Deployment) -> None:
    """Store what `load` reads."""
    write_atomically(folder / FILE, json.dumps(asdict(deployment), indent=2).encode() + b"\n")
    (folder / FILE).chmod(0o600)
    if deployment.one_machine:
        _write(folder / services.COMPOSE, services.whole_compose(deployment.sites))


def approve(folder: Path, app: bytes) -> None:
    """Approve an app at the server, and at the sites of this machine. Sites elsewhere get it as a proposal."""
    deployment = load(folder)
    approval.approve(folder / "server", app)
    for name in deployment.sites:
        site = folder / "sites" / name
        if deployment.one_machine:
            approval.approve(site, app)
        elif site.exists():
            approval.propose(site, app)


def load(folder: Path) -> Deployment:
    """The deployment in a folder that `make` wrote."""
    try:
        content = json.loads((folder / FILE).read_text())
        sites, hosts, site_ports = (tuple(content[key]) for key in ("sites", "hosts", "site_ports"))
        removed = dict(content.get("removed", {}))
        return Deployment(sites, hosts, content["port"], site_ports, content["bind"], removed)
    except (OSError, ValueError, KeyError):
        required(folder, "deploy", "deployment", error=DeployError)
        raise DeployError(f"{folder / FILE} is damaged; restore it from a backup") from None


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


def _address(bind: str) -> str:
    try:
        return str(ipaddress.IPv4Address(bind))
    except ValueError:
        raise DeployError(
            f"a server listens on an IPv4 address of its own, or on 0.0.0.0 for all: got {bind}"
        ) from None


def _server(folder: Path, deployment: Deployment) -> bytes:
    server, authority = _private(folder / "server"), _private(folder / "authority")
    address = files.own_address(deployment.bind, deployment.port)
    certificate = keys.write_certificates(authority, server, deployment.hosts)
    keys.write_control_token(_private(server / "flwr"), address)
    _write(server / "start.sh", files.superlink(deployment.bind, deployment.port), executable=True)
    _write(server / "register.sh", files.register(address), executable=True)
    _write(server / "run.sh", files.start_run(address), executable=True)
    _write(server / services.SERVER, services.server_unit(deployment.one_machine))
    _write(server / services.SUPERVISOR, services.supervisor_unit(deployment.one_machine))
    _write(server / services.COMPOSE, services.server_compose())
    _write(server / ".dockerignore", "*\n")  # no key gets into an image
    return certificate


def write_site(  # its place in the deployment is two numbers
    site: Path, deployment: Deployment, port: int, partition: int, certificate: bytes, public: bytes | None = None
) -> None:
    """The folder of a site. public: of the key that the site has made itself; else one is made."""
    _private(site)
    if public is None:
        keys.write_node_key(site)
    else:
        keys.write_secret(site / "node.pub", public)
    keys.write_secret(site / "ca.crt", certificate)
    n_clients = max(len(deployment.sites) + len(deployment.removed), partition + 1)
    script = files.supernode(deployment.hosts[0], deployment.port, port, partition, n_clients)
    _write(site / "start.sh", script, executable=True)
    _write(site / "site.config", "")
    _write(site / services.SITE, services.site_unit(deployment.one_machine))
    _write(site / services.COMPOSE, services.site_compose(site.name))
    _write(site / ".dockerignore", "*\n")
    about = {"name": site.name, "server": f"{deployment.hosts[0]}:{deployment.port}", "partition": partition}
    _write(site / SITE, json.dumps({**about, "sites": n_clients}, indent=2) + "\n")


def _app(folder: Path, settings: Mapping[str, Mapping[str, Any]], seed: int, n_sites: int) -> None:
    everybody = {"minimum-clients": n_sites}
    chosen = {**DEFAULTS, **settings, "federation": {**FEDERATION, **everybody, **settings.get("federation", {})}}
    _write(_private(folder / "app") / "pyproject.toml", files.app(chosen, seed))


FEDERATION: Final[Mapping[str, Any]] = {
    "folder": "federation",  # in server/, where the server is started
    "task": "pacfl.flower.digits",
    "quorum": "majority",
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
