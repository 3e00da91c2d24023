"""Averaging that resists hostile clients and hides updates: what FedAvg and PACFL do within a cluster.

Only the mean looks at sizes: they are claims, and a client that lies about its size takes the votes of others.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from pacfl.errors import ConfigError
from pacfl.federation.algorithm import Algorithm, S, Upload, shares
from pacfl.federation.message import Message
from pacfl.federation.private import Randomness, private_upload
from pacfl.learning.client_context import ClientContext
from pacfl.learning.model import Vector
from pacfl.settings import NonNegative, Positive

Array = NDArray[np.float64]
Aggregation = Literal["mean", "uniform", "median", "trimmed-mean", "norm-clipping"]
AGGREGATIONS: Final[tuple[Aggregation, ...]] = get_args(Aggregation)

TRIMMED: Final = 0.3  # of the uploads of a cluster, at either end of every coordinate: as many as may be hostile


@dataclass(frozen=True, kw_only=True)
class Averaging(Algorithm):
    """Local SGD and an average within each cluster, with clipped and noisy updates where asked."""

    aggregation: Aggregation = "mean"
    clip_norm: Positive | None = None  # the longest that an update may be
    noise_multiplier: NonNegative = 0.0  # standard deviation of the noise on it, in clip norms
    private_noise: Randomness = "secret"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.clip_norm is None and self.noise_multiplier:
            raise ConfigError(f"noise_multiplier = {self.noise_multiplier} hides nothing without clip_norm; give both")

    def train(self, context: ClientContext, down: Message, memory: Message) -> tuple[Message, Message]:
        """Local SGD from the model as received; the upload is clipped and noisy where asked."""
        w, _ = context.sgd(down["w"])
        if self.clip_norm is None:
            return {"w": w}, memory
        return private_upload(context, w, down["w"], self.clip_norm, self.noise_multiplier, self.private_noise), memory

    def aggregate(self, state: Any, uploads: Sequence[Upload]) -> Any:
        """The centre of each cluster's uploads."""
        return cluster_centres(state, uploads, self.aggregation)


def cluster_centres(state: S, uploads: Sequence[Upload], aggregation: Aggregation = "mean") -> S:
    """Each cluster's model becomes the centre of its members' uploads; a cluster without uploads keeps its model."""
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
    "mean": lambda trained, weights, start: weights @ trained,  # noqa: ARG005 - one form for all
    "uniform": lambda trained, weights, start: trained.mean(axis=0),  # noqa: ARG005
    "median": lambda trained, weights, start: np.median(trained, axis=0),  # noqa: ARG005
    "trimmed-mean": lambda trained, weights, start: trimmed_mean(trained),  # noqa: ARG005
    "norm-clipping": lambda trained, weights, start: norm_clipped(trained, start),  # noqa: ARG005
}
