"""The life of a site: added, removed, given another key.

The folder is that of a deployment, or that of a server alone, where the operator has public keys only.
"""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from pacfl.errors import DeployError, PacflError
from pacfl.flower import settings
from pacfl.flower.client_registry import fingerprint
from pacfl.flower.deploy import approval, keys, layout, loopback, processes, registration, roster, trust
from pacfl.flower.deploy.registration import ServerDownError

KEY: Final = "node.key"
PUBLIC: Final = "node.pub"
SITE_PORT: Final = 9100


@dataclass(frozen=True)
class Outcome:
    """What was done to a site, and what is left to do."""

    name: str
    fingerprint: str | None  # of the key that counts now
    folder: Path | None = None  # of the site, if it is here
    at_server: bool = True  # whether the server knows
    former: tuple[str, ...] = ()  # keys that count no more
    next_steps: tuple[str, ...] = ()  # for the operator


def add(folder: Path, name: str, key: Path | None = None) -> Outcome:
    """Make the folder of another site and register its key; a site that was removed returns as the same client.

    key: the public key that the site has made itself; else one is made, or found in the folder of a removed site.
    """
    layout.check_names([name])
    if _is_server(folder):
        if key is None:
            raise DeployError(
                f"{folder} is the folder of a server: give the public key of the site with --key node.pub. Its folder "
                "is made where the deployment was made, by: pacfl deploy add-site DEPLOYMENT NAME"
            )
        public = registration.public_key(key)
        roster.admit(folder, public, name)
        return Outcome(name, fingerprint(public), next_steps=_to_trust(folder, name, fingerprint(public)))
    deployment = layout.load(folder)
    layout.check_names([*deployment.sites, name])
    site = folder / "sites" / name
    with _removed_on_error(site):
        port = _prepare(folder, deployment, name, key)
        public = registration.public_key(site / PUBLIC)
        steps = _admit(folder, deployment, name, public)
    removed = {n: p for n, p in deployment.removed.items() if n != name}
    sites, ports = (*deployment.sites, name), (*deployment.site_ports, port)
    layout.save(folder, replace(deployment, sites=sites, site_ports=ports, removed=removed))
    trust.write(folder, sites)
    here = f"start it: pacfl deploy up {folder}"
    send = f"send {site} to the site, over a channel that you trust, and to nobody else"
    last = (here,) if deployment.one_machine else (send, *_to_trust(folder / "server", name, fingerprint(public)))
    return Outcome(name, fingerprint(public), site, not steps, next_steps=(*steps, *last))


def remove(folder: Path, name: str) -> Outcome:
    """Unregister a site by its name, and wait for it no more. Its folder, and what its cluster learned, remain."""
    if _is_server(folder):
        return Outcome(name, None, former=roster.expel(folder, name))
    deployment = layout.load(folder)
    if name not in deployment.sites:
        raise roster.unknown(name, list(deployment.sites))
    former: tuple[str, ...] = ()
    steps: tuple[str, ...] = ()
    try:
        former = roster.expel(folder / "server", name)
    except ServerDownError as error:
        if deployment.one_machine:
            raise _down(folder, error) from None
        steps = (f"on the machine of the server: pacfl deploy remove-site server {name}",)
    if loopback.site(name) in processes.running(folder):
        processes.stop(folder, loopback.site(name))
    i = deployment.sites.index(name)
    sites, ports = ((*values[:i], *values[i + 1 :]) for values in (deployment.sites, deployment.site_ports))
    removed = {**deployment.removed, name: deployment.site_ports[i]}
    layout.save(folder, replace(deployment, sites=sites, site_ports=ports, removed=removed))
    trust.write(folder, sites)
    return Outcome(name, None, _existing(folder / "sites" / name), not steps, former, steps)


def rekey(folder: Path, name: str, key: Path | None = None) -> Outcome:
    """Give a site another key. It remains the same client, because the operator says so: cluster and memory stay.

    key: the public key that the site has made itself; else one is made in the site's folder, if that is here.
    """
    server, site = (folder, None) if _is_server(folder) else (folder / "server", folder / "sites" / name)
    deployment = None if site is None else layout.load(folder)
    if deployment is not None and name not in deployment.sites:
        raise roster.unknown(name, list(deployment.sites))
    if key is None and (site is None or not (site / KEY).exists()):
        raise DeployError(
            f"the folder of {name} with its {KEY} is not in {folder}; let the site make another key, by: "
            f"{registration.CREATE}; then give its public half: --key {PUBLIC}"
        )
    try:
        roster.check_registered(server, name)
        with _new_key(site, key) as public:
            former = roster.exchange(server, name, registration.public_key(public))
            new = fingerprint(registration.public_key(public))
            if site is not None and deployment is not None and site.exists():
                _take_over(folder, name, public, with_secret=key is None)
                trust.write(folder, deployment.sites)
    except ServerDownError as error:
        raise _down(folder, error) from None
    restart = () if key is None else (f"the site starts again with the key {new}",)
    others = () if deployment is not None and deployment.one_machine else _to_trust(server, name, new)
    existing = None if site is None else _existing(site)
    return Outcome(name, new, existing, former=former, next_steps=(*restart, *others))


