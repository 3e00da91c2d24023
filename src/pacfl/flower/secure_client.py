"""The client's side of secure aggregation between messages: its session, its keys, and what it has signed.

All of it is in files that only the site's user can read. A message is handled under a lock, and the session is stored
before the reply leaves: no mask is used twice, and no other set of clients is signed, whatever is asked again.
"""

import json
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from flwr.app import Context

from pacfl.errors import SecureAggregationError
from pacfl.federation.message import Message, digest
from pacfl.files import locked, write_atomically
from pacfl.flower import settings
from pacfl.secure import client, messages
from pacfl.secure.client import ClientState
from pacfl.secure.identity import Identity, read_trusted
from pacfl.secure.masks import Words
from pacfl.secure.messages import Peer, Roster

SESSION: Final = "session.json"
SIGNED: Final = "signed.json"  # who was in the sums of the last rounds
IDENTITY: Final = "identity.key"  # of a simulated client
ROUNDS: Final = 64  # for which a client knows whom it was summed with; it refuses older ones

# Arrays of messages
DIGEST: Final = "secure_digest"
KEYS: Final = "secure_keys"
ROSTER: Final = "secure_roster"
SEALED: Final = "secure_sealed"
MASKED: Final = "secure_masked"
COMPLAINTS: Final = "secure_complaints"
SURVIVORS: Final = "secure_survivors"
SIGNATURES: Final = "secure_signatures"
SHARES: Final = "secure_shares"


def session_name(federation: str, t: int, digest_of_download: str) -> str:
    """What a session is bound to."""
    return f"{federation}/{t}/{digest_of_download}"


@dataclass(frozen=True)
class SecureClient:
    """The sessions of one client in one federation, one at a time."""

    folder: Path
    federation: str
    t: int

    def keys(self, received: Message, context: Context) -> Message:
        """Begin a session: the former one is forgotten, and cannot be resumed."""
        own, _ = identity(context, self.folder)
        with self._locked():
            name = session_name(self.federation, self.t, str(messages.unpacked(received[DIGEST], "digest")))
            state = client.advertise(name, own)
            self._save(state)
        return {KEYS: messages.packed(state.own)}

    def shares(self, received: Message, context: Context) -> Message:
        """Shares for the others of a roster."""
        _, trusted = identity(context, self.folder)
        entries = messages.unpacked(received[ROSTER], "roster")
        advertisements = tuple(messages.advertisement(entry) for entry in entries)
        with self._locked():
            state = self._session()
            state, sealed = client.deal(state, Roster(state.session, advertisements), trusted)
            self._save(state)
        return {SEALED: messages.packed(sealed)}

    def train(self, received: Message, train: Callable[[Message, int], Words]) -> Message:
        """The masked words of a download, once trained: the one to which the session is bound, and no other."""
        down = {name: array for name, array in received.items() if name != SEALED}
        sealed = messages.texts(messages.unpacked(received[SEALED], "shares"), "shares")
        state = self._session()
        if state.session != session_name(self.federation, self.t, digest(down)):
            raise SecureAggregationError("the download is not the one for which the others have signed their keys")
        words = train(down, len(state.others))  # without the lock: a server that was restarted begins another session
        with self._locked():
            now = self._session()
            if now.own != state.own:
                raise SecureAggregationError("another session has begun while this one was trained")
            now, masked, complaints = client.mask(now, sealed, words)
            self._save(now)
        return {MASKED: masked, COMPLAINTS: messages.packed(complaints)}

    def confirm(self, received: Message) -> Message:
        """The signature of those who are in the sum."""
        survivors = list(messages.unpacked(received[SURVIVORS], "survivors"))
        with self._locked():
            state, signature = client.confirm(self._session(), survivors)
            self._remember(state.survivors)
            self._save(state)
        return {SIGNATURES: messages.packed(signature)}

    def reveal(self, received: Message) -> Message:
        """Shares, by which the sum is unmasked."""
        signatures = messages.texts(messages.unpacked(received[SIGNATURES], "signatures"), "signatures")
        with self._locked():
            state, revealed = client.reveal(self._session(), signatures)
            self._save(state)
        return {SHARES: messages.packed(revealed)}

    def _remember(self, survivors: Collection[Peer]) -> None:
        """Refuse a second sum of a round with other clients: the difference of two would be a client's upload.

        A round that is run again after a crash has the same draws, so that the same clients have the same sum again.
        """
        signed: dict[str, list[Peer]] = self._read(SIGNED) or {}
        before = signed.get(str(self.t))
        if before is not None and before != list(survivors):
            raise SecureAggregationError(
                f"round {self.t + 1} was summed with other clients before, and the difference would be a client's "
                "upload; the round stays without an update of this cluster"
            )
        if before is None and len(signed) >= ROUNDS and self.t < min(map(int, signed)):
            raise SecureAggregationError(f"round {self.t + 1} is too long ago for a sum")
        signed[str(self.t)] = list(survivors)
        for old in sorted(signed, key=int)[:-ROUNDS]:
            del signed[old]
        write_atomically(self.folder / SIGNED, json.dumps(signed).encode())

    def _session(self) -> ClientState:
        stored = self._read(SESSION)
        state = None if stored is None else ClientState.restored(stored)
        if state is None or not state.session.startswith(f"{self.federation}/{self.t}/"):
            raise SecureAggregationError(f"this client is in no session of round {self.t + 1}")
        return state

    def _save(self, state: ClientState) -> None:
        write_atomically(self.folder / SESSION, json.dumps(state.plain()).encode())

    def _read(self, name: str) -> Any:
        try:
            return json.loads((self.folder / name).read_bytes())
        except FileNotFoundError:
            return None

    def _locked(self) -> AbstractContextManager[None]:
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        return locked(self.folder)


def identity(context: Context, folder: Path) -> tuple[Identity, Mapping[Peer, str] | None]:
    """The key of a client, and whom it trusts: a simulated one has a key of its own, and trusts everybody."""
    if not context.run_config or settings.read(context.run_config)[0].identity == "partition-id":
        return _simulated(folder), None
    named = {name: context.node_config.get(name) for name in ("node-key", "trusted-sites")}
    if missing := [name for name, value in named.items() if not value]:
        raise SecureAggregationError(
            f"secure = true: this site was started without {' and '.join(missing)}; the start.sh that 'pacfl deploy "
            "init' writes names them, and docs/deployment.md says what is in trusted-sites"
        )
    return Identity.read(Path(str(named["node-key"]))), read_trusted(Path(str(named["trusted-sites"])))


def _simulated(folder: Path) -> Identity:
    path = folder / IDENTITY
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    with locked(folder):
        if not path.exists():
            key = Ed25519PrivateKey.generate()
            write_atomically(path, key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()))
    return Identity.read(path)
