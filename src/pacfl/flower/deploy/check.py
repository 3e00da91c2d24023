"""`pacfl deploy check`: is the folder of a site ready for the first round? Nothing is changed, nothing is trained."""

import io
import json
import platform
import socket
import ssl
import sys
import tempfile
import time
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import chdir, contextmanager
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from http.client import HTTPException, HTTPSConnection
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from cryptography.hazmat.primitives.serialization import load_ssh_private_key
from flwr.app import Context, RecordDict
from flwr.common.config import parse_config_args
from flwr.common.constant import TIMESTAMP_TOLERANCE
from flwr.supercore.primitives.asymmetric import public_key_to_bytes

from pacfl.errors import DeployError, PacflError
from pacfl.flower import health, settings
from pacfl.flower.client_registry import fingerprint
from pacfl.flower.deploy import approval, keys, layout, registration, trust
from pacfl.flower.settings import DeploymentSettings
from pacfl.flower.site_checks import Check, of_site, ok, problem, warning
from pacfl.privacy.limits import FEWEST
from pacfl.secure.identity import read_trusted
from pacfl.signatures.keys import key_id, read_key

FLOWER: Final = ((1, 41), (1, 43))  # from the first on, and before the second
SECONDS: Final = 10.0  # for a connection
CLOCK: Final = 30.0  # seconds of difference that somebody should look at
LONGEST_PATH: Final = 89  # characters, of the folder of a site: those of a Unix socket are limited


@dataclass(frozen=True)
class Place:
    """What `site.json` says."""

    name: str
    server: str  # address
    partition: int
    sites: int


def check(folder: Path) -> list[Check]:
    """All that can be known of a site before it is started."""
    folder = folder.absolute()
    place = _place(folder)
    return [*_versions(), *_key(folder), *_disk(folder), *_server(folder, place), *_app(folder, place)]


def _place(folder: Path) -> Place:
    try:
        return Place(**json.loads((folder / layout.SITE).read_bytes()))
    except (OSError, ValueError, TypeError):
        raise DeployError(
            f"{folder} is not the folder of a site: it has no {layout.SITE}; expected sites/NAME of a deployment, or "
            "its copy at the site"
        ) from None


def _versions() -> Iterator[Check]:
    names = ("pacfl", "flwr", "torch")
    what = f"Python {platform.python_version()}, " + ", ".join(f"{name} {version(name)}" for name in names)
    flower = tuple(int(part) for part in version("flwr").split(".")[:2])
    if FLOWER[0] <= flower < FLOWER[1]:
        yield ok("versions", f"{what}; compare them with those of the server")
    else:
        yield problem("versions", f"{what}; pacfl needs flwr 1.41 or 1.42: pip install 'pacfl[flower]'")


def _key(folder: Path) -> Iterator[Check]:
    path = folder / "node.key"
    if not path.exists():
        yield problem("key", f"{path} is missing; make it in {folder} by: {registration.CREATE}")
        return
    try:
        private = load_ssh_private_key(path.read_bytes(), None)
        public: Any = private.public_key()
        own, known = public_key_to_bytes(public), registration.public_key(folder / "node.pub")
    except (ValueError, TypeError, PacflError) as error:
        yield problem("key", f"{path} and node.pub cannot be read: {error}")
        return
    if own != known:
        yield problem("key", f"node.pub is not of node.key: write it by: ssh-keygen -y -f {path} > node.pub")
    elif path.stat().st_mode & 0o077:
        yield problem("key", f"others can read {path}: chmod 600 {path}")
    else:
        yield ok("key", f"{fingerprint(own)}; the server's operator should see the same")


def _disk(folder: Path) -> Iterator[Check]:
    full = list(health.of_disk(folder))
    yield from (problem("disk", one.what) for one in full)
    if not full:
        yield ok("disk", "there is room")
    if len(str(folder.absolute())) > LONGEST_PATH:
        yield warning(
            "disk", f"the path of {folder.absolute()} is longer than {LONGEST_PATH} characters: rounds are slow"
        )


def _server(folder: Path, place: Place) -> Iterator[Check]:
    """Whether the server is there, is the right one, and has the same time."""
    host, _, port = place.server.rpartition(":")
    try:
        trusting = keys.trusting(folder / "ca.crt")
        connection = HTTPSConnection(host, int(port), timeout=SECONDS, context=trusting)
        connection.request("GET", "/health", headers={"connection": "close"})
        ends = str((connection.sock.getpeercert() or {})["notAfter"])
        reply = connection.getresponse()
        connection.close()
    except ssl.SSLCertVerificationError as error:
        yield problem("server", f"the certificate of {place.server} is not accepted: {error.verify_message}; {_ADVICE}")
        return
    except (OSError, HTTPException, PacflError) as error:
        why = "its name is not known" if isinstance(error, socket.gaierror) else error
        yield problem(
            "server", f"{place.server} cannot be reached ({why}): is it started, and does a firewall let it pass?"
        )
        return
    days = (ssl.cert_time_to_seconds(ends) - time.time()) / 86_400
    if days < health.CERTIFICATE_DAYS:
        yield warning("server", f"the certificate of {place.server} ends in {days:.0f} days; its operator renews it")
    else:
        yield ok("server", f"{place.server} is trusted; its certificate is valid for {days:.0f} days")
    yield _clock(reply.getheader("date"))


