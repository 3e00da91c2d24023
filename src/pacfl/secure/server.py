"""The server's side of a session: pass on sealed shares, and remove the masks from the sum of masked words."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from pacfl.errors import SecureAggregationError
from pacfl.secure import masks, messages, shamir
from pacfl.secure.client import pair_mask, seed_key
from pacfl.secure.masks import Words
from pacfl.secure.messages import Kind, Peer, Roster, Shares, to_text

Reasons = Mapping[Peer, str]


class UnmaskingError(SecureAggregationError):
    """A sum that cannot be unmasked."""

    def __init__(self, why: str, blamed: Reasons) -> None:
        """Whose fault it is, with the reason."""
        super().__init__(why)
        self.blamed = blamed


@dataclass(frozen=True, eq=False)
class Sum:
    """The sum of the words of all survivors."""

    words: Words
    blamed: dict[Peer, str] = field(default_factory=dict)  # who sent wrong shares, although there were enough others


def routed(sealed: Mapping[Peer, Mapping[Peer, str]]) -> dict[Peer, dict[Peer, str]]:
    """Sealed shares by holder, from those by dealer, among those who have dealt."""
    return {h: {d: own[h] for d, own in sealed.items() if d != h and h in own} for h in sealed}


def unmask(
    roster: Roster, dealers: Collection[Peer], masked: Mapping[Peer, Words], revealed: Mapping[Peer, Shares]
) -> Sum:
    """The sum of what the clients of `masked` had masked. Wrong shares are named, and not used."""
    blamed: dict[Peer, str] = {}
    total: Words = np.sum(np.stack(list(masked.values())), axis=0, dtype=np.uint64)
    problems = []
    for peer in sorted(dealers):
        kind: Kind = "seed" if peer in masked else "masking"
        try:
            secret = _recovered(roster, kind, peer, revealed, blamed)
        except SecureAggregationError as problem:
            problems.append(str(problem))
            continue
        if kind == "seed":
            total = total - masks.keystream(seed_key(roster, secret), len(total))
            continue
        for survivor in masked:  # each of them added the opposite of what the lost one would have added
            total = total + pair_mask(roster, secret, peer, survivor, len(total))
    if problems:
        raise UnmaskingError("; ".join(problems), blamed)
    return Sum(total, blamed)


def _recovered(
    roster: Roster, kind: Kind, dealer: Peer, revealed: Mapping[Peer, Shares], blamed: dict[Peer, str]
) -> bytes:
    """A secret of which others hold shares: one of the dealer's, compared with what it had advertised."""
    valid: dict[int, int] = {}
    for holder, held in revealed.items():
        share = held[kind].get(dealer)
        if share is not None and roster.is_of_dealer(share, kind, dealer, holder):
            valid[roster.place(holder)] = share.y
        elif share is not None:
            blamed[holder] = f"revealed a share that {dealer} has not signed"
    if len(valid) < roster.threshold:
        raise SecureAggregationError(
            f"{len(valid)} valid shares of {dealer} were revealed, expected {roster.threshold} or more"
        )
    chosen = dict(sorted(valid.items())[: roster.threshold])
    secret = shamir.combine(chosen)
    if secret < 2 ** (8 * masks.KEY):
        content = secret.to_bytes(masks.KEY, "big")
        if _shown(kind, content) == getattr(roster[dealer], "commitment" if kind == "seed" else "masking"):
            return content
    blamed[dealer] = "dealt and signed shares of something else than it had advertised"
    raise SecureAggregationError(f"the shares of {dealer} do not fit together")


def _shown(kind: Kind, secret: bytes) -> str:
    if kind == "seed":
        return messages.commitment(secret)
    return to_text(X25519PrivateKey.from_private_bytes(secret).public_key().public_bytes_raw())
