"""Whom a site trusts in a secure sum: the fingerprints in its file trusted-sites, which the server cannot change."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from pacfl.errors import DeployError, SecureAggregationError
from pacfl.files import write_atomically
from pacfl.secure.identity import FINGERPRINT, fingerprint, read_trusted

FILE: Final = "trusted-sites"
PUBLIC: Final = "node.pub"
HEADER: Final = """\
# With secure = true this site is in sums with these sites only. Compare fingerprints over another channel than the
# server: ssh-keygen -lf node.pub prints them there. 'pacfl deploy trust FOLDER NAME node.pub' adds one.
"""


def write(folder: Path, sites: Sequence[str]) -> None:
    """Let the sites of a deployment, whose folders are here, trust each other."""
    keys = {name: folder / "sites" / name / PUBLIC for name in sites}
    trusted = {fingerprint(path.read_text()): name for name, path in keys.items() if path.exists()}
    for name in sites:
        if (site := folder / "sites" / name).exists():
            _write(site / FILE, trusted)


def add(site: Path, name: str, key: str) -> str:
    """Let a site trust a key, of which the file or the fingerprint is given, in place of others of this name."""
    if not (site / FILE).exists():
        raise DeployError(f"{site} is not the folder of a site: it has no {FILE}")
    try:
        found = key if FINGERPRINT.fullmatch(key) else fingerprint(Path(key).read_text(encoding="utf-8"))
        trusted = read_trusted(site / FILE)
    except (OSError, ValueError, SecureAggregationError) as error:
        raise DeployError(
            f"expected the file of a public key, or a fingerprint SHA256:..., got {key}: {error}"
        ) from None
    _write(site / FILE, {**{f: n for f, n in trusted.items() if n != name}, found: name})
    return found


def _write(path: Path, trusted: Mapping[str, str]) -> None:
    lines = "".join(f"{found} {name}\n" for found, name in trusted.items())
    write_atomically(path, f"{HEADER}{lines}".encode())
    path.chmod(0o600)