_ADVICE: Final = (
    "its names must include the one in start.sh, and ca.crt must be that of this federation; if it has ended, the "
    "server's operator renews it (pacfl deploy renew-certificate)"
)


def _clock(date: str | None) -> Check:
    if date is None:
        return warning("clock", "the server does not say what time it is")
    ahead = time.time() - parsedate_to_datetime(date).timestamp()
    what = f"{abs(ahead):.0f} s {'ahead of' if ahead > 0 else 'behind'} the server's"
    if abs(ahead) > TIMESTAMP_TOLERANCE:
        return problem("clock", f"{what}: signatures are accepted within {TIMESTAMP_TOLERANCE} s; set it by NTP")
    return warning("clock", f"{what}; set it by NTP") if abs(ahead) > CLOCK else ok("clock", what)


def _app(folder: Path, place: Place) -> Iterator[Check]:
    """The approved app with the data of this site; code that nobody approved does not run."""
    path = folder / approval.LAST
    if not path.exists() or approval.digest(path.read_bytes()) not in approval.approved(folder):
        yield problem("app", f"no app is approved, so data and model were not looked at: pacfl deploy approve {folder}")
        return
    content = path.read_bytes()
    yield ok("app", f"approved, SHA-256 {approval.digest(content)}")
    try:
        node_config = parse_config_args([(folder / "site.config").read_text()])
    except Exception as error:  # click's, for whom it is an error of the command line
        yield problem("site.config", f'cannot be read: {error}; expected lines such as data="/srv/tables"')
        return
    with _unpacked(content, folder):
        try:
            deployment, run = settings.read(approval.settings(content))
        except PacflError as error:
            yield problem("settings", f"{error}; the server's operator corrects app/pyproject.toml")
            return
        if run.aggregation.secure:
            yield _trust(folder, place, deployment)
        yield from _signature_key(node_config)
        own = {"partition-id": place.partition, "num-partitions": place.sites, **node_config}
        yield from of_site(deployment.task, run, Context(0, 0, own, RecordDict(), {}))


def _trust(folder: Path, place: Place, deployment: DeploymentSettings) -> Check:
    """With secure sums: whether this site would be in one, with itself and with the others."""
    path, add = folder / trust.FILE, f"pacfl deploy trust {folder}"
    try:
        trusted, own = read_trusted(path), fingerprint(registration.public_key(folder / "node.pub"))
    except PacflError as error:
        return problem(trust.FILE, f"{error}; without it this site is in no sum: restore it, or {add} NAME KEY")
    if path.stat().st_mode & 0o022:
        return problem(trust.FILE, f"others can write {path}, and add sites to sums: chmod 600 {path}")
    if own not in trusted:
        return problem(trust.FILE, f"it lacks this site's own key {own}: {add} {place.name} {folder / 'node.pub'}")
    n, awaited = len(trusted), max(deployment.minimum_clients, FEWEST)
    names = ", ".join(sorted(trusted.values()))
    if n < awaited:
        what = f"{n} of at least {awaited} sites are in it ({names}), and sums with others are refused"
        return (problem if n < FEWEST else warning)(trust.FILE, f"{what}; for each of these: {add} NAME KEY")
    twice = [name for name, times in Counter(trusted.values()).items() if times > 1]
    if twice:
        what = f"{', '.join(twice)} has several keys in it; delete those that were replaced"
        return warning(trust.FILE, what)
    return ok(trust.FILE, f"{n} sites: {names}; compare their fingerprints over another channel")


def _signature_key(node_config: Mapping[str, Any]) -> Iterator[Check]:
    """The key of the clients that hides directions, where site.config names one."""
    if (named := node_config.get("signature-key")) is None:
        return
    path = Path(str(named))
    try:
        key = read_key(path)
    except PacflError as error:
        yield problem("signature-key", f"{error}; site.config says where it is")
        return
    if path.stat().st_mode & 0o077:
        yield problem("signature-key", f"others can read {path}: chmod 600 {path}")
    else:
        yield ok("signature-key", f"key {key_id(key)}; all sites need the same one")


@contextmanager
def _unpacked(content: bytes, site: Path) -> Iterator[None]:
    """The files of an app, where its modules are found; paths are those of the site, as when it runs."""
    known = set(sys.modules)
    with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(io.BytesIO(content)) as archive, chdir(site):
        archive.extractall(folder)
        sys.path.insert(0, folder)
        try:
            yield
        finally:
            sys.path.remove(folder)
            for name in set(sys.modules) - known:  # another app may have modules of the same names
                if str(getattr(sys.modules[name], "__file__", None) or "").startswith(folder):
                    del sys.modules[name]
