"""A round of training with secure aggregation: five messages to each client, and one upload for each cluster."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np
from flwr.app import RecordDict

from pacfl.errors import InvalidReplyError, SecureAggregationError
from pacfl.federation.algorithm import Upload
from pacfl.federation.message import ClientId, Message, digest
from pacfl.federation.secure_sums import Layout, by_cluster, check_sum, too_few, upload_of
from pacfl.flower import secure_client as names
from pacfl.flower import wire
from pacfl.flower.message_types import CONFIRM, KEYS, REVEAL, SHARES, TRAIN
from pacfl.flower.reply_checks import LARGEST_SITE
from pacfl.privacy.limits import FEWEST, threshold
from pacfl.secure import messages, server
from pacfl.secure.identity import fingerprint, is_signed
from pacfl.secure.masks import Words
from pacfl.secure.messages import Advertisement, Peer, Roster, Shares, packed, texts, to_bytes, unpacked

if TYPE_CHECKING:
    from pacfl.flower.backend import FlowerBackend

T = TypeVar("T")
LARGEST_KEYS: Final = 4096  # bytes of an advertisement
LARGEST_SHARES: Final = 1024  # of what one client has for another one


@dataclass(eq=False)
class Session:
    """A cluster's session, as the server sees it. Clients without a valid reply to a message get none of the next."""

    down: Message
    members: list[ClientId]  # who gets the next message
    peer_of: dict[ClientId, Peer] = field(default_factory=dict)
    keys: dict[ClientId, Advertisement] = field(default_factory=dict)
    roster: Roster | None = None
    sealed: dict[Peer, dict[Peer, str]] = field(default_factory=dict)
    masked: dict[Peer, Words] = field(default_factory=dict)
    signatures: dict[Peer, str] = field(default_factory=dict)
    shares: dict[Peer, Shares] = field(default_factory=dict)

    @property
    def clients(self) -> Roster:
        """The roster, once it is there."""
        assert self.roster is not None  # sessions without are over
        return self.roster


def train(
    backend: "FlowerBackend", t: int, downloads: Mapping[ClientId, Message], lost: frozenset[ClientId]
) -> list[Upload]:
    """The sums of clusters, as one upload each. Clusters without enough clients have none, with a reason."""
    backend.piggybacked, backend.silent = {}, set()
    return _Round(backend, t, lost).run([Session(downloads[c[0]], c) for c in by_cluster(downloads)])


