"""A grid in this process: messages are handled at once by the real client side, or by a hostile one."""

from collections.abc import Callable, Iterable
from functools import lru_cache
from pathlib import Path
from types import SimpleNamespace

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from flwr.app import Context, Message, RecordDict

from pacfl.federation.algorithm import Algorithm
from pacfl.federation.client_side import ClientSide, Pool, Setup
from pacfl.flower.client_handlers import ClientLoader, handle
from tests.small_federation import LEARNING, SEED, model, pool

Tamper = Callable[[str, RecordDict], RecordDict | None]


def client_loader(
    algorithm: Algorithm, memory: Path, metrics: tuple[str, ...] = (), clients: Pool | None = None
) -> ClientLoader:
    side = ClientSide(Setup(algorithm, model(), clients or pool(), LEARNING, SEED, metrics=metrics))

    def load(*_: object) -> tuple[ClientSide, Path]:
        return side, memory

    return load


@lru_cache
def key_of(node: int) -> bytes:
    """The public key of a node, in PEM."""
    key = ec.derive_private_key(node % 100 + 1, ec.SECP256R1()).public_key()
    return key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


class FakeGrid:
    """Nodes are 100 and up; keys and names go by their last two digits. Tampering nodes change or withhold replies."""

    def __init__(self, load: ClientLoader, nodes: Iterable[int], tampering: dict[int, Tamper] | None = None) -> None:
        self.load, self.nodes, self.tampering = load, list(nodes), tampering or {}
        self.replies: dict[str, Message | None] = {}
        self.sent: list[Message] = []

    def get_node_ids(self) -> list[int]:
        return self.nodes

    def get_nodes(self) -> list[SimpleNamespace]:
        return [SimpleNamespace(node_id=n, public_key=key_of(n), name=f"site-{n % 100:02d}") for n in self.nodes]

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        ids = []
        for message in messages:
            one = f"m{len(self.replies)}"
            message.metadata.__dict__["_message_id"] = one
            self.sent.append(message)
            self.replies[one] = self._reply(message)
            ids.append(one)
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        found = [self.replies[one] for one in message_ids]
        return [reply for reply in found if reply is not None]

    def context(self, node: int) -> Context:
        return Context(1, node, {"partition-id": node - 100}, RecordDict(), {})

    def _reply(self, message: Message) -> Message | None:
        node, kind = message.metadata.dst_node_id, message.metadata.message_type
        content: RecordDict | None = handle(kind, message.content, self.context(node), self.load)
        if node in self.tampering:
            content = self.tampering[node](kind, content)
        return None if content is None else Message(content, reply_to=message)
