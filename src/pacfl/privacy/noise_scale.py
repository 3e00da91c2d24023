"""The angles between two private signatures of one client, simulated from the noisy matrix: it costs no privacy."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from pacfl.subspace.proximity import MEASURES, component_angles
from pacfl.subspace.split_half import SPLITS, SplitHalfAngles

Array = NDArray[np.float64]
SEED: Final = 0  # any: what is drawn is not secret


def simulated_split_half_angles(moment: Array, sigma: float, rank: int) -> SplitHalfAngles:
    """Angles between signatures of two samples of the client's distribution, each with its own noise: (32,) degrees.

    moment (d, d), the noisy Σ x xᵀ of samples of length 1; sigma, the standard deviation of the noise on its diagonal.

    In the basis of its eigenvectors: sampling moves entry (a, b) of n second moments by √(n λa λb), as it does for
    normal samples, and the noise is the same in any basis.
    """
    strengths = without_noise(np.asarray(np.linalg.eigvalsh(moment)[::-1], dtype=np.float64), sigma)
    n = max(float(strengths.sum()), 1.0)
    d, rng = len(strengths), np.random.default_rng(SEED)
    sampling = np.sqrt(np.outer(strengths, strengths) / n)
    pairs = rng.standard_normal((SPLITS, 2, 2, d, d))
    noise = (pairs + pairs.swapaxes(-1, -2)) / 2  # variance 1 on and 1 / 2 off the diagonal
    matrices = np.diag(strengths) + np.sqrt(2) * sampling * noise[:, :, 0] + sigma * noise[:, :, 1]
    leading = np.linalg.eigh(matrices)[1][..., ::-1][..., :rank]
    overlaps = leading[:, 0].swapaxes(-1, -2) @ leading[:, 1]
    as_rows = overlaps.swapaxes(0, 1)[..., None]  # (p, 32, p, 1)
    return {m: np.degrees(component_angles(as_rows, m).sum(axis=0)[:, 0]) for m in MEASURES}


def without_noise(eigenvalues: Array, sigma: float) -> Array:
    """Eigenvalues, descending, of the matrix before symmetric noise of diagonal variance sigma² was added.

    An eigenvalue l > r of the clean matrix shows as l + r² / l with r² = d sigma² / 2, a smaller one is lost in the
    semicircle of the noise (Benaych-Georges and Nadakuditi, 2011). The lost ones share the rest of the trace evenly:
    noise hardly changes the trace.
    """
    d = len(eigenvalues)
    r = sigma * np.sqrt(d / 2)
    seen = eigenvalues > 2 * r
    clean = (eigenvalues + np.sqrt(np.maximum(eigenvalues**2 - 4 * r**2, 0))) / 2
    left = max(float(eigenvalues.sum() - clean[seen].sum()), 0.0)
    return np.where(seen, clean, left / max(d - int(seen.sum()), 1))