@dataclass(eq=False)
class _Round:
    """The sessions of all clusters go on together, message by message."""

    backend: "FlowerBackend"
    t: int
    lost: frozenset[ClientId]

    def run(self, sessions: Sequence[Session]) -> list[Upload]:
        """All messages of a round."""
        for session in sessions:
            if len(session.members) < FEWEST:
                self.backend._fail(self.t, session.members[0], too_few(session.down, len(session.members)))
                session.members = []
        for step in (self._keys, self._shares, self._train, self._confirm, self._reveal):
            step([session for session in sessions if session.members])
        uploads = [self._unmasked(session) for session in sessions if session.members]
        return [upload for upload in uploads if upload is not None]

    # Messages

    def _keys(self, sessions: Sequence[Session]) -> None:
        names_of = {id(s): self._session_name(s) for s in sessions}
        requests = {c: {names.DIGEST: packed(digest(s.down))} for s in sessions for c in s.members}
        session_of = {c: s for s in sessions for c in s.members}

        def read(client: ClientId, content: RecordDict) -> Advertisement:
            own = messages.advertisement(unpacked(wire.unpack(content, LARGEST_KEYS)[names.KEYS], "keys"))
            if not is_signed(own.public, own.signed(names_of[id(session_of[client])]), to_bytes(own.signature)):
                raise InvalidReplyError("has keys that it has not signed for this session")
            return own

        keys = self._ask(KEYS, requests, LARGEST_KEYS, read)
        for session in sessions:
            for client in [c for c in session.members if c in keys]:
                peer = fingerprint(keys[client].public)
                if peer in session.peer_of.values():
                    self.backend._fail(self.t, client, f"reply refused: has the key {peer} of another client")
                else:
                    session.peer_of[client], session.keys[client] = peer, keys[client]
            session.members = list(session.keys)
            try:
                session.roster = Roster.of(names_of[id(session)], session.keys.values())
            except SecureAggregationError as refusal:
                self._over(session, str(refusal))

    def _shares(self, sessions: Sequence[Session]) -> None:
        requests = {c: {names.ROSTER: packed(list(s.clients.advertisements))} for s in sessions for c in s.members}
        largest = LARGEST_SHARES * max((len(s.members) for s in sessions), default=0)

        def read(client: ClientId, content: RecordDict) -> dict[Peer, str]:  # noqa: ARG001 - one form for all readers
            return texts(unpacked(wire.unpack(content, largest)[names.SEALED], "shares"), "shares")

        for session, replies in self._by_session(sessions, self._ask(SHARES, requests, largest, read)):
            session.sealed = {session.peer_of[c]: own for c, own in replies.items()}
            self._continue(session, replies, "have shared their keys")

    def _train(self, sessions: Sequence[Session]) -> None:
        backend = self.backend
        about = {"safe": self.t if backend.safe is None else backend.safe, "evaluate": backend.evaluate_in_training}
        requests: dict[ClientId, Message] = {}
        n_words: dict[ClientId, int] = {}
        for session in sessions:
            inbox = server.routed(session.sealed)
            layout = Layout.of(backend.algorithm, backend.model, session.down)
            for c in session.members:
                requests[c] = {**session.down, names.SEALED: packed(inbox[session.peer_of[c]])}
                n_words[c] = layout.n_words
        rest = 256 * len(requests)  # complaints
        largest = max((8 * n + rest for n in n_words.values()), default=0)

        def read(client: ClientId, content: RecordDict) -> tuple[Words, dict[Peer, str]]:
            arrays = wire.unpack(content, 8 * n_words[client] + rest)
            masked = arrays[names.MASKED]
            if masked.dtype != np.uint64 or masked.shape != (n_words[client],):
                raise InvalidReplyError(f"has words {masked.dtype} of shape {masked.shape}")
            complaints = texts(unpacked(arrays[names.COMPLAINTS], "complaints"), "complaints")
            backend.piggybacked[client] = wire.scores(content, backend.metrics)
            return masked, complaints

        replies = self._ask(TRAIN, requests, largest, read, about)
        for session, all_of in self._by_session(sessions, replies):
            of = {c: reply for c, reply in all_of.items() if c not in self.lost}
            session.masked = {session.peer_of[c]: masked for c, (masked, _) in of.items()}
            client_of = {peer: c for c, peer in session.peer_of.items()}
            for c, (_, complaints) in of.items():
                for peer, why in complaints.items():
                    if peer in client_of:
                        backend._fail(self.t, client_of[peer], f"{why[:200]}, says client {backend.name(c)}")
            self._continue(session, of, "have sent their masked updates")

    def _confirm(self, sessions: Sequence[Session]) -> None:
        requests = {c: {names.SURVIVORS: packed(sorted(s.masked))} for s in sessions for c in s.members}

        def read(client: ClientId, content: RecordDict) -> str:  # noqa: ARG001
            signature = unpacked(wire.unpack(content, LARGEST_KEYS)[names.SIGNATURES], "signature")
            if not isinstance(signature, str):
                raise InvalidReplyError("has a signature that is no text")
            return signature

        for session, replies in self._by_session(sessions, self._ask(CONFIRM, requests, LARGEST_KEYS, read)):
            session.signatures = {session.peer_of[c]: own for c, own in replies.items()}
            self._continue(session, replies, "have confirmed who is in the sum")

    def _reveal(self, sessions: Sequence[Session]) -> None:
        requests = {c: {names.SIGNATURES: packed(s.signatures)} for s in sessions for c in s.members}
        largest = LARGEST_SHARES * max((len(s.clients.peers) for s in sessions), default=0)

        def read(client: ClientId, content: RecordDict) -> Shares:  # noqa: ARG001
            return messages.shares(unpacked(wire.unpack(content, largest)[names.SHARES], "shares"))

        for session, replies in self._by_session(sessions, self._ask(REVEAL, requests, largest, read)):
            session.shares = {session.peer_of[c]: own for c, own in replies.items()}
            self._continue(session, replies, "have revealed their shares")

    def _unmasked(self, session: Session) -> Upload | None:
        backend, client_of = self.backend, {peer: c for c, peer in session.peer_of.items()}
        blamed: Mapping[Peer, str] = {}
        upload = None
        try:
            total = server.unmask(session.clients, session.sealed, session.masked, session.shares)
            blamed = total.blamed
            layout = Layout.of(backend.algorithm, backend.model, session.down)
            first = min(client_of[peer] for peer in session.masked)
            upload = upload_of(backend.algorithm, layout, session.down, total.words, first, len(session.masked))
            if not upload.n_clients <= upload.size <= LARGEST_SITE * upload.n_clients:
                raise InvalidReplyError(f"sum up to {upload.size} samples of {upload.n_clients} clients")
            check_sum(backend.algorithm, backend.model, session.down, upload)
        except server.UnmaskingError as failure:
            blamed, upload = failure.blamed, None
            self._over(session, str(failure))
        except InvalidReplyError as refusal:
            upload = None
            self._over(session, f"the updates of its clients {refusal}")
        for peer, why in blamed.items():
            backend._fail(self.t, client_of[peer], why)
        return upload

    # What all messages have in common

    def _ask(
        self,
        message_type: str,
        requests: Mapping[ClientId, Message],
        largest: int,
        read: Callable[[ClientId, RecordDict], T],
        about: wire.About | None = None,
    ) -> dict[ClientId, T]:
        """The valid replies to a message."""

        def checked(client: ClientId, content: RecordDict) -> T:
            try:
                return read(client, content)
            except (SecureAggregationError, KeyError) as refusal:
                raise InvalidReplyError(f"is not as expected: {refusal}") from None

        replies, late = self.backend._query(message_type, self.t, requests, about or {}, largest)
        self.backend.silent |= set(late)
        return self.backend._read(self.t, replies, checked)

    @staticmethod
    def _by_session(sessions: Sequence[Session], replies: Mapping[ClientId, T]) -> list[tuple[Session, dict[Any, T]]]:
        return [(s, {c: replies[c] for c in s.members if c in replies}) for s in sessions]

    def _continue(self, session: Session, replied: Mapping[ClientId, object], what: str) -> None:
        """Go on with those who replied, if they are enough."""
        least, n = threshold(len(session.clients.peers)), len(session.clients.peers)
        session.members = [c for c in session.members if c in replied]
        if len(session.members) < least:
            self._over(session, f"{len(session.members)} of {n} clients {what}, and {least} are needed for a sum")

    def _over(self, session: Session, why: str) -> None:
        """End a session: the model of the cluster stays as it is."""
        members = session.members or list(session.peer_of)
        session.members = []
        self.backend.no_sum(self.t, members, why)

    def _session_name(self, session: Session) -> str:
        return names.session_name(self.backend.federation, self.t, digest(session.down))
