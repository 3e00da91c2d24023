"""PACFL with private signatures."""

from dataclasses import replace
from typing import Literal

import numpy as np
import pytest

from pacfl.algorithms import PACFL, build
from pacfl.errors import InvalidReplyError
from pacfl.learning.randomness import stream
from pacfl.privacy import private_signature, seeded
from pacfl.subspace import adjusted_rand_index
from tests.small_federation import SEED, model, pool, same, side

# Clients 0..3 see digits upright, 4..7 negative
CLIENTS = pool(("upright", "negative"), (300, 310, 320, 330))


def test_private_signatures_find_the_domains_by_themselves() -> None:
    algorithm = PACFL(signature_epsilon=4.0, signature_noise="seeded")
    clients = side(algorithm, CLIENTS)
    state = algorithm.admit(algorithm.init_server(model()), {c: clients.profile(0, c) for c in range(8)})
    assert adjusted_rand_index([state.cluster_of[c] for c in range(8)], np.repeat([0, 1], 4)) == 1.0


def test_the_profile_is_the_private_signature() -> None:
    rows = CLIENTS.raw[CLIENTS.client_indices[2].train]
    made = private_signature(rows, 2, 100.0, 1e-6, seeded(np.random.default_rng(0)))
    algorithm = PACFL(rank=2, signature_epsilon=100.0, signature_delta=1e-6, compare="inputs")
    profile = side(algorithm, CLIENTS).profile(0, 2)
    assert profile["basis"].shape == made.basis.shape
    # With so much epsilon there is hardly any noise: the two differ by less than either says that it may
    cosine = float(np.linalg.svd(profile["basis"].T @ made.basis, compute_uv=False)[0])
    assert np.degrees(np.arccos(min(cosine, 1.0))) < made.split_half_angles["smallest"].max()


def test_inputs_alone_are_signed_as_without_labels() -> None:
    algorithm = PACFL(rank=2, signature_epsilon=1.0, signature_noise="seeded", compare="inputs")
    profile = side(algorithm, CLIENTS).profile(0, 2)
    rows = CLIENTS.raw[CLIENTS.client_indices[2].train]
    made = private_signature(rows, 2, 1.0, 1e-5, seeded(stream(SEED, "signature", 2)))
    assert set(profile) == {"basis", "split_half_angles"}
    assert np.array_equal(profile["basis"], made.basis.astype(np.float32))


@pytest.mark.parametrize("compare", ["auto", "classes"])
def test_clients_that_label_the_same_digits_otherwise_are_found(compare: Literal["auto", "classes"]) -> None:
    """Inputs do not differ: only private signatures of classes can show it."""
    same_digits = pool(("upright",), (300,) * 8)
    y = same_digits.train.y.copy()
    for client in same_digits.client_indices[4:]:
        y[client.train] = (y[client.train] + 1) % 10
    clients = replace(same_digits, train=replace(same_digits.train, y=y))
    algorithm = PACFL(signature_epsilon=8.0, signature_noise="seeded", compare=compare)
    profiles = {c: side(algorithm, clients).profile(0, c) for c in range(8)}
    for profile in profiles.values():
        algorithm.check_profile(model(), profile)
    state = algorithm.admit(algorithm.init_server(model()), profiles)
    assert [state.cluster_of[c] for c in range(8)] == [0] * 4 + [1] * 4
    assert state.clustering is not None
    assert state.clustering.evidence["compare"] == "classes"
    assert all(own.private for own in state.classes.values())


def test_a_client_cannot_claim_that_its_classes_are_private_where_others_are_not() -> None:
    """Its noise would be taken as it says, and nothing would be concluded about class shares."""
    plain, private = PACFL(), PACFL(signature_epsilon=4.0, signature_noise="seeded")
    for one, other in ((plain, private), (private, plain)):
        profile = side(one, CLIENTS).profile(0, 1)
        one.check_profile(model(), profile)
        with pytest.raises(InvalidReplyError, match="'labelled' must be"):
            other.check_profile(model(), profile)


def test_seeded_noise_is_the_client_s_own_and_comes_again_whatever_the_round() -> None:
    clients = side(PACFL(signature_epsilon=1.0, signature_noise="seeded"), CLIENTS)
    assert same(clients.profile(0, 1), clients.profile(5, 1))
    assert not same(clients.profile(0, 1), clients.profile(0, 2))


def test_secret_noise_never_comes_again() -> None:
    clients = side(PACFL(signature_epsilon=1.0), CLIENTS)
    assert not same(clients.profile(0, 1), clients.profile(0, 1))


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ({"signature-epsilon": 0.0}, "epsilon"),
        ({"signature-epsilon": -1}, "signature_epsilon"),
        ({"signature-epsilon": 1.0, "signature-delta": 0.0}, "delta"),
        ({"signature-epsilon": 1.0, "per-class": True}, "per class"),
        ({"signature-epsilon": 1.0, "signature-noise": "none"}, "signature_noise"),
    ],
)
def test_what_is_no_guarantee_is_refused(settings: dict[str, object], word: str) -> None:
    with pytest.raises(ValueError, match=word):
        build("pacfl", **settings)
