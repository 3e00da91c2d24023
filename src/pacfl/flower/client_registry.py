"""Clients and nodes: a client's identity is what it cannot choose, its node may change."""

import hashlib
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from flwr.app import Message as Envelope
from flwr.serverapp import Grid

from pacfl.federation.message import ClientId
from pacfl.flower import wire
from pacfl.flower.inbox import collect_replies
from pacfl.flower.message_types import IDENTITY

LONGEST_PAUSE = 8  # rounds


@dataclass(eq=False)
class ClientRegistry:
    """Ids of clients by identity, in the order in which they came. An id never changes."""

    client_of: dict[str, ClientId] = field(default_factory=dict)
    nodes: dict[ClientId, int] = field(default_factory=dict)  # of the clients that are connected
    failures: dict[ClientId, int] = field(default_factory=dict)  # of joining, in a row
    pause_until: dict[ClientId, int] = field(default_factory=dict)  # round in which a client may join again

    def update(self, nodes: Mapping[str, int]) -> None:
        """Note the connected nodes, by identity."""
        for identity in sorted(nodes):
            self.client_of.setdefault(identity, len(self.client_of))
        self.nodes.clear()
        self.nodes.update({self.client_of[identity]: node for identity, node in nodes.items()})

    def available(self, t: int) -> list[ClientId]:
        """Connected clients, without those that have just failed to join."""
        return sorted(c for c in self.nodes if self.pause_until.get(c, 0) <= t)

    def joined(self, t: int, asked: set[ClientId], admitted: set[ClientId]) -> None:
        """Note who joined. A client that failed pauses, each time longer: it delays everybody."""
        for c in asked & admitted:
            self.failures.pop(c, None)
            self.pause_until.pop(c, None)
        for c in asked - admitted:
            self.failures[c] = self.failures.get(c, 0) + 1
            self.pause_until[c] = t + 1 + min(2 ** (self.failures[c] - 1), LONGEST_PAUSE)


def nodes_by_key(grid: Grid) -> dict[str, int]:
    """Nodes by the fingerprint of the public key with which they signed in."""
    return {fingerprint(node.public_key): node.node_id for node in grid.get_nodes() if node.public_key}


def fingerprint(public_key: bytes) -> str:
    """The first 32 hexadecimal digits of a key's SHA-256: no second key with the same can be found."""
    return hashlib.sha256(public_key).hexdigest()[:32]


@dataclass(eq=False)
class NodesByPartition:
    """Nodes by the partition that they claim, for simulations. A node is asked once."""

    known: dict[int, str] = field(default_factory=dict)

    def __call__(self, grid: Grid) -> dict[str, int]:
        """Ask new nodes."""
        nodes = list(grid.get_node_ids())
        for node, partition in query_partitions(grid, (n for n in nodes if n not in self.known), 60.0, 0.1).items():
            if isinstance(partition, int):
                self.known[node] = f"partition-{partition:06d}"
        return {self.known[n]: n for n in nodes if n in self.known}


def query_partitions(grid: Grid, nodes: Iterable[int], seconds: float, poll: float) -> dict[int, int | str]:
    """The partition that each node claims, or what went wrong; nodes without a reply are missing."""
    content = wire.pack({}, {"round": 0, "client": 0})
    sent = {
        message: node
        for node in nodes
        for message in grid.push_messages([Envelope(content, node, IDENTITY, ttl=seconds)])
    }
    replies = collect_replies(grid, set(sent), seconds, poll)
    return {sent[m]: r if isinstance(r, str) else int(str(wire.about(r)["partition"])) for m, r in replies.items()}


def wait_for_clients(
    registry: ClientRegistry,
    find_nodes: Callable[[], Mapping[str, int]],
    t: int,
    minimum: int,
    waiting: Callable[[], None],
) -> list[ClientId]:
    """Clients for round t, once there are enough of them."""
    while True:
        registry.update(find_nodes())
        available = registry.available(t)
        if len(available) >= minimum:
            return available
        waiting()
        time.sleep(1.0)
