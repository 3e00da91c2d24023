"""Clients and nodes: a client's identity is what it cannot choose, its node may change."""

import re
import time
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_public_key
from flwr.app import Message as Envelope
from flwr.serverapp import Grid

from pacfl.exporting import site_key
from pacfl.federation.message import ClientId
from pacfl.flower import site_changes, wire
from pacfl.flower.inbox import collect_replies
from pacfl.flower.message_types import IDENTITY
from pacfl.secure.identity import fingerprint as fingerprint_of

LONGEST_PAUSE = 8  # rounds
FIRST_WAIT, LONGEST_WAIT = 10.0, 300.0  # seconds, where a round waits for a client that pauses
MOST_SILENT = 3  # rounds in a row
NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")  # of a site


@dataclass(frozen=True)
class Node:
    """A node, with the name under which the operator of the server registered its key."""

    id: int
    name: str = ""


@dataclass(eq=False)
class ClientRegistry:
    """Ids of clients by identity, in the order in which they came. An id never changes, nor does a name."""

    client_of: dict[str, ClientId] = field(default_factory=dict)
    names: dict[ClientId, str] = field(default_factory=dict)
    node_of: dict[ClientId, int] = field(default_factory=dict)  # where each client was last
    nodes: dict[ClientId, int] = field(default_factory=dict)  # of the clients that are connected
    failures: dict[ClientId, int] = field(default_factory=dict)  # of joining, in a row
    silent: dict[ClientId, int] = field(default_factory=dict)  # rounds in a row without a reply until the deadline
    pause_until: dict[ClientId, int] = field(default_factory=dict)  # round in which a client is asked again
    ask_again: dict[ClientId, float] = field(default_factory=dict)  # or when, if there is no round without it
    paused: set[ClientId] = field(default_factory=set)  # by the operators of their sites
    server: Path | None = None  # the folder with what the operator has decided about sites
    removed: set[ClientId] = field(default_factory=set)  # who will not return: nobody waits for them
    n_removed: int = 0  # with sites that were never connected

    def update(self, nodes: Mapping[str, Node]) -> None:
        """Note the connected nodes, by identity. Those that come together get their ids in the order of their names."""
        changes = site_changes.SiteChanges() if self.server is None else site_changes.read(self.server)
        for former, key in changes.replaced:
            if former in self.client_of and key not in self.client_of:
                self.client_of[key] = self.client_of.pop(former)
        nodes = {identity: nodes[identity] for identity in nodes.keys() - changes.retired()}
        for identity in sorted(nodes, key=lambda i: (_in_order(nodes[i].name), i)):
            client = self.client_of.setdefault(identity, len(self.client_of))
            if client not in self.names:
                name = nodes[identity].name or str(client)
                self.names[client] = f"{name}-{client}" if name in self.names.values() else name
        self.nodes.clear()
        self.nodes.update({self.client_of[identity]: node.id for identity, node in nodes.items()})
        self.node_of.update(self.nodes)
        gone = changes.removed - nodes.keys()  # a key that is connected was registered again
        self.removed, self.n_removed = {self.client_of[key] for key in gone & self.client_of.keys()}, len(gone)

    def described(self) -> dict[str, dict[str, str | int | None]]:
        """What is known of every client: its name, the fingerprint of its key, and Flower's id of its node."""
        return {
            str(c): {"name": self.names[c], "fingerprint": identity, "node": self.node_of.get(c)}
            for identity, c in self.client_of.items()
        }

    def key_of(self, client: ClientId) -> str | None:
        """The fingerprint of a client's key; None if its identity is no key."""
        found = next((identity for identity, c in self.client_of.items() if c == client), None)
        return found if found is not None and found.startswith(site_key.HASH) else None

    @classmethod
    def restored(cls, described: Mapping[str, Mapping[str, Any]], server: Path | None = None) -> "ClientRegistry":
        """The registry that `described` describes. server: its folder, with the decisions of its operator."""
        clients = {int(c): about for c, about in described.items()}
        return cls(
            {str(about["fingerprint"]): c for c, about in clients.items()},
            {c: str(about["name"]) for c, about in clients.items()},
            {c: int(about["node"]) for c, about in clients.items() if about["node"] is not None},
            server=server,
        )

    def available(self, t: int) -> list[ClientId]:
        """Connected clients, without those that pause or are paused."""
        return sorted(c for c in self.nodes.keys() - self.paused if self.pause_until.get(c, 0) <= t)

    def due(self, t: int) -> list[ClientId]:
        """Connected clients that pause, but have done so for long enough where rounds wait for them."""
        now = time.monotonic()
        connected = self.nodes.keys() - self.paused
        return sorted(c for c in connected if self.pause_until.get(c, 0) > t and self.ask_again[c] <= now)

    def away(self) -> list[ClientId]:
        """Clients that are not connected, without those that were removed."""
        return sorted(set(self.client_of.values()) - self.nodes.keys() - self.removed)

    def joined(self, t: int, asked: Set[ClientId], admitted: Set[ClientId]) -> None:
        """Note who joined. A client that failed pauses, each time longer: it delays everybody."""
        for c in asked & admitted:
            self.failures.pop(c, None)
            self._resume(c)
        for c in asked - admitted - self.paused:
            self.failures[c] = self.failures.get(c, 0) + 1
            self._pause(t, c, self.failures[c])

    def replied(self, t: int, asked: Set[ClientId], silent: Set[ClientId]) -> None:
        """Note whose reply did not come until the deadline. A client that is silent again and again pauses, too."""
        for c in asked - silent:
            if self.silent.pop(c, 0) >= MOST_SILENT:
                self._resume(c)
        for c in silent:
            self.silent[c] = self.silent.get(c, 0) + 1
            if self.silent[c] >= MOST_SILENT:
                self._pause(t, c, self.silent[c] - MOST_SILENT + 1)

    def _pause(self, t: int, c: ClientId, times: int) -> None:
        self.pause_until[c] = t + 1 + min(2 ** (times - 1), LONGEST_PAUSE)
        self.ask_again[c] = time.monotonic() + min(FIRST_WAIT * 2 ** (times - 1), LONGEST_WAIT)

    def _resume(self, c: ClientId) -> None:
        self.pause_until.pop(c, None)
        self.ask_again.pop(c, None)


