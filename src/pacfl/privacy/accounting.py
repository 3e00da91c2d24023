"""What many private updates add up to."""

from math import inf, sqrt
from typing import Final

from scipy.optimize import brentq

from pacfl.privacy.gaussian import gaussian_delta

MOST_EPSILON: Final = 1e4


def epsilon_of_uploads(noise: float, times: int, delta: float) -> float:
    """Epsilon of a client's data against one who sees its `times` uploads, each with noise × clip upon it; exact.

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


def epsilon_of_models(noise: float, rounds: int, clients: int, sampled: int, delta: float) -> float:
    """Epsilon of a client's data against one who sees only the models of its cluster, after every round.

    Of the cluster's `clients`, `sampled` are drawn each round without replacement, and the model moves by the plain
    mean of their uploads (aggregation `uniform`), whose noises add up; nobody outside is told who was drawn. By the
    Rényi accountant of dp-accounting; neighbours are federations in which one client has any other data.
    """
    if not 0 < sampled <= clients:
        raise ValueError(f"sampled must be between 1 and the number of clients, {clients}; got {sampled}")
    if noise == 0:
        return inf
    if rounds == 0:
        return 0.0
    try:
        import dp_accounting
        from dp_accounting.rdp import RdpAccountant
    except ImportError:
        raise ImportError("accounting over sampled rounds needs dp-accounting: pip install 'pacfl[privacy]'") from None
    step = dp_accounting.GaussianDpEvent(noise * sqrt(sampled) / 2)  # sums of clipped uploads differ by 2 clip
    round_plan = dp_accounting.SampledWithoutReplacementDpEvent(clients, sampled, step) if sampled < clients else step
    accountant = RdpAccountant(neighboring_relation=dp_accounting.NeighboringRelation.REPLACE_ONE)
    return float(accountant.compose(round_plan, rounds).get_epsilon(delta))
