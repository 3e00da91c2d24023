"""Where the error rate of the automatic threshold was verified; docs/threshold.md says how.

The noise scale is extrapolated from halves of the samples. That is right while halves have nearly the same signature,
and too low where the data have no leading directions. Then clients of one distribution look different.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from pacfl.subspace import null
from pacfl.subspace.hierarchy import Labels
from pacfl.subspace.proximity import Measure, Signatures, component_angles

Array = NDArray[np.float64]

MOST_NOISE: Final = 0.2  # of the angle between random subspaces
MOST_EXCESS: Final = 0.15  # of the angles within clusters over the noise scale
PAIRS: Final = 16  # of random subspaces
MOST_FEATURES: Final = 1000  # of random subspaces: with more, angles are hardly larger


def doubts_about_clients(known: NDArray[np.bool_]) -> list[str]:
    """Too many clients, or clients without split-half angles: known (n,) says who sent some."""
    doubts = []
    if len(known) > null.PANEL:
        doubts.append(f"there are {len(known)} clients, and simulations have at most {null.PANEL}")
    if not known.all():
        missing = len(known) - int(known.sum())
        doubts.append(f"the noise of {missing} of {len(known)} clients was measured by their nearest neighbours")
    return doubts


def doubts_about_signatures(noise: Array, measure: Measure, signatures: Signatures | None) -> list[str]:
    """Unequal numbers of directions, or directions that sampling noise hardly determines: noise (n,) degrees."""
    if signatures is None:
        return ["the shape of the signatures was not given"]
    directions = sorted({np.shape(u)[1] for u in signatures})
    if len(directions) > 1:
        return [f"signatures have {directions[0]} to {directions[-1]} directions"]
    features = np.shape(signatures[0])[0]
    random = random_angle(features, directions[0], measure)
    if noise.max() <= MOST_NOISE * random:
        return []
    return [
        f"the noise of a client is {noise.max():.3g}°, more than {MOST_NOISE:.0%} of the {random:.3g}° between random "
        f"signatures of rank {directions[0]} in {features} features ({measure})"
    ]


def doubts_about_noise(ratios: Array, labels: Labels, margin: float) -> list[str]:
    """Angles within clusters that are larger than the noise scale predicts.

    ratios (n, n): proximity in units of noise. margin: by what factor the limit of chance exceeds its typical height.
    """
    if len(labels) < 2:
        return []
    same = np.equal.outer(labels, labels)
    np.fill_diagonal(same, val=False)
    if not same.any():
        return ["no two clients share a cluster, so the noise scale cannot be checked"]
    within = float(np.sqrt(np.mean(ratios[same] ** 2)))
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
