"""The Flower backend: clients behind a Grid, simulated or remote. Replies may be late, broken or hostile."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeVar

from flwr.app import Message as Envelope
from flwr.app import RecordDict
from flwr.serverapp import Grid

from pacfl.errors import InvalidReplyError
from pacfl.federation.algorithm import Algorithm, Upload
from pacfl.federation.checks import check_class_counts, class_count_specs
from pacfl.federation.message import ClientId, Message
from pacfl.federation.rounds import Score, Scores
from pacfl.flower import model_identity, secure_rounds, wire
from pacfl.flower.event_log import info, warning
from pacfl.flower.inbox import IS_PAUSED, collect_replies
from pacfl.flower.message_types import EVALUATE, SIGNATURE, TRAIN
from pacfl.flower.reply_checks import LARGEST_PROFILE, check_size, largest_upload
from pacfl.learning.model import Model

T = TypeVar("T")


@dataclass(frozen=True)
class ReplyFailure:
    """A reply that is missing or was refused."""

    round: int
    client: ClientId
    what: str


@dataclass(eq=False)
class FlowerBackend:
    """Clients by id, and the nodes at which they are now."""

    grid: Grid
    algorithm: Algorithm
    model: Model
    federation: str  # names the clients' memory
    nodes: dict[ClientId, int] = field(default_factory=dict)
    names: dict[ClientId, str] = field(default_factory=dict)  # of sites; others are called by their ids
    paused: set[ClientId] = field(default_factory=set)  # whose last reply was that their operator has paused them
    key_of: Callable[[ClientId], str | None] = lambda _: None  # the fingerprints of keys, where sites have them
    deadline: float = 86_400.0  # seconds
    poll: float = 0.05  # seconds
    evaluate_in_training: bool = False
    metrics: tuple[str, ...] = ()  # that scores may have beside the primary one
    safe: int | None = None  # rounds before this one will not be asked for again; None: before the current one
    reply_failures: list[ReplyFailure] = field(default_factory=list)
    piggybacked: dict[ClientId, dict[str, Score]] = field(default_factory=dict)  # scores in the last uploads
    silent: set[ClientId] = field(default_factory=set)  # whose reply to the last training did not come in time
    answered: set[ClientId] = field(default_factory=set)  # who replied to the last evaluation
    delivered: set[ClientId] = field(default_factory=set)  # and who of them has stored its models

    @cached_property
    def described(self) -> str:
        """The shapes of the model: a site with another one refuses."""
        return model_identity.as_text(self.model)

    def profile(self, t: int, clients: Sequence[ClientId]) -> Mapping[ClientId, Message]:
        """Profiles of clients; those without a valid reply are missing."""
        largest = LARGEST_PROFILE if self.algorithm.profile_specs(self.model) else 0

        def read(client: ClientId, content: RecordDict) -> Message:  # noqa: ARG001 - one signature for all readers
            profile = wire.unpack(content, largest)
            self.algorithm.check_profile(self.model, profile)
            return profile

        return self._read(t, self._query(SIGNATURE, t, {c: {} for c in clients}, {}, largest)[0], read)

    def refuse(self, t: int, reasons: Mapping[ClientId, str]) -> None:
        """Record why some clients cannot join."""
        for client, why in reasons.items():
            self._fail(t, client, f"reply refused: {why}")

    def train(self, t: int, downloads: Mapping[ClientId, Message], lost: frozenset[ClientId]) -> Sequence[Upload]:
        """Local training. A client whose reply is lost has trained all the same, and its memory has changed."""
        if self.algorithm.aggregation.secure:
            return secure_rounds.train(self, t, downloads, lost)
        about = {"safe": t if self.safe is None else self.safe, "evaluate": self.evaluate_in_training}
        largest = self._largest_uploads(downloads)
        replies, late = self._query(TRAIN, t, downloads, about, max(largest.values(), default=0))
        self.piggybacked, self.silent = {}, set(late)

        def read(client: ClientId, content: RecordDict) -> Upload:
            up = wire.unpack(content, largest[client])
            self.algorithm.check_upload(self.model, downloads[client], up)
            size = check_size(wire.about(content).get("size"))
            if self.algorithm.label_prior:
                check_class_counts(up, class_count_specs(self.model), size)
            self.piggybacked[client] = wire.scores(content, self.metrics)
            return Upload(client, size, up)

        return [upload for c, upload in self._read(t, replies, read).items() if c not in lost]

    def evaluate(self, t: int, downloads: Mapping[ClientId, Message], personal: bool, fine_tune: int = 0) -> Scores:
        """Scores by protocol."""
        about = {"personal": personal, "fine-tune": fine_tune}
        self.answered, self.delivered = set(), set()

        def read(client: ClientId, content: RecordDict) -> dict[str, Score]:
            self.answered.add(client)
            if wire.about(content).get("delivered") is True:
                self.delivered.add(client)
            return wire.scores(content, self.metrics)

        return by_protocol(self._read(t, self._query(EVALUATE, t, downloads, about, 0)[0], read))

    def _largest_uploads(self, downloads: Mapping[ClientId, Message]) -> dict[ClientId, int]:
        """The bytes of each client's upload, at most: the same for downloads of the same shapes."""
        shapes = {c: tuple((name, array.shape) for name, array in down.items()) for c, down in downloads.items()}
        example = {shape: downloads[c] for c, shape in shapes.items()}
        counts = class_count_specs(self.model) if self.algorithm.label_prior else {}
        largest = {
            s: largest_upload({**self.algorithm.upload_specs(self.model, down), **counts})
            for s, down in example.items()
        }
        return {c: largest[shape] for c, shape in shapes.items()}

    def _query(
        self, message_type: str, t: int, requests: Mapping[ClientId, Message], about: wire.About, largest: int
    ) -> tuple[dict[ClientId, RecordDict], list[ClientId]]:
        """Send each client its request, and wait until all have replied or the deadline has passed.

        The replies, and the clients of which there was none in time.
        """
        waiting: dict[str, ClientId] = {}
        for client, message in requests.items():
            name = self.name(client)
            key = self.key_of(client)
            own: wire.About = {"round": t, "client": client, "name": name, **({} if key is None else {"key": key})}
            header = {**own, "federation": self.federation, "model": self.described, **about}
            sent = self._send(message_type, t, client, wire.pack(message, header))
            if sent is None:
                self._fail(t, client, "cannot be reached")
            else:
                waiting[sent] = client
        replies: dict[ClientId, RecordDict] = {}
        for sent, reply in collect_replies(self.grid, set(waiting), self.deadline, self.poll, largest).items():
            client = waiting.pop(sent)
            self.paused.discard(client)
            if reply == IS_PAUSED:
                self.paused.add(client)
                name = self.name(client)
                info(f"round {t + 1} client {name}: {IS_PAUSED}", "paused", round=t + 1, client=name)
            elif isinstance(reply, str):
                self._fail(t, client, reply)
            else:
                replies[client] = reply
        for client in waiting.values():
            self._fail(t, client, f"no reply to {message_type!r} within {self.deadline:g} s")
        # Results must not depend on who was faster
        return {c: replies[c] for c in requests if c in replies}, list(waiting.values())

    def _send(self, message_type: str, t: int, client: ClientId, content: RecordDict) -> str | None:
        if client not in self.nodes:
            return None
        envelope = Envelope(content, self.nodes[client], message_type, ttl=self.deadline, group_id=str(t))
        sent = list(self.grid.push_messages([envelope]))  # one by one: a list above the size of a request is lost
        return sent[0] if sent and sent[0] else None

    def _read(
        self, t: int, replies: Mapping[ClientId, RecordDict], read: Callable[[ClientId, RecordDict], T]
    ) -> dict[ClientId, T]:
        """The contents of valid replies."""
        received = {}
        for client, content in replies.items():
            try:
                if wire.about(content).get("round") != t:
                    raise InvalidReplyError(f"is for round {wire.about(content).get('round')!r}, not {t}")
                received[client] = read(client, content)
            except InvalidReplyError as refusal:
                self._fail(t, client, f"reply refused: {refusal}")
        return received

    def _fail(self, t: int, client: ClientId, what: str) -> None:
        self.reply_failures.append(ReplyFailure(t, client, what))
        name = self.name(client)
        warning(f"round {t + 1} client {name}: {what}", "reply-failed", round=t + 1, client=name, why=what)

    def no_sum(self, t: int, clients: Sequence[ClientId], why: str) -> None:
        """Record why secure aggregation has no sum of some clients."""
        for client in clients[:1]:
            self._fail(t, client, f"no secure sum of its cluster: {why}")

    def name(self, client: ClientId) -> str:
        """What people call a client."""
        return self.names.get(client, str(client))


def by_protocol(scores: Mapping[ClientId, Mapping[str, Score]]) -> Scores:
    """Scores by protocol and client, from those by client and protocol."""
    protocols = dict.fromkeys(protocol for own in scores.values() for protocol in own)
    return {p: {client: own[p] for client, own in scores.items() if p in own} for p in protocols}
