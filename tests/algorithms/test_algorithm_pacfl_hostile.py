"""Forged signatures: what one hostile client can do to the clusters of the others."""

from collections.abc import Callable
from functools import cache

import numpy as np
import pytest

from pacfl.algorithms import PACFL
from pacfl.federation.message import Message
from pacfl.subspace import Linkage, adjusted_rand_index, principal_angles
from studies.hostile import between
from tests.small_federation import model, pool, side

CLIENTS = pool(("upright", "turned", "negative"), (60, 70, 80, 90))
TRUTH = np.repeat(np.arange(3), 4)


@cache
def profiles() -> dict[int, Message]:
    clients = side(PACFL(), CLIENTS)
    return {c: clients.profile(0, c) for c in range(12)}


def middle() -> Message:
    """Half way between two domains."""
    return {**profiles()[0], "basis": between(profiles()[0]["basis"], profiles()[4]["basis"], 0.5).astype(np.float32)}


def boast() -> Message:
    """Half way too, claiming so much noise that everybody seems near."""
    return {**middle(), "split_half_angles": np.full(32, 89.0, dtype=np.float32)}


def random() -> Message:
    drawn = np.linalg.qr(np.random.default_rng(0).standard_normal(profiles()[0]["basis"].shape))[0]
    return {**profiles()[0], "basis": drawn.astype(np.float32)}


def test_the_middle_is_half_way() -> None:
    ends = [profiles()[c]["basis"] for c in (0, 4)]
    whole = principal_angles(*ends)
    for end in ends:
        assert np.allclose(principal_angles(end, middle()["basis"]), whole / 2, atol=1e-3)


@pytest.mark.parametrize("linkage", ["average", "complete"])
@pytest.mark.parametrize(
    "forged", [middle, boast, random, lambda: profiles()[5]], ids=["middle", "boast", "random", "copy"]
)
def test_one_hostile_client_neither_joins_nor_splits_the_clusters_of_others(
    forged: Callable[[], Message], linkage: Linkage
) -> None:
    algorithm = PACFL(linkage=linkage)
    state = algorithm.admit(algorithm.init_server(model()), {**profiles(), 12: forged()})
    assert adjusted_rand_index([state.cluster_of[c] for c in range(12)], TRUTH) == 1.0


@pytest.mark.parametrize("forged", [middle, boast, random], ids=["middle", "boast", "random"])
def test_a_hostile_newcomer_moves_nobody(forged: Callable[[], Message]) -> None:
    algorithm = PACFL()
    before = algorithm.admit(algorithm.init_server(model()), profiles())
    after = algorithm.admit(before, {12: forged()})
    assert {c: after.cluster_of[c] for c in range(12)} == before.cluster_of
