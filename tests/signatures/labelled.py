"""Clients with labelled samples of four classes."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

FEATURES, CLASSES = 20, 4
MEANS = 3 * np.random.default_rng(7).standard_normal((CLASSES, FEATURES))

Arrays = dict[str, NDArray[Any]]


def samples(seed: int, shift: int = 0, counts: tuple[int, ...] = (30,) * CLASSES) -> tuple[NDArray[Any], NDArray[Any]]:
    """Samples and labels; the same inputs have other labels with another shift."""
    y = np.random.default_rng(seed).permutation(np.repeat(np.arange(CLASSES), counts))
    x = MEANS[y] + np.random.default_rng(seed).standard_normal((len(y), FEATURES))
    return x, (y + shift) % CLASSES


def parties(n: int = 8, kinds: int = 2, first: int = 0) -> tuple[Arrays, Arrays]:
    """Clients of some kinds in turn, which give the same inputs other labels."""
    made = {f"p{i}": samples(i, i % kinds) for i in range(first, first + n)}
    return {name: x for name, (x, _) in made.items()}, {name: y for name, (_, y) in made.items()}
