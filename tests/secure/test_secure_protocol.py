"""Sessions of secure aggregation: the sum and nothing else, whoever is lost, and whoever does not follow it."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from scipy.stats import chisquare, ks_2samp

from pacfl.errors import SecureAggregationError
from pacfl.secure import client, masks, server, shamir, simulation
from pacfl.secure.client import ClientState
from pacfl.secure.identity import Identity, fingerprint
from pacfl.secure.masks import Words
from pacfl.secure.messages import Peer, Roster, Share, advertisement, packed, shares, to_bytes, to_text, unpacked

IDENTITIES = [Identity.ephemeral() for _ in range(10)]
PEERS = [fingerprint(identity.public) for identity in IDENTITIES]
BY_CHANCE = 1e-6


def inputs(n: int, d: int = 7, seed: int = 0) -> list[Words]:
    rng = np.random.default_rng(seed)
    return [rng.integers(0, 2**64, d, dtype=np.uint64) for _ in range(n)]


def total(words: list[Words], *without: int) -> Words:
    chosen = [own for i, own in enumerate(words) if i not in without]
    return np.sum(chosen, axis=0, dtype=np.uint64)  # type: ignore[no-any-return]


def session(words: list[Words], **options: Any) -> simulation.Session:
    return simulation.run(words, identities=IDENTITIES[: len(words)], **options)


def found(done: simulation.Session) -> Words:
    assert done.total is not None
    return done.total.words


# The sum


@pytest.mark.parametrize("n", [3, 4, 5, 10])
def test_the_sum_is_exact(n: int) -> None:
    words = inputs(n)
    assert np.array_equal(found(session(words)), total(words))


@pytest.mark.parametrize("stage", ["deal", "mask", "confirm", "reveal"])
@pytest.mark.parametrize("who", [0, 4])
def test_one_lost_of_five_is_survived_at_each_stage(stage: str, who: int) -> None:
    """Whoever had sent its masked words before it was lost is in the sum."""
    words = inputs(5)
    without = (who,) if stage in ("deal", "mask") else ()
    assert np.array_equal(found(session(words, lost={stage: [who]})), total(words, *without))


def test_several_are_lost_at_different_stages() -> None:
    words = inputs(10)
    done = session(words, lost={"deal": [1], "mask": [9], "confirm": [4]})
    assert np.array_equal(found(done), total(words, 1, 9))


@pytest.mark.parametrize(("stage", "why"), [("mask", "a sum of 3 of 5"), ("deal", "3 clients dealt shares")])
def test_a_sum_of_too_few_is_refused_by_the_clients(stage: str, why: str) -> None:
    with pytest.raises(SecureAggregationError, match=why):
        session(inputs(5), lost={stage: [0, 1]})


def test_without_enough_shares_there_is_no_sum() -> None:
    with pytest.raises(server.UnmaskingError, match="3 valid shares"):
        session(inputs(5), lost={"reveal": [0, 1]})


@pytest.mark.parametrize("n", [1, 2])
def test_two_clients_have_no_sum(n: int) -> None:
    with pytest.raises(SecureAggregationError, match="fewer than 3 is no secret"):
        session(inputs(n))


# What the server sees


def without_own_masks(done: simulation.Session) -> dict[Peer, Words]:
    """What the server can compute of each upload in the end: own masks are removed by what was revealed to it."""
    seeds = {}
    for dealer in done.masked:
        held = {done.roster.place(h): r["seed"][dealer].y for h, r in done.revealed.items()}
        chosen = dict(list(held.items())[: done.roster.threshold])
        seeds[dealer] = shamir.combine(chosen).to_bytes(masks.KEY, "big")
    keys = {peer: client.seed_key(done.roster, seed) for peer, seed in seeds.items()}
    return {peer: done.masked[peer] - masks.keystream(keys[peer], len(done.masked[peer])) for peer in keys}


@pytest.mark.parametrize("view", [lambda done: done.masked, without_own_masks], ids=["uploads", "after unmasking"])
def test_the_servers_view_has_the_same_distribution_for_inputs_of_equal_sum(
    view: Callable[[simulation.Session], Mapping[Peer, Words]],
) -> None:
    """Each client's upload is uniform over all words, whatever its input, and alike for two sets of inputs."""
    d = 4096
    zero = [np.zeros(d, dtype=np.uint64)] * 4
    large = [np.full(d, x, dtype=np.int64).view(np.uint64) for x in (2**40, -(2**40), 7, -7)]
    views: list[list[Words]] = [[view(session(x))[peer] for peer in PEERS[:4]] for x in (zero, large)]
    for one, other in zip(*views, strict=True):
        for words in (one, other):
            counts = np.bincount(words.view(np.uint8), minlength=256)
            assert chisquare(counts).pvalue > BY_CHANCE
        assert ks_2samp(one.astype(np.float64), other.astype(np.float64)).pvalue > BY_CHANCE
        assert abs(np.corrcoef(one.astype(np.float64), other.astype(np.float64))[0, 1]) < 5.5 / d**0.5


