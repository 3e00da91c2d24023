"""Statistics over seeds: mean, standard deviation, and which differences are more than noise.

A standard deviation over seeds has the divisor n, in `pacfl report` and in `pacfl reproduce`; so has one over clients.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from scipy.stats import ttest_ind_from_stats, ttest_rel

BySeed = Mapping[int, float]

LEVEL: Final = 0.05
ENOUGH_TO_PAIR: Final = 5  # seeds; with fewer, a paired test has too few degrees of freedom to find anything
TEST: Final = (
    f"A result is marked best (★) only if a t-test over the common seeds (two-sided, {100 * LEVEL:g} %) distinguishes "
    f"it from every other one in its column: a paired test from {ENOUGH_TO_PAIR} seeds on, with fewer a test of the "
    "two means by both standard deviations. Otherwise all that it is not distinguished from are marked as tied (≈). "
    "With one seed nothing is marked."
)


@dataclass(frozen=True)
class SeedMean:
    """A mean over seeds, with the runs that it comes from."""

    mean: float
    std: float | None  # None for one seed
    runs: tuple[str, ...]
    best: bool = False
    tied: bool = False  # with the best


def seed_mean(values: Mapping[str, float]) -> SeedMean:
    """The mean of values by run.

    >>> seed_mean({"a": 1.0, "b": 3.0})
    SeedMean(mean=2.0, std=1.0, runs=('a', 'b'), best=False, tied=False)
    """
    return SeedMean(float(np.mean(list(values.values()))), seed_std(list(values.values())), tuple(values))


def seed_std(values: Sequence[float]) -> float | None:
    """Standard deviation over seeds, divisor n; None for fewer than two."""
    return float(np.std(values)) if len(values) > 1 else None


def mark_best(means: Sequence[SeedMean], by_seed: Sequence[BySeed]) -> list[SeedMean]:
    """The means with the best one marked, or with all that are tied."""
    found = best_and_ties(by_seed) if len(means) > 1 else None
    if found is None:
        return list(means)
    best, ties = found
    return [
        replace(mean, best=i == best and not ties, tied=bool(ties) and i in (best, *ties))
        for i, mean in enumerate(means)
    ]


def best_and_ties(by_seed: Sequence[BySeed]) -> tuple[int, list[int]] | None:
    """The position with the highest mean, and those that no test distinguishes from it.

    None where one of them has fewer than two seeds in common with the best. "Better than all others" is one claim
    about all of them: each test keeps its level without a correction.
    """
    best = max(range(len(by_seed)), key=lambda i: float(np.mean(list(by_seed[i].values()))))
    chances = {i: p_value(by_seed[best], other) for i, other in enumerate(by_seed) if i != best}
    if any(p is None for p in chances.values()):
        return None
    return best, [i for i, p in chances.items() if p is not None and p >= LEVEL]


def p_value(a: BySeed, b: BySeed) -> float | None:
    """How likely noise alone makes so large a difference of means over the common seeds, two-sided.

    None for fewer than two common seeds. With fewer than `ENOUGH_TO_PAIR`, Student's test of two samples of equal
    noise: it has 2 (n - 1) degrees of freedom where the paired one has n - 1.
    """
    common = sorted(set(a) & set(b))
    if len(common) < 2:
        return None
    first, second = np.array([a[seed] for seed in common]), np.array([b[seed] for seed in common])
    paired = len(common) >= ENOUGH_TO_PAIR
    difference = abs(float((first - second).mean()))
    noise = float((first - second).std()) if paired else float(first.std() + second.std())
    tiny = 1e-12 * max(difference, float(np.abs(first).max()), 1.0)
    if noise <= tiny:  # none at all, of which scipy makes NaN and a warning
        return 1.0 if difference <= tiny else 0.0
    if paired:
        return float(ttest_rel(first, second).pvalue)
    samples = (x for sample in (first, second) for x in (sample.mean(), sample.std(ddof=1), len(common)))
    return float(ttest_ind_from_stats(*samples).pvalue)
