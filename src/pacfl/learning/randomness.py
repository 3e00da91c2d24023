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


def batches(n: int, batch_size: int, least: int = 1) -> list[slice]:
    """The batches of an epoch of n samples. The last may be smaller; with fewer than `least` it joins the one before.

    >>> batches(11, 5, least=2)
    [slice(0, 5, None), slice(5, 11, None)]
    """
    starts = list(range(0, n, batch_size))
    if starts and n - starts[-1] < least:
        del starts[-1]
    return [slice(start, end) for start, end in zip(starts, [*starts[1:], n], strict=False)]


def count_steps(n: int, epochs: int, batch_size: int, least: int = 1) -> int:
    """Steps of SGD in a local training."""
    return epochs * len(batches(n, batch_size, least))
