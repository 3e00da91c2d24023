"""What the operator of a server has decided about sites: which keys replace others, and which sites were removed.

It is a file in the server's folder. A running federation reads it again whenever it looks for connected sites, so that
nothing has to be restarted. Keys are named by their fingerprints.
"""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from pacfl.errors import DeployError
from pacfl.files import write_atomically

FILE: Final = "sites.json"


@dataclass(frozen=True)
class SiteChanges:
    """Decisions since the deployment was made."""

    replaced: tuple[tuple[str, str], ...] = ()  # (former key, key), in the order of the decisions
    removed: frozenset[str] = frozenset()  # keys

    def retired(self) -> set[str]:
        """Keys that another one has taken the place of, and that no site may use any more."""
        retired: set[str] = set()
        for former, key in self.replaced:
            retired.add(former)
            retired.discard(key)
        return retired

    def replace(self, former: str, key: str) -> "SiteChanges":
        """Another key for the same client."""
        return replace(self, replaced=(*self.replaced, (former, key)), removed=self.removed - {former, key})

    def remove(self, key: str) -> "SiteChanges":
        """A site leaves: nobody waits for it."""
        return replace(self, removed=self.removed | {key})

    def admit(self, key: str) -> "SiteChanges":
        """A site is there, perhaps again."""
        return replace(self, removed=self.removed - {key})


def read(server: Path) -> SiteChanges:
    """The decisions in the folder of a server; none without a file."""
    path = server / FILE
    try:
        content = json.loads(path.read_bytes())
        pairs = tuple((str(former), str(key)) for former, key in content["replaced"])
        return SiteChanges(pairs, frozenset(map(str, content["removed"])))
    except FileNotFoundError:
        return SiteChanges()
    except (ValueError, KeyError, TypeError):
        raise DeployError(
            f"{path} is damaged; restore it from a backup: it says which keys are the same site"
        ) from None


def write(server: Path, changes: SiteChanges) -> None:
    """Store the decisions."""
    content = {"replaced": [list(pair) for pair in changes.replaced], "removed": sorted(changes.removed)}
    write_atomically(server / FILE, json.dumps(content, indent=2).encode() + b"\n")
    (server / FILE).chmod(0o600)
