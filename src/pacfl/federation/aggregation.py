"""How the uploads of a round become one: rules that resist hostile clients, updates that hide their clients.

Only the mean looks at sizes: they are claims, and a client that lies about its size takes the votes of others.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from pacfl.errors import ConfigError
from pacfl.federation.server_optimiser import DECAY, LR, MOMENTUM, TAU, Kind, ServerOptimiser
from pacfl.settings import NonNegative, Positive, ShareBelowOne, check, later

Array = NDArray[np.float64]
Start = NDArray[Any] | float
Rule = Literal["mean", "uniform", "median", "trimmed-mean", "norm-clipping"]
RULES: Final[tuple[Rule, ...]] = get_args(Rule)
SUMMED: Final[tuple[Rule, ...]] = ("mean", "uniform")  # the rules that need no more than sums
Randomness = Literal["secret", "seeded"]  # seeded: reproducible, for experiments; it protects nobody

_OF_OPTIMISERS: Final = ("server_lr", "beta1", "beta2", "tau")
TRIMMED: Final = 0.3  # of the uploads of a cluster, at either end of every coordinate: as many as may be hostile


@dataclass(frozen=True)
class Aggregation:
    """How uploads are averaged, and what clients do to them before they are sent; [aggregation] in TOML."""

    rule: Rule = later("mean")
    clip_norm: Positive | None = later(None)  # the longest that an update may be
    noise_multiplier: NonNegative = later(0.0)  # standard deviation of the noise on it, in clip norms
    noise: Randomness = later("secret")
    secure: bool = later(False)  # whether the server gets sums of clusters only; the noise is that of a sum then
    server_optimiser: Literal["none"] | Kind = later("none")  # by which a model steps, instead of going to the mean
    server_lr: Positive | None = later(None)
    beta1: ShareBelowOne | None = later(None)
    beta2: ShareBelowOne | None = later(None)
    tau: Positive | None = later(None)

    def __post_init__(self) -> None:
        check(self)
        self._check_optimiser()
        if self.clip_norm is None and (self.noise_multiplier or self.noise != "secret"):
            given = f"noise-multiplier = {self.noise_multiplier}, noise = {self.noise!r}"
            raise ConfigError(f"{given}: noise hides nothing without clip-norm; give clip-norm or leave out the noise")
        if self.secure and self.rule not in SUMMED:
            raise ConfigError(f"rule = {self.rule!r} looks at single updates, and secure = true hides them: use mean")
        if self.secure and self.clip_norm is not None and self.rule != "uniform":
            raise ConfigError(
                'clip-norm bounds an update, and rule = "mean" multiplies it by the number of samples in a sum; '
                'with secure = true use rule = "uniform"'
            )

    def _check_optimiser(self) -> None:
        own = {"none": (), "momentum": ("server_lr", "beta1")}.get(self.server_optimiser, _OF_OPTIMISERS)
        idle = [name for name in _OF_OPTIMISERS if name not in own and getattr(self, name) is not None]
        if idle:
            raise ConfigError(
                f"{', '.join(name.replace('_', '-') for name in idle)}: server-optimiser = {self.server_optimiser!r} "
                "has no such setting; leave it out, or choose another server-optimiser"
            )

    @property
    def optimiser(self) -> ServerOptimiser | None:
        """The server optimiser, with its defaults; None: models go to the mean."""
        if self.server_optimiser == "none":
            return None
        lr = (1.0 if self.server_optimiser == "momentum" else LR) if self.server_lr is None else self.server_lr
        defaults = {"beta1": MOMENTUM, "beta2": DECAY, "tau": TAU}
        own = {name: getattr(self, name) for name in defaults if getattr(self, name) is not None}
        return ServerOptimiser(self.server_optimiser, lr, **{**defaults, **own})


def centre(arrays: Array, weights: Array, start: Start, rule: Rule) -> Array:
    """One of many, by a rule: (m, ...), shares (m,), what they started from (...) -> (...)."""
    flat = arrays.reshape(len(arrays), -1)
    origin = np.ravel(start) if np.ndim(start) else start
    return _CENTRES[rule](flat, weights, origin).reshape(arrays.shape[1:])


def trimmed_mean(arrays: Array) -> Array:
    """Mean of every coordinate without its lowest and highest 30 %: (m, d) -> (d,) (Yin and others, 2018)."""
    cut = int(TRIMMED * len(arrays))
    inner: Array = np.sort(arrays, axis=0)[cut : len(arrays) - cut].mean(axis=0)
    return inner


def norm_clipped(arrays: Array, start: Start) -> Array:
    """Mean after no update is longer than the median one: (m, d), (d,) -> (d,)."""
    updates = arrays - start
    lengths = np.linalg.norm(updates, axis=1)
    scale = np.median(lengths) / np.maximum(lengths, np.finfo(np.float64).tiny)
    clipped: Array = start + (updates * np.minimum(scale, 1.0)[:, None]).mean(axis=0)
    return clipped


_CENTRES: Final[Mapping[Rule, Callable[[Array, Array, Start], Array]]] = {
    "mean": lambda arrays, weights, start: weights @ arrays,  # noqa: ARG005 - one form for all
    "uniform": lambda arrays, weights, start: arrays.mean(axis=0),  # noqa: ARG005
    "median": lambda arrays, weights, start: np.median(arrays, axis=0),  # noqa: ARG005
    "trimmed-mean": lambda arrays, weights, start: trimmed_mean(arrays),  # noqa: ARG005
    "norm-clipping": lambda arrays, weights, start: norm_clipped(arrays, start),  # noqa: ARG005
}
