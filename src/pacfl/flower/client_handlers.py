"""The client side: one handler for each type of message."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import torch
from flwr.app import Context, RecordDict

from pacfl.federation.client_side import ClientSide
from pacfl.federation.message import ClientId, Message
from pacfl.federation.rounds import Score
from pacfl.flower import model_identity, wire
from pacfl.flower.client_memory import ClientMemory
from pacfl.flower.delivery import deliver
from pacfl.flower.message_types import CONFIRM, EVALUATE, IDENTITY, KEYS, REVEAL, SHARES, SIGNATURE, TRAIN
from pacfl.flower.secure_client import SecureClient
from pacfl.flower.signature_ledger import Budget, SignatureLedger
from pacfl.signatures.keys import read_key

LARGEST_DOWNLOAD = 2**33  # bytes; a client trusts its server further than the server trusts it
LEDGER = ".signatures"  # in the folder of memories; no federation can have this name

# Context, federation and client -> the client's side of the algorithm, and the folder of memories
ClientLoader = Callable[[Context, str, ClientId], tuple[ClientSide, Path]]


def handle(
    message_type: str, content: RecordDict, context: Context, load: ClientLoader, durable: bool = True
) -> RecordDict:
    """The reply to a message; durable: once the client's memory is on the disk."""
    torch.set_num_threads(1)  # the same bits on every machine
    return HANDLERS[message_type](Request(content, context, load, durable))


class Request:
    """A message to a client."""

    def __init__(self, content: RecordDict, context: Context, load: ClientLoader, durable: bool = True) -> None:
        """Read the header."""
        self._durable = durable
        self.content, self.context = content, context
        self.about = wire.about(content)
        self.round, self.client = (_natural(self.about.get(key), key) for key in ("round", "client"))
        self._load = load
        self._loaded: tuple[ClientSide, Path] | None = None

    def load(self) -> tuple[ClientSide, ClientMemory, SignatureLedger]:
        """The client's side of the algorithm, its memory of this federation, and its ledger of all federations."""
        if self._loaded is None:
            self._loaded = self._load(self.context, self._federation, self.client)
        side, folder = self._loaded
        if "model" in self.about:
            model_identity.check(self.about["model"], side.model)
        return side, ClientMemory(self._folder(folder), self._durable), SignatureLedger(folder / LEDGER)

    @property
    def _federation(self) -> str:
        federation = str(self.about.get("federation"))
        if not re.fullmatch(r"[0-9a-z-]{1,64}", federation):
            raise ValueError(f"a federation's name has letters, digits and hyphens, got {federation!r}")
        return federation

    def _folder(self, memory: Path) -> Path:
        return memory / self._federation / str(self.client)

    def arrays(self) -> Message:
        """What the server sent."""
        return wire.unpack(self.content, LARGEST_DOWNLOAD)

    def secure(self) -> SecureClient:
        """The client's side of secure aggregation."""
        memory = self.context.node_config.get("memory")  # of a site: its data are not needed, and take long to load
        folder = self.load()[1].folder if memory is None else self._folder(Path(str(memory)).expanduser())
        return SecureClient(folder, self._federation, self.round)

    def reply(self, arrays: Message) -> RecordDict:
        """A reply of secure aggregation."""
        return wire.pack(arrays, {"round": self.round})

    def header(self, side: ClientSide) -> dict[str, str | int | bool]:
        """The header of a reply to training or evaluation; with secure aggregation sizes are in the sum only."""
        if side.algorithm.aggregation.secure:
            return {"round": self.round}
        return {"round": self.round, "size": len(side.pool.client_indices[self.client].train)}


def _identity(request: Request) -> RecordDict:
    """The server uses this claim in simulations only."""
    partition = _natural(request.context.node_config.get("partition-id", 0), "partition-id")
    return wire.pack({}, {"partition": partition})


def _signature(request: Request) -> RecordDict:
    side, _, ledger = request.load()
    rows, promise = side.pool.client_indices[request.client].train, side.algorithm.promise()
    labels = [side.pool.train.y[rows]] if promise is not None and promise.of_labels else []
    profile = ledger.release(
        [side.pool.raw[rows], *labels],
        promise,
        lambda: side.profile(request.round, request.client),
        Budget.read(request.context.node_config),
    )
    if (key := request.context.node_config.get("signature-key")) is not None:
        profile = side.algorithm.keyed(profile, read_key(Path(str(key))))  # after the ledger: another key costs nothing
    return wire.pack(profile, {"round": request.round})  # without the number of samples: it is not needed here


def _train(request: Request) -> RecordDict:
    side, _, _ = request.load()
    received, scores = request.arrays(), dict[str, Score]()

    def train(down: Message) -> Message:
        up, scored = _trained(request, down)
        scores.update(scored)
        return up

    if side.algorithm.aggregation.secure:  # the server's word does not count: the settings were approved
        sent = request.secure().train(
            received, lambda down, n: side.words(request.round, request.client, down, train(down), n)
        )
    else:
        sent = train(received)
    return wire.pack(sent, request.header(side), scores)


def _trained(request: Request, down: Message) -> tuple[Message, dict[str, Score]]:
    """The upload of a local training, after which the client remembers it, and scores of the received model."""
    side, stored, _ = request.load()
    t, client = request.round, request.client
    memory, last = stored.before(t)
    memory = side.algorithm.init_client(side.model) if memory is None else memory
    # The received model is evaluated in the same reply: another message would start another process
    scores = side.evaluate(t, client, down, memory, last, False, 0) if request.about.get("evaluate") else {}
    up, memory, trained = side.train(t, client, down, memory)
    stored.save(t, memory, last if trained is None else trained, _natural(request.about.get("safe"), "safe"))
    return up, scores


def _evaluate(request: Request) -> RecordDict:
    side, stored, _ = request.load()
    t, client, down = request.round, request.client, request.arrays()
    memory, last = stored.before(t + 1)
    memory = side.algorithm.init_client(side.model) if memory is None else memory
    personal, fine_tune = bool(request.about.get("personal")), _natural(request.about.get("fine-tune"), "fine-tune")
    scores = side.evaluate(t, client, down, memory, last, personal, fine_tune)
    models = request.context.node_config.get("models") if personal else None
    federation = str(request.about.get("federation"))
    name = str(request.about.get("name", client))
    delivered = False
    if models:
        key = None if "key" not in request.about else str(request.about["key"])
        where = Path(str(models))
        delivered = deliver(where, federation, name, side, t, client, down, memory, scores, key)
    return wire.pack({}, {**request.header(side), "delivered": delivered}, scores)


HANDLERS: Final[Mapping[str, Callable[[Request], RecordDict]]] = {
    IDENTITY: _identity,
    SIGNATURE: _signature,
    KEYS: lambda request: request.reply(request.secure().keys(request.arrays(), request.context)),
    SHARES: lambda request: request.reply(request.secure().shares(request.arrays(), request.context)),
    TRAIN: _train,
    CONFIRM: lambda request: request.reply(request.secure().confirm(request.arrays())),
    REVEAL: lambda request: request.reply(request.secure().reveal(request.arrays())),
    EVALUATE: _evaluate,
}


def _natural(value: object, name: str) -> int:
    if not isinstance(value, int) or value < 0:
        raise ValueError(f"{name} must be an integer of at least 0, got {value!r}")
    return value
