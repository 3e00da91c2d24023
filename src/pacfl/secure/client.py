"""A client's side of a session: advertise keys, deal shares, mask, confirm who is in the sum, reveal.

Each function takes the state that the one before it returned. A client that is asked for another step, or whose peers
are not those that it trusts, raises SecureAggregationError, and nothing of its data is lost by that.
"""

import secrets
from collections.abc import Collection, Container, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final, Literal

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from pacfl.errors import SecureAggregationError
from pacfl.secure import masks, messages, shamir
from pacfl.secure.identity import Identity, fingerprint
from pacfl.secure.masks import Words
from pacfl.secure.messages import KINDS, Advertisement, Kind, Peer, Roster, Share, Shares, to_bytes, to_text

Stage = Literal["advertised", "dealt", "masked", "confirmed", "revealed"]
NONCE: Final = 12  # bytes


@dataclass(frozen=True)
class ClientState:
    """What a client remembers between two messages of a session."""

    stage: Stage
    session: str
    own: Advertisement
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)  # private keys and the seed, in base 64
    others: tuple[Advertisement, ...] = ()  # of the roster, the own one included
    shares: Shares = field(default_factory=dict, repr=False)  # that this client holds
    dealers: tuple[Peer, ...] = ()  # who dealt shares, and so is in the masks
    survivors: tuple[Peer, ...] = ()  # whom this client has signed to be in the sum

    @property
    def roster(self) -> Roster:
        """All clients of the session; checked when it came."""
        return Roster(self.session, self.others)

    @property
    def peer(self) -> Peer:
        """The fingerprint of the client."""
        return fingerprint(self.own.public)

    def plain(self) -> dict[str, Any]:
        """As plain values, to be stored where nobody else can read them."""
        return asdict(self)

    @classmethod
    def restored(cls, plain: Mapping[str, Any]) -> "ClientState":
        """The state that `plain` describes."""
        others = tuple(Advertisement(**a) for a in plain["others"])
        held = messages.shares(plain["shares"]) if plain["shares"] else {}
        named = {"own": Advertisement(**plain["own"]), "others": others, "shares": held}
        return cls(**{**plain, **named, "dealers": tuple(plain["dealers"]), "survivors": tuple(plain["survivors"])})


def advertise(session: str, identity: Identity) -> ClientState:
    """Keys for one session, and a seed. The advertisement is `own`."""
    exchange = {name: X25519PrivateKey.generate() for name in ("encryption", "masking")}
    signing, seed = Ed25519PrivateKey.generate(), secrets.token_bytes(masks.KEY)
    public = {name: to_text(key.public_key().public_bytes_raw()) for name, key in exchange.items()}
    own = Advertisement(
        identity.public,
        **public,
        signing=to_text(signing.public_key().public_bytes_raw()),
        commitment=messages.commitment(seed),
    )
    own = replace(own, signature=to_text(identity.sign(own.signed(session))))
    private = {name: to_text(key.private_bytes_raw()) for name, key in exchange.items()}
    others = {"signing": to_text(signing.private_bytes_raw()), "seed": to_text(seed)}
    return ClientState("advertised", session, own, {**private, **others})


def deal(state: ClientState, roster: Roster, trusted: Container[Peer] | None) -> tuple[ClientState, dict[Peer, str]]:
    """Shares of the own seed and masking key for every other client of a roster, sealed.

    trusted: the fingerprints of all clients that may be in a sum with this one; None in simulations only.
    """
    _expect(state, "advertised")
    roster = Roster.of(state.session, roster.advertisements)
    if state.own not in roster.advertisements:
        raise SecureAggregationError("the keys of this client are not in the roster")
    if trusted is not None and (strangers := [peer for peer in roster.peers if peer not in trusted]):
        raise SecureAggregationError(
            f"{strangers[0]} is not among the sites that this one trusts; compare the fingerprint with that site over "
            "another channel, and add it to trusted-sites"
        )
    of = _shares(state, roster)
    own = {kind: {state.peer: of[state.peer][kind]} for kind in KINDS}
    sealed = {peer: _seal(state, roster, peer, of[peer]) for peer in roster.peers if peer != state.peer}
    return replace(state, stage="dealt", others=roster.advertisements, shares=own), sealed


def mask(state: ClientState, sealed: Mapping[Peer, str], words: Words) -> tuple[ClientState, Words, dict[Peer, str]]:
    """The words, masked; and who dealt shares that cannot be used, with the reason.

    sealed: what the others have dealt to this client. Those that are missing are not in the sum.
    """
    _expect(state, "dealt")
    roster = state.roster
    dealers = (*sorted(sealed), state.peer)
    if len(set(dealers)) < len(dealers) or len(dealers) < roster.threshold:
        raise SecureAggregationError(f"{len(dealers)} clients dealt shares, expected {roster.threshold} or more")
    held: dict[Kind, dict[Peer, Share]] = {kind: dict(state.shares[kind]) for kind in KINDS}
    complaints = {}
    for dealer, text in sealed.items():
        try:
            opened = _open(state, roster, dealer, text)
        except _WrongShareError as error:
            complaints[dealer] = str(error)
        else:
            for kind in KINDS:
                held[kind][dealer] = opened[kind]
    masked = words + masks.keystream(seed_key(roster, to_bytes(state.secrets["seed"])), len(words))
    for peer in sealed:
        masked = masked + pair_mask(roster, to_bytes(state.secrets["masking"]), state.peer, peer, len(words))
    return replace(state, stage="masked", shares=held, dealers=tuple(sorted(dealers))), masked, complaints