def test_for_other_inputs_of_the_same_sum_other_masks_give_the_same_view(monkeypatch: pytest.MonkeyPatch) -> None:
    """The exact argument. Input changes d_1 + ... + d_n = 0 are undone by the masks of neighbouring pairs.

    The mask of clients i and i + 1 is lowered by d_1 + ... + d_i. That maps uniform masks one to one onto uniform
    masks, so each view has the same probability for both sets of inputs.
    """
    words, changes = inputs(5), inputs(5, seed=1)
    changes[-1] = -total(changes, 4)
    states = {state.peer: state for state in (client.advertise("s", identity) for identity in IDENTITIES[:5])}
    roster = Roster.of("s", [state.own for state in states.values()])
    order = list(roster.peers)
    dealt = {}
    for peer in order:
        states[peer], dealt[peer] = client.deal(states[peer], roster, None)
    sealed = server.routed(dealt)
    first = [client.mask(states[peer], sealed[peer], x)[1] for peer, x in zip(order, words, strict=True)]

    lowered = {}
    for i, (one, other) in enumerate(pairwise(order)):
        purpose = client.messages.statement("pair", roster.transcript, one, other)
        key = masks.agree(to_bytes(states[one].secrets["masking"]), to_bytes(roster[other].masking), purpose)
        lowered[key] = total(changes[: i + 1])
    keystream = masks.keystream
    monkeypatch.setattr(masks, "keystream", lambda key, n: keystream(key, n) - lowered.get(key, np.uint64(0)))
    changed = [x + dx for x, dx in zip(words, changes, strict=True)]
    second = [client.mask(states[peer], sealed[peer], x)[1] for peer, x in zip(order, changed, strict=True)]
    assert all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))
    assert np.array_equal(total(changed), total(words))
    assert not np.array_equal(changed[0], words[0])


def test_the_same_input_is_masked_otherwise_in_each_session() -> None:
    words = inputs(3)
    one, other = session(words), session(words)
    assert not any((one.masked[peer] == other.masked[peer]).any() for peer in PEERS[:3])


# Servers that do not follow the protocol


def confirmed(n: int = 5, lost: int | None = None) -> tuple[dict[Peer, ClientState], dict[Peer, str], Roster]:
    """The clients of a session, after they have confirmed who is in the sum."""
    states = {state.peer: state for state in (client.advertise("s", identity) for identity in IDENTITIES[:n])}
    roster = Roster.of("s", [state.own for state in states.values()])
    dealt = {}
    for peer in states:
        states[peer], dealt[peer] = client.deal(states[peer], roster, set(PEERS))
    sealed = server.routed(dealt)
    for peer, words in zip(states, inputs(n), strict=True):
        states[peer], _, _ = client.mask(states[peer], sealed[peer], words)
    survivors = [peer for i, peer in enumerate(states) if i != lost]
    confirmations = {}
    for peer in survivors:
        states[peer], confirmations[peer] = client.confirm(states[peer], survivors)
    return states, confirmations, roster


def test_no_client_reveals_both_shares_of_one() -> None:
    states, confirmations, _ = confirmed(lost=2)
    for peer, signatures in ((peer, confirmations) for peer in confirmations):
        _, revealed = client.reveal(states[peer], signatures)
        assert set(revealed["seed"]) == set(confirmations)
        assert set(revealed["masking"]) == {PEERS[2]}


