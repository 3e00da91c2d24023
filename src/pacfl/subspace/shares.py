"""Do clients have the same class shares, and about as many samples? Tests from counts, of which small ones are unknown.

A class of a client with fewer than FEWEST samples has no signature, so its count is only known to be below that. Under
equal shares, counts are Poisson variables of mean λ = size × share. An unknown count contributes the probability of all
that it can be, P(X < FEWEST); what chance does to the statistics is simulated, small counts and all.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import pdtr, xlogy
from scipy.stats import gamma

from pacfl.subspace.classes import FEWEST, ClassSignatures
from pacfl.subspace.threshold import ERROR_RATE

Array = NDArray[np.float64]

SIMULATIONS: Final = 64  # of federations with equal shares, from which the mean and the variance of G are taken
FEWEST_SIMULATIONS: Final = 8
CELLS: Final = 4_000_000  # counts that are simulated at most, beyond the fewest simulations
STEPS: Final = 20  # of the fit; small counts are all that it has to find
UNEQUAL: Final = 1 / 3  # squared coefficient of variation of sizes drawn evenly between 0 and the largest


@dataclass(frozen=True)
class Spread:
    """How far counts vary between clients."""

    size: float  # root of the statistic over its mean by chance: about 1 if all have the same shares, or sizes
    beyond_chance: bool


def count_table(clients: Sequence[ClassSignatures]) -> Array:
    """Samples of every class of every client: (n, classes), 0 where there are fewer than FEWEST.

    (n, 0) where counts have noise: it would be taken for a difference of shares.
    """
    if any(client.private for client in clients):
        return np.zeros((len(clients), 0))
    at = {name: k for k, name in enumerate(sorted({name for client in clients for name in client.names}))}
    table = np.zeros((len(clients), len(at)))
    for i, client in enumerate(clients):
        table[i, [at[name] for name in client.names]] = client.counts
    return table


def share_spread(tables: Sequence[Array], seed: int = 0) -> Spread:
    """Whether the class shares of clients differ inside any of the tables: each (clients, classes), 0 if unknown.

    The likelihood ratio G of every table against equal shares, summed, and the same of simulated ones.
    """
    rng = np.random.default_rng(seed)
    total, draws = 0.0, np.zeros(0)
    for table in (_used(table) for table in tables):
        if min(table.shape) < 2:
            continue
        expected = _fit(table[None])
        total += float(_deviance(table[None], expected)[0])
        n_draws = int(np.clip(CELLS // table.size, FEWEST_SIMULATIONS, SIMULATIONS))
        drawn = _known(rng.poisson(expected[0], (n_draws, *table.shape)).astype(np.float64))
        by_chance = _deviance(drawn, _fit(drawn))
        draws = by_chance if not len(draws) else draws[: len(by_chance)] + by_chance[: len(draws)]
    mean, variance = (draws.mean(), draws.var(ddof=1)) if len(draws) else (0.0, 0.0)
    if mean <= 0 or variance <= 0:
        return Spread(1.0, False)
    beyond = gamma.sf(total, mean**2 / variance, scale=variance / mean) < ERROR_RATE
    return Spread(float(np.sqrt(total / mean)), bool(beyond))


def size_spread(sizes: Array, table: Array | None = None, seed: int = 0) -> tuple[Spread, float]:
    """Whether clients have very unequal numbers of samples, and the effective number of clients (Σ n)² / Σ n².

    sizes (n,); table: the counts of which they are sums, if small counts are missing from them. Sizes are very unequal
    if their squared coefficient of variation exceeds 1/3, and what chance adds to it: sizes drawn evenly between 0 and
    the largest have that, and three quarters as many effective clients as clients.
    """
    mean = sizes.mean() if len(sizes) else 0.0
    if mean <= 0 or len(sizes) < 2:
        return Spread(1.0, False), float(len(sizes))
    variation = float(sizes.var() / mean**2)
    by_chance = 1 / float(mean)
    if table is not None and (used := _used(table)).size:
        expected = _fit(used[None])[0]
        equal = np.broadcast_to(expected.sum(axis=0) / len(used), (FEWEST_SIMULATIONS, *used.shape))
        drawn = _known(np.random.default_rng(seed).poisson(equal).astype(np.float64)).sum(axis=2)
        by_chance = float((drawn.var(axis=1) / np.maximum(drawn.mean(axis=1), 1.0) ** 2).mean())
    size = float(np.sqrt(variation / by_chance)) if by_chance > 0 else 1.0
    return Spread(size, variation > UNEQUAL + by_chance), float(len(sizes) / (1 + variation))


def _used(table: Array) -> Array:
    return table[table.any(axis=1)][:, table.any(axis=0)]


def _known(counts: Array) -> Array:
    """Counts as a client would send them."""
    return np.where(counts >= FEWEST, counts, 0.0)


def _fit(tables: Array) -> Array:
    """Means of all counts if clients have the same shares, by maximum likelihood: (batch, n, classes).

    Unknown counts are replaced by what they are on average, given the means, until these settle (EM).
    """
    unknown = tables == 0
    complete = np.where(unknown, FEWEST / 2, tables)
    for _ in range(STEPS if unknown.any() else 1):
        totals = complete.sum(axis=(1, 2), keepdims=True)
        means = complete.sum(axis=2, keepdims=True) * complete.sum(axis=1, keepdims=True) / totals
        small = means[unknown]
        complete[unknown] = small * pdtr(FEWEST - 2, small) / np.maximum(pdtr(FEWEST - 1, small), 1e-300)
    return np.asarray(np.maximum(means, 1e-12))


def _deviance(tables: Array, means: Array) -> Array:
    """Twice the log likelihood ratio of what was counted against these means: (batch,)."""
    unknown = tables == 0
    parts = 2 * (xlogy(tables, np.where(unknown, 1.0, tables) / means) - tables + means)
    parts[unknown] = -2 * np.log(np.maximum(pdtr(FEWEST - 1, means[unknown]), 1e-300))
    return np.asarray(parts.sum(axis=(1, 2)))
