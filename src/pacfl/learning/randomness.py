"""Random streams by key: what is drawn depends on the key alone, not on what was drawn before."""

import hashlib

import numpy as np
from numpy.typing import NDArray


def stream(seed: int, *key: str | int) -> np.random.Generator:
    """The random stream of a key: a seed, then words and numbers such as "batches", round, client."""
    words = hashlib.sha256(repr((seed, *key)).encode()).digest()
    return np.random.default_rng(np.frombuffer(words, dtype=np.uint32))


def batch_order(n: int, epochs: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """The order of samples: (epochs, n), each row a permutation."""
    return np.stack([rng.permutation(n) for _ in range(epochs)]) if epochs else np.empty((0, n), dtype=np.int64)


def count_steps(n: int, epochs: int, batch_size: int) -> int:
    """Steps of SGD in a local training; the last batch of an epoch may be smaller."""
    return epochs * -(-n // batch_size)
