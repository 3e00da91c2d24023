"""Numbers over seeds, and which differences between them are more than noise."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from scipy.stats import t as student

LEVEL: Final = 0.05
TEST: Final = (
    "A result is marked best only if a paired t-test over the seeds (two-sided, 5 %) tells it apart from every other "
    "one in its column; those that it is not told apart from are marked as tied. One seed tells nothing of noise, so "
    "nothing is marked then."
)


@dataclass(frozen=True)
class Figure:
    """A number over seeds, with the runs that it comes from."""

    mean: float
    deviation: float | None  # over seeds, n - 1 degrees of freedom; None for one seed
    runs: tuple[str, ...]
    best: bool = False
    tied: bool = False  # with the best


def over_seeds(values: Mapping[str, float]) -> Figure:
    """The figure of values by run.

    >>> over_seeds({"a": 1.0, "b": 3.0}).mean
    2.0
    """
    array = np.array(list(values.values()))
    deviation = float(array.std(ddof=1)) if len(array) > 1 else None
    return Figure(float(array.mean()), deviation, tuple(values))


def marked(figures: Sequence[Figure], by_seed: Sequence[Mapping[int, float]]) -> list[Figure]:
    """The figures with the best one marked, or with those that cannot be told apart from it.

    That a result beats every other is one claim about all of them: each test keeps its level without correction.
    """
    if len(figures) < 2:
        return list(figures)
    top = max(range(len(figures)), key=lambda i: figures[i].mean)
    chances = [chance(by_seed[top], other) for other in by_seed]
    if any(p is None for i, p in enumerate(chances) if i != top):
        return list(figures)
    alike = [i for i, p in enumerate(chances) if i != top and p is not None and p >= LEVEL]
    best = not alike
    return [replace(f, best=best and i == top, tied=not best and i in (top, *alike)) for i, f in enumerate(figures)]


def chance(a: Mapping[int, float], b: Mapping[int, float]) -> float | None:
    """How likely seeds alone make so large a difference: paired t-test over common seeds, two-sided.

    None if there are fewer than two.
    """
    common = sorted(set(a) & set(b))
    if len(common) < 2:
        return None
    difference = np.array([a[seed] - b[seed] for seed in common])
    mean, error = float(difference.mean()), float(difference.std(ddof=1) / np.sqrt(len(common)))
    if error <= 1e-12 * max(abs(mean), 1.0):  # the same difference in every seed
        return 1.0 if abs(mean) <= 1e-12 else 0.0
    return float(2 * student.sf(abs(mean) / error, len(common) - 1))