def nodes_by_key(grid: Grid) -> dict[str, Node]:
    """Nodes by the fingerprint of the public key with which they signed in."""
    return {
        fingerprint(node.public_key): Node(node.node_id, node.name if NAME.fullmatch(node.name) else "")
        for node in grid.get_nodes()
        if node.public_key
    }


def fingerprint(public_key: bytes) -> str:
    """The fingerprint of a key in PEM, as `ssh-keygen -l` prints it."""
    line = load_pem_public_key(public_key).public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    return fingerprint_of(line.decode())


def _in_order(name: str) -> str:
    return name.zfill(63) if name.isdigit() else name


@dataclass(eq=False)
class NodesByPartition:
    """Nodes by the partition that they claim, for simulations. A node is asked once."""

    known: dict[int, str] = field(default_factory=dict)

    def __call__(self, grid: Grid) -> dict[str, Node]:
        """Ask new nodes."""
        nodes = list(grid.get_node_ids())
        for node, partition in query_partitions(grid, (n for n in nodes if n not in self.known), 60.0, 0.1).items():
            if isinstance(partition, int):
                self.known[node] = f"partition-{partition:06d}"
        return {self.known[n]: Node(n) for n in nodes if n in self.known}


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
    find_nodes: Callable[[], Mapping[str, Node]],
    t: int,
    minimum: int,
    waiting: Callable[[int, int], None],
) -> tuple[list[ClientId], list[ClientId]]:
    """Clients for round t, once there are enough of them, and those without whom they would be too few.

    The latter have failed before; nobody else has to wait for them longer than they pause. A site that was removed is
    not waited for.
    """
    while True:
        registry.update(find_nodes())
        least = max(minimum - registry.n_removed, 1)
        available = registry.available(t)
        if len(available) >= least:
            return available, []
        due = registry.due(t)
        if len(available) + len(due) >= least:
            return available, due
        waiting(least, len(available))
        time.sleep(1.0)
