"""The Flower backend: clients behind a Grid, simulated or far away. Replies may be late, broken or hostile."""

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import TypeVar

from flwr.app import Message as Envelope
from flwr.app import RecordDict
from flwr.serverapp import Grid

from pacfl.errors import InvalidReplyError
from pacfl.federation.algorithm import Algorithm, Upload
from pacfl.federation.message import ClientId, Message
from pacfl.federation.rounds import Score, Scores
from pacfl.flower import wire
from pacfl.flower.inbox import Content, Inbox
from pacfl.flower.message_types import EVALUATE, SIGNATURE, TRAIN
from pacfl.flower.reply_checks import (
    LARGEST_PROFILE,
    Forms,
    check_profile,
    check_size,
    check_upload,
    forms_of_profile,
    forms_of_training,
    incompatible,
)
from pacfl.learning.model import Model

log = logging.getLogger("pacfl")
T = TypeVar("T")


@dataclass(frozen=True)
class ReplyError:
    """A reply that was missing or did not count."""

    round: int
    client: ClientId
    what: str


@dataclass(eq=False)
class Flower:
    """Clients by number, and the nodes where they are reached now."""

    grid: Grid
    algorithm: Algorithm
    model: Model
    federation: str  # names the clients' memory
    nodes: dict[ClientId, int] = field(default_factory=dict)
    deadline: float = 86_400.0  # seconds
    poll: float = 0.05  # seconds
    evaluate_in_training: bool = False
    features: int | None = None  # of a signature, once somebody has shown one
    safe: int | None = None  # rounds before this one will not be asked for again; None: this one
    reply_errors: list[ReplyError] = field(default_factory=list)
    piggybacked: dict[ClientId, dict[str, Score]] = field(default_factory=dict)  # scores in the last replies

    def profile(self, t: int, clients: Sequence[ClientId]) -> Mapping[ClientId, Message]:
        """What clients tell of their data; those who do not answer, or nonsense, are missing."""
        forms = forms_of_profile(self.algorithm, self.model)
        largest = LARGEST_PROFILE if forms else 0

        def read(client: ClientId, content: RecordDict) -> Message:  # noqa: ARG001 - one form for all
            told = wire.unpack(content, largest)
            check_profile(told, forms)
            return told

        heard = self._heard(t, self._ask(SIGNATURE, t, {c: {} for c in clients}, {}, largest), read)
        for client, why in incompatible(heard, self.features).items():
            self._reply_error(t, client, f"reply refused: {why}")
            del heard[client]
        self.remember(heard.values())
        return heard

    def train(self, t: int, downloads: Mapping[ClientId, Message], lost: frozenset[ClientId]) -> Sequence[Upload]:
        """Local trainings. A client whose reply is lost has trained all the same, and remembers."""
        asked = {"safe": t if self.safe is None else self.safe, "evaluate": self.evaluate_in_training}
        forms = self._forms(downloads)
        replies = self._ask(TRAIN, t, downloads, asked, max(map(_bytes, forms.values()), default=0))
        self.piggybacked = {}

        def read(client: ClientId, content: RecordDict) -> Upload:
            up = wire.unpack(content, _bytes(forms[client]))
            check_upload(up, forms[client], self.model, len(downloads[client].get("models", "1")))
            size = check_size(wire.about(content).get("size"))
            self.piggybacked[client] = wire.scores(content)
            return Upload(client, size, up)

        return [upload for c, upload in self._heard(t, replies, read).items() if c not in lost]

    def evaluate(self, t: int, downloads: Mapping[ClientId, Message], personal: bool, fine_tune: int = 0) -> Scores:
        """Scores by protocol."""
        asked = {"personal": personal, "fine-tune": fine_tune}

        def read(client: ClientId, content: RecordDict) -> dict[str, Score]:  # noqa: ARG001 - one form for all
            return wire.scores(content)

        heard = self._heard(t, self._ask(EVALUATE, t, downloads, asked, 0), read)
        return by_protocol(heard)

    def _forms(self, downloads: Mapping[ClientId, Message]) -> dict[ClientId, Forms]:
        """The form of each client's honest upload: the same for downloads of the same shapes."""
        shapes = {c: tuple((name, array.shape) for name, array in down.items()) for c, down in downloads.items()}
        sample = {shape: downloads[c] for c, shape in shapes.items()}
        forms = {shape: forms_of_training(self.algorithm, self.model, down) for shape, down in sample.items()}
        return {c: forms[shape] for c, shape in shapes.items()}

    def _ask(
        self, kind: str, t: int, requests: Mapping[ClientId, Message], about: wire.About, largest: int
    ) -> dict[ClientId, RecordDict]:
        """Send to each client its own, and wait until all have answered or the deadline has come."""
        waiting: dict[str, ClientId] = {}
        for client, message in requests.items():
            told = {"round": t, "client": client, "federation": self.federation, **about}
            sent = self._send(kind, t, client, wire.pack(message, told))
            if sent is None:
                self._reply_error(t, client, "cannot be reached")
            else:
                waiting[sent] = client
        replies: dict[ClientId, RecordDict] = {}
        for sent, reply in answers(self.grid, set(waiting), self.deadline, self.poll, largest).items():
            client = waiting.pop(sent)
            if isinstance(reply, str):
                self._reply_error(t, client, reply)
            else:
                replies[client] = reply
        for client in waiting.values():
            self._reply_error(t, client, f"no reply to {kind!r} within {self.deadline:g} s")
        return {c: replies[c] for c in requests if c in replies}  # as asked: nothing may hang on who was faster

    def _send(self, kind: str, t: int, client: ClientId, content: RecordDict) -> str | None:
        if client not in self.nodes:
            return None
        envelope = Envelope(content, self.nodes[client], kind, ttl=self.deadline, group_id=str(t))
        sent = list(self.grid.push_messages([envelope]))  # one by one: a list that is too long for a request is lost
        return sent[0] if sent and sent[0] else None

    def _heard(
        self, t: int, replies: Mapping[ClientId, RecordDict], read: Callable[[ClientId, RecordDict], T]
    ) -> dict[ClientId, T]:
        """What was said by those whose words hold."""
        heard = {}
        for client, content in replies.items():
            try:
                if wire.about(content).get("round") != t:
                    raise InvalidReplyError(f"answers round {wire.about(content).get('round')!r}, not {t}")
                heard[client] = read(client, content)
            except InvalidReplyError as refusal:
                self._reply_error(t, client, f"reply refused: {refusal}")
        return heard

    def remember(self, profiles: Iterable[Message]) -> None:
        """How many features signatures have: later ones must have as many."""
        for told in profiles:
            self.features = len(told["basis"]) if "basis" in told else self.features

    def _reply_error(self, t: int, client: ClientId, what: str) -> None:
        self.reply_errors.append(ReplyError(t, client, what))
        log.warning("round %d client %d: %s", t, client, what)


def answers(grid: Grid, sent: set[str], deadline: float, poll: float, largest: int = 0) -> dict[str, Content]:
    """Replies of at most `largest` bytes of arrays, by the message they answer: their content, or what went wrong."""
    inbox = Inbox(grid, largest)
    heard: dict[str, Content] = {}
    end = time.monotonic() + deadline
    while sent - heard.keys():
        # Errors that the server made itself come from nobody: only the message they answer tells whom they are about
        heard |= inbox.look(sent - heard.keys())
        if time.monotonic() >= end:
            break
        if sent - heard.keys():
            time.sleep(poll)
    return heard


def by_protocol(scores: Mapping[ClientId, Mapping[str, Score]]) -> Scores:
    """Scores of clients by protocol, turned round."""
    turned: dict[str, dict[ClientId, Score]] = {}
    for client, own in scores.items():
        for protocol, score in own.items():
            turned.setdefault(protocol, {})[client] = score
    return turned


def _bytes(forms: Forms) -> int:
    return sum(8 * prod(form.shape) for form in forms.values())