def test_a_server_that_asks_for_both_shares_of_one_client_is_refused() -> None:
    """It shows one part of the clients that all survived, and the others that client 4 was lost."""
    states, _, _ = confirmed()
    with pytest.raises(SecureAggregationError, match="another set of clients was signed already"):
        client.confirm(states[PEERS[0]], PEERS[:4])
    fresh = {peer: replace(state, stage="masked", survivors=()) for peer, state in states.items()}
    confirmations = {}
    for i, peer in enumerate(PEERS[:5]):
        shown = PEERS[:5] if i < 3 else PEERS[:4] if peer != PEERS[4] else PEERS[:5]
        fresh[peer], confirmations[peer] = client.confirm(fresh[peer], shown)
    for i in (3,):
        with pytest.raises(SecureAggregationError, match="could ask for both shares of one"):
            client.reveal(fresh[PEERS[i]], confirmations)


def test_after_it_has_revealed_a_client_has_nothing_left() -> None:
    states, confirmations, _ = confirmed()
    after, _ = client.reveal(states[PEERS[0]], confirmations)
    assert not after.secrets
    assert not after.shares
    for step in (lambda: client.reveal(after, confirmations), lambda: client.confirm(after, PEERS[:5])):
        with pytest.raises(SecureAggregationError, match="has revealed in the session"):
            step()


@pytest.mark.parametrize(
    ("survivors", "why"),
    [(PEERS[1:5], "this one among them"), ([*PEERS[:4], PEERS[7]], "must have dealt shares"), (PEERS[:3], "needs 4")],
)
def test_sets_of_survivors_that_make_no_sense_are_refused(survivors: list[Peer], why: str) -> None:
    states, _, _ = confirmed()
    masked = replace(states[PEERS[0]], stage="masked", survivors=())
    with pytest.raises(SecureAggregationError, match=why):
        client.confirm(masked, survivors)


def test_confirmations_are_counted_only_if_they_are_signed() -> None:
    states, confirmations, _ = confirmed()
    forged = {**confirmations, **dict.fromkeys(PEERS[:2], to_text(bytes(64)))}
    with pytest.raises(SecureAggregationError, match="3 clients have signed"):
        client.reveal(states[PEERS[0]], forged)


def test_words_are_masked_once() -> None:
    """Two inputs under one mask would show their difference."""
    states, _, _ = confirmed()
    with pytest.raises(SecureAggregationError, match="has confirmed in the session, expected one that has dealt"):
        client.mask(states[PEERS[0]], {}, inputs(1)[0])


def test_a_server_cannot_put_its_own_keys_between_two_clients() -> None:
    """Neither with a key that it signs itself, nor with the name of a client that has signed another."""
    states = [client.advertise("s", identity) for identity in IDENTITIES[:4]]
    own = client.advertise("s", Identity.ephemeral()).own
    strangers = Roster("s", tuple(sorted((own, *(s.own for s in states[:3])), key=lambda a: fingerprint(a.public))))
    with pytest.raises(SecureAggregationError, match="is not among the sites that this one trusts"):
        client.deal(states[0], strangers, set(PEERS))
    forged = replace(own, public=states[3].own.public)
    middle = Roster("s", (states[0].own, states[1].own, states[2].own, forged))
    with pytest.raises(SecureAggregationError, match="are not signed by it for this session"):
        client.deal(states[0], middle, set(PEERS))


def test_keys_of_another_session_are_refused() -> None:
    states = [client.advertise("s", identity) for identity in IDENTITIES[:3]]
    old = client.advertise("r", IDENTITIES[2]).own
    with pytest.raises(SecureAggregationError, match="not signed by it for this session"):
        client.deal(states[0], Roster("s", (states[0].own, states[1].own, old)), None)


def test_a_roster_without_the_client_or_with_one_twice_is_refused() -> None:
    states = [client.advertise("s", identity) for identity in IDENTITIES[:5]]
    with pytest.raises(SecureAggregationError, match="not in the roster"):
        client.deal(states[0], Roster("s", tuple(s.own for s in states[1:])), None)
    with pytest.raises(SecureAggregationError, match="same key"):
        Roster.of("s", [states[0].own, states[1].own, states[1].own])


def test_shares_that_the_server_changed_are_not_blamed_on_their_dealer() -> None:
    def changed(peer: Peer, sealed: dict[Peer, str]) -> dict[Peer, str]:
        if peer != PEERS[0]:
            return sealed
        return {holder: f"{to_text(bytes(99))} {text.split()[1]}" for holder, text in sealed.items()}

    with pytest.raises(SecureAggregationError, match="were changed on their way"):
        session(inputs(5), tamper={"deal": changed})


# Clients that do not follow it


