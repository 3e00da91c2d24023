"""What an attacker who saw many outputs could prove about epsilon, whatever the mechanism claims."""

import numpy as np
from numpy.typing import NDArray
from scipy.stats import beta

Array = NDArray[np.float64]


def empirical_epsilon(with_record: Array, without: Array, delta: float, error: float = 1e-4) -> float:
    """A lower bound on epsilon that is wrong with probability `error`, from statistics of outputs on two neighbours.

    (epsilon, delta) promises P(A) <= exp(epsilon) Q(A) + delta for every event A. The event is "above a level"; the
    level is chosen on one half of the runs, and the other half is evaluated, by the limits of Clopper and Pearson.
    """
    half = len(without) // 2
    levels = np.quantile(without[:half], np.linspace(0.02, 0.98, 49))
    level = max(levels, key=lambda s: _proved(with_record[:half], without[:half], s, delta, error))
    return _proved(with_record[half:], without[half:], level, delta, error)


def _proved(with_record: Array, without: Array, level: float, delta: float, error: float) -> float:
    hits, alarms = int(np.sum(with_record > level)), int(np.sum(without > level))
    least = float(beta.ppf(error / 2, hits, len(with_record) - hits + 1)) if hits else 0.0
    most = float(beta.ppf(1 - error / 2, alarms + 1, len(without) - alarms)) if alarms < len(without) else 1.0
    return float(np.log(max(least - delta, 1e-12) / most))
