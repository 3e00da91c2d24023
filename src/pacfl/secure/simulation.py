"""A session of clients in this process: what the protocol does, and what it costs, without a network."""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pacfl.secure import client, messages, server
from pacfl.secure.identity import Identity
from pacfl.secure.masks import Words
from pacfl.secure.messages import Peer, Roster, Shares

Tamper = Callable[[Peer, Any], Any]  # changes what a client sends


@dataclass(eq=False)
class Session:
    """What a server sees in a session, and its result."""

    roster: Roster
    sealed: dict[Peer, dict[Peer, str]] = field(default_factory=dict)
    masked: dict[Peer, Words] = field(default_factory=dict)
    complaints: dict[Peer, dict[Peer, str]] = field(default_factory=dict)  # by who complains
    confirmed: dict[Peer, str] = field(default_factory=dict)
    revealed: dict[Peer, Shares] = field(default_factory=dict)
    total: server.Sum | None = None
    bytes_up: int = 0  # of all clients, beside the masked words
    bytes_down: int = 0
    client_seconds: float = 0.0  # of the processor, of all clients
    server_seconds: float = 0.0


def run(
    inputs: Sequence[Words],
    lost: Mapping[str, Collection[int]] | None = None,
    identities: Sequence[Identity] | None = None,
    session: str = "simulated",
    tamper: Mapping[str, Tamper] | None = None,
) -> Session:
    """One session of clients with these words. lost: which of them are gone from a stage on.

    Stages are deal, mask, confirm and reveal; tamper changes what clients send in one of them.
    """
    lost, tamper = lost or {}, tamper or {}
    owners = identities or [Identity.ephemeral() for _ in inputs]
    started = time.process_time()
    states = {state.peer: state for state in (client.advertise(session, owner) for owner in owners)}
    words = dict(zip(states, inputs, strict=True))
    names = list(states)
    done = Session(Roster.of(session, [state.own for state in states.values()]))
    done.bytes_up += sum(_bytes(state.own) for state in states.values())
    trusted = set(names)

    def here(stage: str) -> list[Peer]:
        for i in lost.get(stage, ()):
            states.pop(names[i], None)
        return list(states)

    def sent(stage: str, peer: Peer, content: Any) -> Any:
        return tamper[stage](peer, content) if stage in tamper else content

    for peer in here("deal"):
        done.bytes_down += _bytes(done.roster.advertisements)
        states[peer], sealed = client.deal(states[peer], done.roster, trusted)
        done.sealed[peer] = sent("deal", peer, sealed)
        done.bytes_up += _bytes(done.sealed[peer])
    inbox = server.routed(done.sealed)
    for peer in here("mask"):
        done.bytes_down += _bytes(inbox[peer])
        states[peer], done.masked[peer], done.complaints[peer] = client.mask(states[peer], inbox[peer], words[peer])
    for peer in here("confirm"):
        done.bytes_down += _bytes(list(done.masked))
        states[peer], done.confirmed[peer] = client.confirm(states[peer], done.masked)
        done.bytes_up += _bytes(done.confirmed[peer])
    for peer in here("reveal"):
        done.bytes_down += _bytes(done.confirmed)
        states[peer], revealed = client.reveal(states[peer], done.confirmed)
        done.revealed[peer] = sent("reveal", peer, revealed)
        done.bytes_up += _bytes(done.revealed[peer])
    done.client_seconds = time.process_time() - started
    started = time.process_time()
    done.total = server.unmask(done.roster, done.sealed, done.masked, done.revealed)
    done.server_seconds = time.process_time() - started
    return done


def _bytes(content: Any) -> int:
    return messages.packed(content).nbytes
