"""The privacy loss of many private updates together."""

from math import inf, sqrt
from typing import Final

from scipy.optimize import brentq

from pacfl.privacy.gaussian import gaussian_delta
from pacfl.privacy.limits import FEWEST, threshold

MOST_EPSILON: Final = 1e4


def epsilon_of_uploads(noise: float, times: int, delta: float) -> float:
    """Epsilon of a client's data against an observer of its `times` uploads, each with noise × clip added; exact.

    Uploads of one client lie within 2 clip of each other, and Gaussian noises compose to one: sensitivity 2 √times.
    """
    if times == 0:
        return 0.0
    if noise == 0:
        return inf
    sigma = noise / (2 * sqrt(times))
    if gaussian_delta(MOST_EPSILON, sigma) > delta:
        return inf
    if gaussian_delta(0.0, sigma) <= delta:
        return 0.0
    return float(brentq(lambda e: gaussian_delta(e, sigma) - delta, 0.0, MOST_EPSILON))


def epsilon_of_sums(noise: float, times: int, delta: float, clients: int = FEWEST, colluding: int = 0) -> float:
    """Epsilon of a client's data against a server that gets only secure sums of `clients` clients, `times` of them.

    noise: of a sum, in clip norms. Of n clients t must stay, and each adds a t-th of the variance. A server that works
    together with some of them knows their parts, so that as little as the noise of t - `colluding` clients is left.
    """
    stay = threshold(clients)
    if not 0 <= colluding < stay:
        raise ValueError(
            f"colluding must be from 0 to {stay - 1}, for {stay} of {clients} clients stay; got {colluding}"
        )
    return epsilon_of_uploads(noise * sqrt((stay - colluding) / stay), times, delta)


def epsilon_of_models(noise: float, rounds: int, clients: int, sampled: int, delta: float) -> float:
    """Epsilon of a client's data against an observer of only the models of its cluster, after every round.

    Of the cluster's `clients`, `sampled` are drawn each round without replacement, and the model moves by the plain
    mean of their uploads (rule `uniform`), whose noises add up; the draw is secret. By the
    Rényi accountant of dp-accounting; neighbours are federations in which one client has any other data.
    """
    if not 0 < sampled <= clients:
        raise ValueError(f"sampled must be between 1 and the number of clients, {clients}; got {sampled}")
    if noise == 0:
        return inf
    if rounds == 0:
        return 0.0
    from pacfl.errors import library

    dp_accounting = library("dp_accounting", "accounting over sampled rounds", "privacy")
    rdp = library("dp_accounting.rdp", "accounting over sampled rounds", "privacy")
    step = dp_accounting.GaussianDpEvent(noise * sqrt(sampled) / 2)  # sums of clipped uploads differ by 2 clip
    round_plan = dp_accounting.SampledWithoutReplacementDpEvent(clients, sampled, step) if sampled < clients else step
    accountant = rdp.RdpAccountant(neighboring_relation=dp_accounting.NeighboringRelation.REPLACE_ONE)
    return float(accountant.compose(round_plan, rounds).get_epsilon(delta))
