"""What a cluster makes of its members' uploads: the mean, or a centre that some hostile ones cannot carry away.

Only the mean looks at sizes: they are claims, and whoever lies about them gets the votes of others.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from pacfl.federation.algorithm import S, Upload, shares
from pacfl.learning.model import Vector

Array = NDArray[np.float64]
Aggregation = Literal["mean", "uniform", "median", "trimmed-mean", "norm-clipping"]
AGGREGATIONS: Final[tuple[Aggregation, ...]] = get_args(Aggregation)

TRIMMED: Final = 0.3  # of the uploads of a cluster, at either end of every coordinate: as many as may be hostile


def cluster_centres(state: S, uploads: Sequence[Upload], aggregation: Aggregation = "mean") -> S:
    """Each cluster's model becomes the centre of its members' uploads; silent clusters keep theirs."""
    models = state.models.copy()
    for k in range(len(models)):
        members = [u for u in uploads if state.cluster_of[u.client] == k]
        if members:
            trained = np.stack([u.content["w"] for u in members]).astype(np.float64)
            models[k] = _CENTRES[aggregation](trained, shares(members), state.models[k])
    return replace(state, models=models) if uploads else state


def trimmed_mean(trained: Array) -> Array:
    """Mean of every coordinate without its lowest and highest 30 %: (m, d) -> (d,) (Yin and others, 2018)."""
    cut = int(TRIMMED * len(trained))
    inner: Array = np.sort(trained, axis=0)[cut : len(trained) - cut].mean(axis=0)
    return inner


def norm_clipped(trained: Array, start: Vector) -> Array:
    """Mean after no update is longer than the median one: (m, d), (d,) -> (d,)."""
    updates = trained - start
    lengths = np.linalg.norm(updates, axis=1)
    scale = np.median(lengths) / np.maximum(lengths, np.finfo(np.float64).tiny)
    clipped: Array = start + (updates * np.minimum(scale, 1.0)[:, None]).mean(axis=0)
    return clipped


_CENTRES: Final[Mapping[Aggregation, Callable[[Array, Array, Vector], Array]]] = {
    "mean": lambda trained, parts, start: parts @ trained,  # noqa: ARG005 - one form for all
    "uniform": lambda trained, parts, start: trained.mean(axis=0),  # noqa: ARG005
    "median": lambda trained, parts, start: np.median(trained, axis=0),  # noqa: ARG005
    "trimmed-mean": lambda trained, parts, start: trimmed_mean(trained),  # noqa: ARG005
    "norm-clipping": lambda trained, parts, start: norm_clipped(trained, start),  # noqa: ARG005
}
