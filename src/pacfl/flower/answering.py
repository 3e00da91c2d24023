"""The client half: it answers who it is and what its data look like, and trains and evaluates."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import torch
from flwr.app import Context, RecordDict
from flwr.app import Message as Envelope
from flwr.clientapp import ClientApp

from pacfl.federation.client_side import ClientSide
from pacfl.federation.message import ClientId
from pacfl.federation.private import promised
from pacfl.flower import wire
from pacfl.flower.client_memory import ClientMemory
from pacfl.flower.message_types import EVALUATE, IDENTITY, SIGNATURE, TRAIN, registered
from pacfl.flower.signature_ledger import Budget, SignatureLedger

LARGEST_DOWNLOAD = 2**33  # bytes; a client trusts its server further than the server trusts it
LEDGER = ".signatures"  # no federation can have this name

Home = Callable[[Context, str, ClientId], tuple[ClientSide, Path]]  # of a federation and a number: what a client has


def client_app(home: Home) -> ClientApp:
    """A ClientApp for clients that live at `home`."""

    def handle(envelope: Envelope, context: Context) -> Envelope:
        return Envelope(answer(envelope.metadata.message_type, envelope.content, context, home), reply_to=envelope)

    return registered(handle)


def answer(kind: str, content: RecordDict, context: Context, home: Home) -> RecordDict:
    """The reply to a message of some kind."""
    torch.set_num_threads(1)  # the same bits wherever a client lives
    return ANSWERS[kind](Asked(content, context, home))


class Asked:
    """A request, and what the client has to answer it."""

    def __init__(self, content: RecordDict, context: Context, home: Home) -> None:
        """Read what the request is about."""
        self.content, self.context, self.home = content, context, home
        self.about = wire.about(content)
        self.round, self.client = (_whole(self.about.get(key)) for key in ("round", "client"))

    def at_home(self) -> tuple[ClientSide, ClientMemory, SignatureLedger]:
        """The client's half of the algorithm, its memory, and what it has told of its data to anybody."""
        federation = str(self.about.get("federation"))
        if not re.fullmatch(r"[0-9a-z-]{1,64}", federation):
            raise ValueError(f"a federation is named by letters, digits and hyphens, got {federation!r}")
        side, memory = self.home(self.context, federation, self.client)
        return side, ClientMemory(memory / federation / str(self.client)), SignatureLedger(memory / LEDGER)

    def reply(self, side: ClientSide) -> dict[str, str | int | bool]:
        """What a reply to training or evaluation says of itself."""
        return {"round": self.round, "size": len(side.pool.client_indices[self.client].train)}


def _identity(asked: Asked) -> RecordDict:
    """Believed in simulations only."""
    return wire.pack({}, {"partition": _whole(asked.context.node_config.get("partition-id", 0))})


def _signature(asked: Asked) -> RecordDict:
    side, _, ledger = asked.at_home()
    data = side.pool.raw[side.pool.client_indices[asked.client].train]
    profile = ledger.release(
        data,
        promised(side.algorithm),
        lambda: side.profile(asked.round, asked.client),
        Budget.read(asked.context.node_config),
    )
    return wire.pack(profile, {"round": asked.round})  # no number of samples: nobody needs it here


def _train(asked: Asked) -> RecordDict:
    side, kept, _ = asked.at_home()
    t, client, down = asked.round, asked.client, wire.unpack(asked.content, LARGEST_DOWNLOAD)
    memory, last = kept.before(t)
    memory = side.algorithm.init_client(side.model) if memory is None else memory
    # What came down is judged in the reply: a message of its own would start a process of its own
    scores = side.evaluate(t, client, down, memory, last, False, 0) if asked.about.get("evaluate") else {}
    up, memory, trained = side.train(t, client, down, memory)
    kept.keep(t, memory, last if trained is None else trained, _whole(asked.about.get("safe")))
    return wire.pack(up, asked.reply(side), scores)


def _evaluate(asked: Asked) -> RecordDict:
    side, kept, _ = asked.at_home()
    t, client, down = asked.round, asked.client, wire.unpack(asked.content, LARGEST_DOWNLOAD)
    memory, last = kept.before(t + 1)
    memory = side.algorithm.init_client(side.model) if memory is None else memory
    personal, fine_tune = bool(asked.about.get("personal")), _whole(asked.about.get("fine-tune"))
    scores = side.evaluate(t, client, down, memory, last, personal, fine_tune)
    return wire.pack({}, asked.reply(side), scores)


ANSWERS: Final[Mapping[str, Callable[[Asked], RecordDict]]] = {
    IDENTITY: _identity,
    SIGNATURE: _signature,
    TRAIN: _train,
    EVALUATE: _evaluate,
}


def _whole(value: object) -> int:
    if not isinstance(value, int) or value < 0:
        raise ValueError(f"wanted a whole number from 0, got {value!r}")
    return value