def confirm(state: ClientState, survivors: Collection[Peer]) -> tuple[ClientState, str]:
    """The signature of the clients whose masked words are in the sum. No other clients are signed after that."""
    ordered = tuple(sorted(set(survivors)))
    if state.stage == "confirmed" and ordered != state.survivors:
        raise SecureAggregationError("another set of clients was signed already: one sum of a session is unmasked")
    if state.stage != "confirmed":
        _expect(state, "masked")
    if state.peer not in ordered or not set(ordered) <= set(state.dealers):
        raise SecureAggregationError("the clients of a sum must have dealt shares, this one among them")
    if len(ordered) < state.roster.threshold:
        raise SecureAggregationError(
            f"a sum of {len(ordered)} of {len(state.others)} clients is refused: it needs {state.roster.threshold}"
        )
    return replace(state, stage="confirmed", survivors=ordered), _sign(state, state.roster.survivors_statement(ordered))


def reveal(state: ClientState, confirmations: Mapping[Peer, str]) -> tuple[ClientState, Shares]:
    """Shares of the seeds of those who are in the sum, and of the masking keys of those who are not.

    Never both of one client: the sets are those that more than two thirds of the clients have signed. The state is
    emptied, so that nothing of this session can be asked for again.
    """
    _expect(state, "confirmed")
    text, roster = state.roster.survivors_statement(state.survivors), state.roster
    valid = [p for p, s in confirmations.items() if p in state.survivors and roster.is_signed(p, text, s)]
    if len(valid) < roster.threshold:
        raise SecureAggregationError(
            f"{len(valid)} clients have signed who is in the sum, expected {roster.threshold} or more: a server that "
            "shows different sets to different clients could ask for both shares of one"
        )
    gone = set(state.dealers) - set(state.survivors)
    chosen: dict[Kind, set[Peer]] = {"seed": set(state.survivors), "masking": gone}
    revealed = {kind: {p: s for p, s in state.shares[kind].items() if p in chosen[kind]} for kind in KINDS}
    return ClientState("revealed", state.session, state.own), revealed


# What the server computes, too


def seed_key(roster: Roster, seed: bytes) -> bytes:
    """The key of the mask that a client has of its own."""
    return masks.derive(seed, messages.statement("own mask", roster.transcript))


def pair_mask(roster: Roster, private: bytes, own: Peer, other: Peer, n: int) -> Words:
    """What a client adds for another one: the other adds the opposite, modulo 2^64."""
    purpose = messages.statement("pair", roster.transcript, *sorted((own, other)))
    stream = masks.keystream(masks.agree(private, to_bytes(roster[other].masking), purpose), n)
    return stream if own < other else -stream


# Shares


class _WrongShareError(Exception):
    """A dealer's fault."""


def _shares(state: ClientState, roster: Roster) -> dict[Peer, dict[Kind, Share]]:
    """Of both secrets, for every client."""
    of: dict[Peer, dict[Kind, Share]] = {peer: {} for peer in roster.peers}
    for kind in KINDS:
        secret = int.from_bytes(to_bytes(state.secrets[kind]), "big")
        for peer, y in zip(roster.peers, shamir.split(secret, len(roster.peers), roster.threshold), strict=True):
            value = to_text(y.to_bytes(shamir.LENGTH, "big"))
            of[peer][kind] = Share(value, _sign(state, roster.share_statement(kind, state.peer, peer, value)))
    return of


def _seal(state: ClientState, roster: Roster, holder: Peer, shares: Mapping[Kind, Share]) -> str:
    """Shares for one holder: encrypted for it, and signed."""
    parts = [part for kind in KINDS for part in (shares[kind].value, shares[kind].signature)]
    key = _sealing_key(state, roster, state.peer, holder, holder)
    nonce = secrets.token_bytes(NONCE)
    sealed = to_text(nonce + ChaCha20Poly1305(key).encrypt(nonce, "\n".join(parts).encode(), roster.transcript))
    return f"{sealed} {_sign(state, _sealed_statement(roster, state.peer, holder, sealed))}"


def _open(state: ClientState, roster: Roster, dealer: Peer, text: str) -> dict[Kind, Share]:
    sealed, _, signature = text.partition(" ")
    if not roster.is_signed(dealer, _sealed_statement(roster, dealer, state.peer, sealed), signature):
        raise SecureAggregationError(f"the shares of {dealer} were changed on their way")
    key = _sealing_key(state, roster, dealer, state.peer, dealer)
    try:
        content = to_bytes(sealed)
        text = ChaCha20Poly1305(key).decrypt(content[:NONCE], content[NONCE:], roster.transcript).decode()
        parts = text.split("\n")
        opened = {kind: Share(*parts[2 * i : 2 * i + 2]) for i, kind in enumerate(KINDS)}
    except (InvalidTag, ValueError, TypeError, SecureAggregationError):
        raise _WrongShareError("dealt shares that cannot be opened") from None
    for kind, share in opened.items():
        if not roster.is_of_dealer(share, kind, dealer, state.peer):
            raise _WrongShareError("dealt shares that it has not signed")
    return opened


def _sealing_key(state: ClientState, roster: Roster, dealer: Peer, holder: Peer, other: Peer) -> bytes:
    purpose = messages.statement("seal", roster.transcript, dealer, holder)
    return masks.agree(to_bytes(state.secrets["encryption"]), to_bytes(roster[other].encryption), purpose)


def _sealed_statement(roster: Roster, dealer: Peer, holder: Peer, sealed: str) -> bytes:
    return messages.statement("sealed", roster.transcript, dealer, holder, sealed)


def _sign(state: ClientState, text: bytes) -> str:
    return to_text(Ed25519PrivateKey.from_private_bytes(to_bytes(state.secrets["signing"])).sign(text))


def _expect(state: ClientState, stage: Stage) -> None:
    if state.stage != stage:
        raise SecureAggregationError(f"this client has {state.stage} in the session, expected one that has {stage}")