def _to_trust(server: Path, name: str, key: str) -> tuple[str, ...]:
    """With secure sums, what all sites have to do about a new key: the server cannot change whom they trust."""
    try:
        _, run = settings.read(approval.settings((server / approval.LAST).read_bytes()))
        secure = run.aggregation.secure
    except (OSError, PacflError):
        secure = True  # perhaps: what the app needs may be on another machine
    return (f"where sums are secure, at every site ({name}, too): pacfl deploy trust . {name} {key}",) if secure else ()


def _is_server(folder: Path) -> bool:
    """Whether a folder is that of a server alone."""
    return not (folder / layout.FILE).exists() and (folder / "flwr" / keys.CREDENTIALS).exists()


def _prepare(folder: Path, deployment: layout.Deployment, name: str, key: Path | None) -> int:
    """The folder of a site, unless it is there from before it was removed; its port."""
    site, port = folder / "sites" / name, SITE_PORT
    if (site / PUBLIC).exists() and name in deployment.removed:
        if key is not None and registration.public_key(key) != registration.public_key(site / PUBLIC):
            raise DeployError(
                f"{site} has another key than {key}; leave out --key to let {name} return as the same client, and give "
                f"it the other key afterwards: pacfl deploy rekey {folder} {name} --key {key}"
            )
        return deployment.removed[name]
    if site.exists():
        raise DeployError(f"{site} exists already; move it away: keys are never overwritten")
    if deployment.one_machine:
        (port,) = layout.free_ports(1)
    authority = folder / "server" / "ca.crt"
    if not authority.exists():
        raise DeployError(f"{authority} is missing, without which a site cannot know the server; copy it from there")
    partition = len(deployment.sites) + len(deployment.removed)
    public = None if key is None else key.read_bytes() if registration.public_key(key) else None
    layout.write_site(site, deployment, port, partition, authority.read_bytes(), public)
    if (app := folder / "server" / approval.LAST).exists():
        (approval.approve if deployment.one_machine else approval.propose)(site, app.read_bytes())
    return port


def _admit(folder: Path, deployment: layout.Deployment, name: str, public: bytes) -> tuple[str, ...]:
    """Register a key if the server runs here; else what to do."""
    server = folder / "server"
    try:
        roster.admit(server, public, name)
    except ServerDownError:
        roster.refuse_retired(server, public)
        if deployment.one_machine:  # `up` registers all sites
            roster.welcome(server, public)
            return ()
        return (f"on the machine of the server: pacfl deploy add-site server {name} --key {PUBLIC}",)
    return ()


@contextmanager
def _new_key(site: Path | None, key: Path | None) -> Iterator[Path]:
    """The public half of the key that takes over: the one that is given, or that of a pair beside the former one."""
    if key is not None or site is None:
        assert key is not None
        yield key
        return
    part = site / "key.part"
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(mode=0o700)
    try:
        keys.write_node_key(part)
        yield part / PUBLIC
    finally:
        shutil.rmtree(part)


def _take_over(folder: Path, name: str, public: Path, with_secret: bool) -> None:
    """Put a new key in the place of the former one, and start the site again if it runs here."""
    site, runs = folder / "sites" / name, loopback.site(name) in processes.running(folder)
    if runs:
        processes.stop(folder, loopback.site(name))
    if with_secret:
        (public.parent / KEY).replace(site / KEY)
    else:  # it is at the site
        (site / KEY).unlink(missing_ok=True)
    (site / PUBLIC).unlink(missing_ok=True)
    keys.write_secret(site / PUBLIC, public.read_bytes())
    if runs and with_secret:
        loopback.start_site(folder, name)


@contextmanager
def _removed_on_error(folder: Path) -> Iterator[None]:
    existed = folder.exists()
    try:
        yield
    except BaseException:
        if not existed:
            shutil.rmtree(folder, ignore_errors=True)
        raise


def _existing(folder: Path) -> Path | None:
    return folder if folder.exists() else None


def _down(folder: Path, error: ServerDownError) -> DeployError:
    return DeployError(f"{error}; start it first (pacfl deploy up {folder}), or give the command where it runs")
