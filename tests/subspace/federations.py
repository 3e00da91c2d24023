"""Federations whose groups are known."""

from functools import cache

import numpy as np
from numpy.typing import NDArray

from pacfl.subspace import proximity, signature, split_half_angles

Array = NDArray[np.float64]
Compared = tuple[Array, tuple[Array, ...]]  # proximity, and split-half angles of each client
RANK = 3
FEATURES = 60


@cache
def federation(seed: int, *sizes: int, samples: tuple[int, ...] = (60,)) -> Compared:
    """Clients of len(sizes) groups, each of low rank in a space of its own, with noise; they have `samples` in turn."""
    rng = np.random.default_rng(seed)
    clients = []
    for n_clients in sizes:
        space = np.linalg.qr(rng.standard_normal((FEATURES, 5)))[0] * [6, 4, 3, 2, 1.5]
        for i in range(n_clients):
            n = samples[i % len(samples)]
            clients.append(rng.standard_normal((n, 5)) @ space.T + 0.5 * rng.standard_normal((n, FEATURES)))
    angles = proximity([signature(x, RANK) for x in clients])
    return angles, tuple(split_half_angles(x, RANK)["smallest"] for x in clients)


def groups(*sizes: int) -> NDArray[np.intp]:
    return np.repeat(np.arange(len(sizes)), sizes)
