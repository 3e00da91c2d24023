"""Whether two signatures are of one distribution, or of the same samples.

The angle between two samples of one distribution is noise of a known size. Its square has mean 1 in units of noise and
a variance that the split-half angles show; it is nearly gamma distributed. A client that drifted is further away from
what it was; whoever signed the samples of somebody else is nearer than noise allows.
"""

from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import gamma

from pacfl.subspace.class_null import newcomer_variance
from pacfl.subspace.clustering import Clustering
from pacfl.subspace.guarantee import TOO_FEW, noise_obstacle, random_angle
from pacfl.subspace.noise_scale import noise_of_pairs, own_variance
from pacfl.subspace.null import ACCURACY

FALSE_ALARMS: Final = 0.01  # of clients that did not drift, and of newcomers that copied nobody
CLOSE: Final = 0.5  # of the lowest quantile: below the mean, gamma is less exact
LEAST_VARIANCE: Final = 1e-3


@dataclass(frozen=True)
class PairNoise:
    """The angle between two signatures, and what noise alone makes of it."""

    compared: Literal["classes", "inputs"]
    size: float  # in units of noise: 1 is what two samples of one distribution show
    variance: float  # of its square, if both are of one distribution
    obstacle: str = ""  # why noise alone may reach any size; empty where it cannot

    def limit(self, error_rate: float = FALSE_ALARMS) -> float:
        """What two samples of one distribution pass at the error rate; noise is known up to `ACCURACY`."""
        return (1 + ACCURACY) * float(np.sqrt(gamma.isf(error_rate, 1 / self.variance, scale=self.variance)))

    def least(self, error_rate: float) -> float:
        """What they are not below, but for the error rate."""
        return CLOSE * float(np.sqrt(gamma.ppf(error_rate, 1 / self.variance, scale=self.variance)))


def pair_noise(
    clustering: Clustering, a: int, b: int, split_half_angles: ArrayLike, shape: tuple[int, int]
) -> PairNoise:
    """Two clients of a clustering, by the classes they share, else by their inputs.

    split_half_angles (splits,) of b, by the measure of the clustering; shape: features and directions of signatures.
    """
    classes = clustering.classes
    if classes is not None and classes.pairs.weights[a, b] > 0:
        size = float(np.sqrt(classes.pairs.squares[a, b] / classes.pairs.weights[a, b]))
        return PairNoise("classes", size, newcomer_variance(classes.noise, b, np.array([a])))
    farthest = random_angle(*shape, clustering.measure)
    size, scale = _by_inputs(clustering, a, b, farthest)
    own = np.asarray(split_half_angles, dtype=np.float64)
    if not own.any():
        return PairNoise("inputs", size, 2.0, TOO_FEW)
    found = PairNoise("inputs", size, _variance(own))
    if found.limit() * scale >= farthest:
        return PairNoise("inputs", size, found.variance, noise_obstacle(scale, farthest))
    return found


def _by_inputs(clustering: Clustering, a: int, b: int, farthest: float) -> tuple[float, float]:
    """The angle in units of noise, and that noise in degrees."""
    if farthest <= 0:
        return 1.0, 0.0
    both = own_variance(clustering.noise_scale[[a, b]], farthest)
    scale = float(noise_of_pairs(both.sum(keepdims=True), farthest)[0])
    return float(clustering.proximity[a, b]) / scale, scale


def _variance(angles: NDArray[np.float64]) -> float:
    """Of squared angles, relative to their mean."""
    return float(max(np.mean((angles**2 / np.mean(angles**2) - 1) ** 2), LEAST_VARIANCE))
