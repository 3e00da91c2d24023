"""PACFL with private signatures."""

import numpy as np
import pytest

from pacfl.algorithms import PACFL, build
from pacfl.privacy import private_signature, seeded
from pacfl.subspace import adjusted_rand_index
from tests.small_federation import model, pool, same, side

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
    profile = side(PACFL(rank=2, signature_epsilon=100.0, signature_delta=1e-6), CLIENTS).profile(0, 2)
    assert profile["basis"].shape == made.basis.shape
    # With so much epsilon there is hardly any noise: the two differ by less than either says that it may
    cosine = float(np.linalg.svd(profile["basis"].T @ made.basis, compute_uv=False)[0])
    assert np.degrees(np.arccos(min(cosine, 1.0))) < made.split_half_angles["smallest"].max()


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