def wrong(share: Share) -> Share:
    return replace(share, value=to_text(((share.y + 1) % shamir.PRIME).to_bytes(shamir.LENGTH, "big")))


@pytest.mark.parametrize("lost", [(), (0,)])
def test_a_site_that_sends_a_wrong_share_is_named(lost: tuple[int, ...]) -> None:
    """With ten clients seven shares are enough, so the sum is right all the same."""
    words = inputs(10)

    def lying(peer: Peer, revealed: Any) -> Any:
        if peer != PEERS[6]:
            return revealed
        return {kind: {dealer: wrong(share) for dealer, share in own.items()} for kind, own in revealed.items()}

    done = session(words, lost={"mask": lost}, tamper={"reveal": lying})
    assert done.total is not None
    assert set(done.total.blamed) == {PEERS[6]}
    assert "has not signed" in done.total.blamed[PEERS[6]]
    assert np.array_equal(done.total.words, total(words, *lost))


def test_a_site_that_deals_shares_of_something_else_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its shares are signed, so nobody else can have made them."""
    deal = client.deal

    def lying(state: ClientState, *others: Any) -> Any:
        if state.peer == PEERS[1]:
            after, sealed = deal(replace(state, secrets={**state.secrets, "seed": to_text(bytes(32))}), *others)
            return replace(after, secrets=state.secrets), sealed
        return deal(state, *others)

    monkeypatch.setattr(client, "deal", lying)
    with pytest.raises(server.UnmaskingError, match="do not fit together") as refusal:
        session(inputs(5))
    assert set(refusal.value.blamed) == {PEERS[1]}


def test_a_site_that_deals_what_cannot_be_opened_is_named_by_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    words, sealing_key = inputs(5), client._sealing_key

    def other_key(state: ClientState, roster: Roster, dealer: Peer, holder: Peer, other: Peer) -> bytes:
        key = sealing_key(state, roster, dealer, holder, other)
        return bytes(32) if state.peer == dealer == PEERS[3] and holder == PEERS[0] else key

    monkeypatch.setattr(client, "_sealing_key", other_key)
    done = session(words)
    assert {p: c for p, c in done.complaints.items() if c} == {
        PEERS[0]: {PEERS[3]: "dealt shares that cannot be opened"}
    }
    assert np.array_equal(found(done), total(words))  # the other four have shares of it


# Messages


def test_a_state_is_restored_from_text_at_every_stage() -> None:
    def again(state: ClientState) -> ClientState:
        restored = ClientState.restored(json.loads(json.dumps(state.plain())))
        assert restored == state
        return restored

    states = {state.peer: again(state) for state in (client.advertise("s", i) for i in IDENTITIES[:3])}
    roster = Roster.of("s", [state.own for state in states.values()])
    dealt = {}
    for peer in states:
        after, dealt[peer] = client.deal(states[peer], roster, None)
        states[peer] = again(after)
    sealed, words, masked = server.routed(dealt), inputs(3), {}
    for peer, own in zip(states, words, strict=True):
        after, masked[peer], _ = client.mask(states[peer], sealed[peer], own)
        states[peer] = again(after)
    signed = {peer: client.confirm(states[peer], masked) for peer in states}
    confirmations = {peer: signature for peer, (_, signature) in signed.items()}
    revealed = {peer: client.reveal(again(state), confirmations) for peer, (state, _) in signed.items()}
    assert all(again(state) for state, _ in revealed.values())
    shown = {peer: own for peer, (_, own) in revealed.items()}
    assert np.array_equal(server.unmask(roster, masked, masked, shown).words, total(words))


def test_private_keys_are_not_in_what_is_printed() -> None:
    state = client.advertise("s", IDENTITIES[0])
    assert not any(secret in repr(state) for secret in state.secrets.values())


@pytest.mark.parametrize(
    "forged",
    [
        lambda: unpacked(np.frombuffer(b"{", dtype=np.uint8), "x"),
        lambda: advertisement({"public": 1}),
        lambda: advertisement({"public": "x", "more": "y"}),
        lambda: shares({"seed": []}),
        lambda: to_bytes("?"),
    ],
)
def test_messages_that_are_none_are_refused(forged: Callable[[], object]) -> None:
    with pytest.raises(SecureAggregationError):
        forged()


def test_messages_arrive_as_they_were_sent() -> None:
    own = client.advertise("s", IDENTITIES[0]).own
    assert advertisement(unpacked(packed(own), "keys")) == own
