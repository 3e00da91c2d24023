"""What client and server send each other in a session, and what of it is signed."""

import hashlib
import json
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any, Final, Literal

import numpy as np
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from numpy.typing import NDArray

from pacfl.errors import SecureAggregationError
from pacfl.privacy.limits import FEWEST, MOST, threshold
from pacfl.secure.identity import fingerprint, is_signed

Peer = str  # the fingerprint of a client's own key
Kind = Literal["seed", "masking"]  # the two secrets of a client that others hold shares of
KINDS: Final[tuple[Kind, ...]] = ("seed", "masking")


def statement(*parts: str | bytes) -> bytes:
    """Parts as one text that is signed or hashed: no other parts make the same."""
    encoded = [part.encode() if isinstance(part, str) else part for part in ("pacfl secure aggregation 1", *parts)]
    return b"".join(len(part).to_bytes(8, "big") + part for part in encoded)


def commitment(seed: bytes) -> str:
    """What a client shows of its seed before it deals shares of it."""
    return to_text(hashlib.sha256(statement("seed", seed)).digest())


@dataclass(frozen=True)
class Advertisement:
    """A client's keys for one session, signed with its own key; bytes in base 64."""

    public: str  # its own key, as OpenSSH writes it
    encryption: str
    masking: str
    signing: str
    commitment: str
    signature: str = field(default="")

    def signed(self, session: str) -> bytes:
        """What the client signs."""
        return statement("keys", session, self.public, self.encryption, self.masking, self.signing, self.commitment)


@dataclass(frozen=True)
class Share:
    """A share of a secret, signed by who dealt it."""

    value: str
    signature: str

    @property
    def y(self) -> int:
        """The polynomial at the holder's place."""
        return int.from_bytes(to_bytes(self.value), "big")


Shares = Mapping[Kind, Mapping[Peer, Share]]  # those that a holder has, or reveals, by kind and dealer


@dataclass(frozen=True)
class Roster:
    """The clients of a session, in the order of their fingerprints."""

    session: str  # the federation, the round, and the digest of what is trained
    advertisements: tuple[Advertisement, ...]

    @classmethod
    def of(cls, session: str, advertisements: Iterable[Advertisement]) -> "Roster":
        """The roster of these clients, checked."""
        roster = cls(session, tuple(sorted(advertisements, key=lambda a: fingerprint(a.public))))
        if not FEWEST <= len(roster.peers) <= MOST:
            raise SecureAggregationError(
                f"{len(roster.peers)} clients: a sum of fewer than {FEWEST} is no secret, and of more than {MOST:,} "
                "may overflow"
            )
        for key in ("public", "encryption", "masking", "signing"):
            if len({getattr(a, key) for a in roster.advertisements}) < len(roster.peers):
                raise SecureAggregationError(f"two clients have the same key ({key})")
        for peer, own in zip(roster.peers, roster.advertisements, strict=True):
            if not is_signed(own.public, own.signed(session), to_bytes(own.signature)):
                raise SecureAggregationError(f"the keys of {peer} are not signed by it for this session")
        return roster

    @cached_property
    def peers(self) -> tuple[Peer, ...]:
        """Fingerprints."""
        return tuple(fingerprint(a.public) for a in self.advertisements)

    @property
    def threshold(self) -> int:
        """How many clients must stay."""
        return threshold(len(self.peers))

    @cached_property
    def transcript(self) -> bytes:
        """The digest to which everything in the session is bound: others have other keys."""
        texts = [json.dumps(asdict(a), sort_keys=True) for a in self.advertisements]
        return hashlib.sha256(statement("roster", self.session, *texts)).digest()

    def __getitem__(self, peer: Peer) -> Advertisement:
        try:
            return self.advertisements[self.peers.index(peer)]
        except ValueError:
            raise SecureAggregationError(f"{peer} is not in this session") from None

    def place(self, peer: Peer) -> int:
        """Where a client's shares are taken: from 1."""
        return self.peers.index(peer) + 1

    def share_statement(self, kind: Kind, dealer: Peer, holder: Peer, value: str) -> bytes:
        """What the dealer of a share signs."""
        return statement("share", self.transcript, kind, dealer, holder, value)

    def is_of_dealer(self, share: Share, kind: Kind, dealer: Peer, holder: Peer) -> bool:
        """Whether a share was signed by its dealer."""
        return self.is_signed(dealer, self.share_statement(kind, dealer, holder, share.value), share.signature)

    def survivors_statement(self, survivors: Iterable[Peer]) -> bytes:
        """What clients sign about who is in the sum."""
        return statement("survivors", self.transcript, *sorted(survivors))

    def is_signed(self, peer: Peer, text: bytes, signature: str) -> bool:
        """Whether a client signed a text with its key for this session."""
        try:
            Ed25519PublicKey.from_public_bytes(to_bytes(self[peer].signing)).verify(to_bytes(signature), text)
        except (InvalidSignature, ValueError):
            return False
        return True


def to_text(content: bytes) -> str:
    """Bytes in base 64."""
    return b64encode(content).decode()


def to_bytes(text: str) -> bytes:
    """Bytes from base 64."""
    try:
        return b64decode(text, validate=True)
    except ValueError:
        raise SecureAggregationError(f"{text[:20]!r} is not in base 64") from None


def packed(content: Any) -> NDArray[np.uint8]:
    """Dataclasses, mappings and lists of text, as an array of bytes."""
    return np.frombuffer(json.dumps(content, default=asdict, sort_keys=True).encode(), dtype=np.uint8)


def unpacked(array: NDArray[Any], what: str) -> Any:
    """The content of such an array: plain mappings, lists and text."""
    try:
        return json.loads(np.asarray(array, dtype=np.uint8).tobytes())
    except (ValueError, RecursionError):
        raise SecureAggregationError(f"the {what} cannot be read") from None


def texts(content: Any, what: str) -> dict[str, str]:
    """Text by text, checked."""
    if not isinstance(content, dict) or not all(isinstance(value, str) for value in content.values()):
        raise SecureAggregationError(f"the {what} must be texts by name")
    return content


def advertisement(content: Any) -> Advertisement:
    """An advertisement from plain values; its signature is checked in a roster."""
    try:
        return Advertisement(**texts(content, "keys"))
    except TypeError:
        raise SecureAggregationError(f"keys have fields {sorted(content)}") from None


def shares(content: Any) -> dict[Kind, dict[Peer, Share]]:
    """Shares from plain values; their signatures are checked where they are used."""
    try:
        return {kind: {dealer: Share(**texts(s, "share")) for dealer, s in content[kind].items()} for kind in KINDS}
    except (TypeError, KeyError, AttributeError):
        raise SecureAggregationError("shares must be texts by kind and dealer") from None
