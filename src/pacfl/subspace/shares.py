"""Do clients have the same class shares, and about as many samples? Tests from counts, of which small ones are unknown.

A class of a client with fewer than FEWEST samples, or the minimum that it was signed with, has no signature, so its
count is only known to be below that. Under equal shares, counts are Poisson variables of mean λ = size × share. An
unknown count contributes the probability of all that it can be, P(X < limit); what chance does to the statistics is
simulated, small counts and all.
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
REDRAWS: Final = 20  # at most, of clients that would send no count
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


def count_limits(table: Array, sizes: Array | None) -> Array:
    """What unknown counts of each client are below: (n,). sizes (n,): samples of all its classes, if they are known.

    Clients may have left out classes with fewer samples than a minimum of their own. No count that they sent is below
    it, and what they left out is no more than their samples less all counts that they sent.
    """
    if sizes is None or not table.size:
        return np.full(len(table), float(FEWEST))
    left_out = sizes - table.sum(axis=1)
    smallest = np.where(table > 0, table, np.inf).min(axis=1)
    return np.asarray(np.maximum(np.minimum(left_out + 1, smallest), FEWEST), dtype=np.float64)


def share_spread(tables: Sequence[Array], sizes: Sequence[Array] | None = None, seed: int = 0) -> Spread:
    """Whether the class shares of clients differ inside any of the tables: each (clients, classes), 0 if unknown.

    sizes: samples of all classes, (clients,) for each table. The likelihood ratio G of every table against equal
    shares, summed, and the same of simulated ones.
    """
    rng = np.random.default_rng(seed)
    total, draws = 0.0, np.zeros(0)
    for i, whole in enumerate(tables):
        table, rows = _used(whole), None if sizes is None else sizes[i][whole.any(axis=1), None]
        if min(table.shape) < 2:
            continue
        limit = count_limits(table, None if rows is None else rows[:, 0])[:, None]
        expected = _fit(table[None], limit, rows)
        total += float(_deviance(table[None], expected, limit)[0])
        n_draws = int(np.clip(CELLS // table.size, FEWEST_SIMULATIONS, SIMULATIONS))
        drawn = _simulated(expected[0], rows, limit, n_draws, rng)
        by_chance = _deviance(drawn, _fit(drawn, limit, rows), limit)
        draws = by_chance if not len(draws) else draws[: len(by_chance)] + by_chance[: len(draws)]
    mean, variance = (draws.mean(), draws.var(ddof=1)) if len(draws) else (0.0, 0.0)
    if mean <= 0 or variance <= 0:
        return Spread(1.0, False)
    beyond = gamma.sf(total, mean**2 / variance, scale=variance / mean) < ERROR_RATE
    return Spread(float(np.sqrt(total / mean)), bool(beyond))


def _simulated(means: Array, sizes: Array | None, limit: Array, n_draws: int, rng: np.random.Generator) -> Array:
    """Tables with these means as clients would send them: (n_draws, n, classes).

    A client that sends no count is in no table, so it is drawn again. sizes (n, 1) are exact; what the classes lack is
    of others.
    """
    drawn = np.zeros((n_draws, *means.shape))
    for _ in range(REDRAWS):
        empty = ~drawn.any(axis=2)
        if not empty.any():
            break
        rows = np.nonzero(empty)[1]
        drawn[empty] = _known(_rows(means[rows], None if sizes is None else sizes[rows], rng), limit[rows])
    return drawn


def _rows(means: Array, sizes: Array | None, rng: np.random.Generator) -> Array:
    if sizes is None:
        return rng.poisson(means).astype(np.float64)
    shares = np.hstack([means, np.maximum(sizes - means.sum(axis=1, keepdims=True), 0.0)])
    drawn = rng.multinomial(sizes[:, 0].astype(np.int64), shares / shares.sum(axis=1, keepdims=True))
    return np.asarray(drawn[:, :-1], dtype=np.float64)


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
        limit = np.full((len(used), 1), FEWEST)
        expected = _fit(used[None], limit, None)[0]
        equal = np.broadcast_to(expected.sum(axis=0) / len(used), (FEWEST_SIMULATIONS, *used.shape))
        drawn = _known(np.random.default_rng(seed).poisson(equal).astype(np.float64), limit).sum(axis=2)
        by_chance = float((drawn.var(axis=1) / np.maximum(drawn.mean(axis=1), 1.0) ** 2).mean())
    size = float(np.sqrt(variation / by_chance)) if by_chance > 0 else 1.0
    return Spread(size, variation > UNEQUAL + by_chance), float(len(sizes) / (1 + variation))


def _used(table: Array) -> Array:
    return table[table.any(axis=1)][:, table.any(axis=0)]


def _known(counts: Array, limit: Array) -> Array:
    """Counts as a client would send them."""
    return np.where(counts >= limit, counts, 0.0)


def _fit(tables: Array, limit: Array, sizes: Array | None) -> Array:
    """Means of all counts if clients have the same shares, by maximum likelihood: (batch, n, classes).

    Unknown counts are replaced by what they are on average, given the means, until these settle (EM). limit (n, 1);
    sizes (n, 1), if they are known.
    """
    unknown = tables == 0
    most = np.broadcast_to(limit - 1, tables.shape)[unknown]
    small = np.broadcast_to(limit / 2, tables.shape)[unknown]
    complete = tables.copy()
    for _ in range(STEPS if unknown.any() else 1):
        complete[unknown] = small
        of_rows = complete.sum(axis=2, keepdims=True) if sizes is None else sizes
        means = of_rows * complete.sum(axis=1, keepdims=True) / of_rows.sum(axis=-2, keepdims=True)
        small = means[unknown]
        small = small * pdtr(most - 1, small) / np.maximum(pdtr(most, small), 1e-300)
    return np.asarray(np.maximum(means, 1e-12))


def _deviance(tables: Array, means: Array, limit: Array) -> Array:
    """Twice the log likelihood ratio of what was counted against these means: (batch,)."""
    unknown = tables == 0
    parts = 2 * (xlogy(tables, np.where(unknown, 1.0, tables) / means) - tables + means)
    most = np.broadcast_to(limit - 1, tables.shape)[unknown]
    parts[unknown] = -2 * np.log(np.maximum(pdtr(most, means[unknown]), 1e-300))
    return np.asarray(parts.sum(axis=(1, 2)))
