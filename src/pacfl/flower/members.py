"""Who is who: the nodes of a federation, by what they cannot choose."""

import hashlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from flwr.app import Message as Envelope
from flwr.serverapp import Grid

from pacfl.federation.message import ClientId
from pacfl.flower import wire
from pacfl.flower.backend import answers
from pacfl.flower.message_types import IDENTITY

LONGEST_PAUSE = 8  # rounds


@dataclass(eq=False)
class Members:
    """Numbers of clients by identity, in the order in which they came; nobody's number ever changes."""

    number_of: dict[str, ClientId] = field(default_factory=dict)
    nodes: dict[ClientId, int] = field(default_factory=dict)  # where those who are here now are reached
    failures: dict[ClientId, int] = field(default_factory=dict)  # introductions in a row that came to nothing
    pause_until: dict[ClientId, int] = field(default_factory=dict)  # round in which a failed newcomer is asked again

    def meet(self, nodes: Mapping[str, int]) -> None:
        """See who is here: nodes by identity."""
        for identity in sorted(nodes):
            self.number_of.setdefault(identity, len(self.number_of))
        self.nodes.clear()
        self.nodes.update({self.number_of[identity]: node for identity, node in nodes.items()})

    def present(self, t: int) -> list[ClientId]:
        """Clients who are here, but for newcomers who were asked in vain a short while ago."""
        return sorted(c for c in self.nodes if self.pause_until.get(c, 0) <= t)

    def introduced(self, t: int, asked: set[ClientId], admitted: set[ClientId]) -> None:
        """Ask whoever did not introduce itself again, but each time later: it holds up everybody."""
        for c in asked & admitted:
            self.failures.pop(c, None)
            self.pause_until.pop(c, None)
        for c in asked - admitted:
            self.failures[c] = self.failures.get(c, 0) + 1
            self.pause_until[c] = t + 1 + min(2 ** (self.failures[c] - 1), LONGEST_PAUSE)


def by_key(grid: Grid) -> dict[str, int]:
    """Nodes by the fingerprint of the public key with which they signed in."""
    return {fingerprint(node.public_key): node.node_id for node in grid.get_nodes() if node.public_key}


def fingerprint(public_key: bytes) -> str:
    """A name for a key: the first 32 hexadecimal digits of its SHA-256, too many to find another key for."""
    return hashlib.sha256(public_key).hexdigest()[:32]


@dataclass(eq=False)
class ByPartition:
    """Nodes by the partition that they claim, for simulations; a node is asked once."""

    known: dict[int, str] = field(default_factory=dict)

    def __call__(self, grid: Grid) -> dict[str, int]:
        """Ask those who are new."""
        nodes = list(grid.get_node_ids())
        about: dict[str, Any] = {"round": 0, "client": 0}
        sent = {}
        for node in (n for n in nodes if n not in self.known):
            for one in grid.push_messages([Envelope(wire.pack({}, about), node, IDENTITY, ttl=60.0)]):
                sent[one] = node
        for one, reply in answers(grid, set(sent), 60.0, 0.1).items():
            if not isinstance(reply, str):
                self.known[sent[one]] = f"partition-{int(str(wire.about(reply)['partition'])):06d}"
        return {self.known[n]: n for n in nodes if n in self.known}


def wait_for(
    members: Members, look: Callable[[], Mapping[str, int]], t: int, minimum: int, waiting: Callable[[], None]
) -> list[ClientId]:
    """Clients who are here, once there are enough of them."""
    while True:
        members.meet(look())
        present = members.present(t)
        if len(present) >= minimum:
            return present
        waiting()
        time.sleep(1.0)
