"""Clients that their operators have paused: asked now and then whether they still are, while others train."""

import time
from dataclasses import dataclass, field
from typing import Final

from flwr.app import Message as Envelope
from flwr.serverapp import Grid

from pacfl.federation.message import ClientId
from pacfl.flower import wire
from pacfl.flower.client_registry import ClientRegistry
from pacfl.flower.event_log import info
from pacfl.flower.inbox import IS_PAUSED, collect_replies
from pacfl.flower.message_types import IDENTITY

PAUSE: Final = 60.0  # seconds between two questions


@dataclass(eq=False)
class Pauses:
    """Nobody waits for the replies: they are looked at when there is time."""

    grid: Grid
    registry: ClientRegistry
    asked: dict[str, ClientId] = field(default_factory=dict)  # by the message
    at: dict[ClientId, float] = field(default_factory=dict)  # when each of them was last asked, or found paused

    def look(self) -> None:
        """Take in what has come, and ask whose turn it is."""
        if self.asked:
            self._take_in()
        now, paused = time.monotonic(), self.registry.paused
        self.at = {client: self.at.get(client, now) for client in paused}
        for client in sorted(paused & self.registry.nodes.keys()):
            if now >= self.at[client] + PAUSE:
                self._ask(client)
                self.at[client] = now

    def _take_in(self) -> None:
        for sent, reply in collect_replies(self.grid, set(self.asked), 0.0, 0.0).items():
            client = self.asked.pop(sent)
            if reply != IS_PAUSED and client in self.registry.paused:
                self.registry.paused.discard(client)
                name = self.registry.names[client]
                info(f"client {name}: resumed by its operator", "resumed", client=name)

    def _ask(self, client: ClientId) -> None:
        self.asked = {sent: one for sent, one in self.asked.items() if one != client}  # the last was lost
        content = wire.pack({}, {"round": 0, "client": client})
        sent = self.grid.push_messages([Envelope(content, self.registry.nodes[client], IDENTITY, ttl=PAUSE)])
        self.asked |= {message: client for message in sent if message}
