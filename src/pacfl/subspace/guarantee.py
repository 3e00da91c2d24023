"""Who can be compared by inputs, and where the error rate of the automatic threshold was verified (docs/threshold.md).

The noise scale is extrapolated from halves of the samples. That is right while halves have nearly the same signature.
Where the data have no leading directions, clients of one distribution have signatures with nothing in common.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from pacfl.subspace.hierarchy import Labels
from pacfl.subspace.noise_scale import RESOLUTION, noise_of_pairs, own_variance
from pacfl.subspace.proximity import Measure, Signatures, component_angles

Array = NDArray[np.float64]

MOST_NOISE: Final = 0.2  # of the angle between random subspaces, without a check by the angles within clusters
FEW: Final = 5  # clients, whose angles do not show whether noise is as it was measured
MOST_EXCESS: Final = 0.15  # of the angles within clusters over the noise scale
PAIRS: Final = 64  # of random subspaces
MOST_FEATURES: Final = 1000  # of random subspaces: with more, angles are hardly larger

TOO_FEW: Final = "it has too few samples to measure its noise; sign more samples, or a lower rank"


def too_noisy(noise: Array, reference: float, limit: float, random_angle: float | None) -> NDArray[np.bool_]:
    """Clients of whom a typical client with nothing in common would be within the limit of chance: (n,).

    noise (n,) degrees, limit in units of noise.
    """
    if random_angle is None:
        return np.zeros(len(noise), dtype=bool)
    if random_angle <= 100 * RESOLUTION:
        return np.ones(len(noise), dtype=bool)
    sums = own_variance(noise, random_angle) + own_variance(np.array([reference]), random_angle)
    return np.asarray(random_angle <= limit * noise_of_pairs(sums, random_angle))


def noise_obstacle(noise: float, random_angle: float | None) -> str:
    """Why a client is too noisy, and what would help."""
    if random_angle is None or random_angle <= 100 * RESOLUTION:
        return (
            "any two signatures of this rank share a direction, and their angle is 0; sign a lower rank, or compare "
            "all angles (measure sum)"
        )
    return (
        f"its own noise of {noise:.3g}° is as large as a difference could be ({random_angle:.3g}° between signatures "
        "with nothing in common); sign more samples, or groups of them, a lower rank, other preprocessing, or labels"
    )


def shape_of(signatures: Signatures | None) -> tuple[int, int] | None:
    """Features and the least number of directions."""
    return None if signatures is None else (np.shape(signatures[0])[0], min(np.shape(u)[1] for u in signatures))


def doubts_about_clients(known: NDArray[np.bool_]) -> list[str]:
    """Clients without split-half angles that were compared all the same: known (n,) says who sent some."""
    if known.all():
        return []
    missing = len(known) - int(known.sum())
    return [f"the noise of {missing} of {len(known)} clients was measured by their nearest neighbours"]


def doubts_about_signatures(signatures: Signatures | None) -> list[str]:
    """Unequal numbers of directions, or none given."""
    if signatures is None:
        return ["the shape of the signatures was not given"]
    directions = sorted({np.shape(u)[1] for u in signatures})
    return [f"signatures have {directions[0]} to {directions[-1]} directions"] if len(directions) > 1 else []


def doubts_about_noise(ratios: Array, labels: Labels, margin: float, share: float) -> list[str]:
    """Angles within clusters that are larger than the noise scale predicts.

    ratios: proximity in units of noise, condensed. margin: by what factor the limit of chance exceeds its typical
    height. share: the largest noise scale over the angle between random signatures.
    """
    n, start, squares, pairs = len(labels), 0, 0.0, 0
    if 1 < n < FEW and share > MOST_NOISE:  # whatever was found: a claim must not depend on it
        return [f"{n} clients are too few to check noise that is {share:.0%} of the largest difference"]
    for i in range(n - 1):
        row = ratios[start : start + n - 1 - i][labels[i + 1 :] == labels[i]]
        squares, pairs, start = squares + float(row @ row), pairs + len(row), start + n - 1 - i
    if not pairs:
        large = n > 1 and share > MOST_NOISE
        return ["no two clients share a cluster, so their large noise cannot be checked"] if large else []
    within = np.sqrt(squares / pairs)
    if within <= 1 + min(MOST_EXCESS, (margin - 1) / 2):
        return []
    return [f"angles within clusters are {within:.2f} times the noise scale, which may be too low"]


def random_angle(features: int, directions: int, measure: Measure) -> float:
    """Degrees between subspaces that have nothing in common: root mean square over random pairs."""
    rng = np.random.default_rng(0)
    drawn = rng.standard_normal((2, PAIRS, max(min(features, MOST_FEATURES), directions), directions))
    left, right = np.linalg.qr(drawn)[0]
    overlaps = (left.swapaxes(1, 2) @ right).transpose(1, 2, 0)[:, None]  # (p, 1, p, pairs)
    angles = np.degrees(component_angles(overlaps, measure).sum(axis=0))
    return float(np.sqrt(np.mean(angles**2)))
