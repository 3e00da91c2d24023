"""Learning rates that fall over the rounds. `scale(t)` is what the first rate is multiplied by in round t, from 0."""

import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from pacfl.errors import ConfigError
from pacfl.settings import PositiveInt, PositiveShare, build, check, suggestion


@dataclass(frozen=True)
class ConstantRate:
    """The same rate in every round."""

    kind: Literal["constant"] = "constant"

    def scale(self, t: int) -> float:  # noqa: ARG002 - one form for all
        """1."""
        return 1.0


@dataclass(frozen=True)
class StepRate:
    """factor^floor(t / every): lower after every so many rounds."""

    factor: PositiveShare
    every: PositiveInt
    kind: Literal["step"] = "step"

    def __post_init__(self) -> None:
        check(self)

    def scale(self, t: int) -> float:
        """The factor once for every full block of rounds."""
        return _power(self.factor, t // self.every)


@dataclass(frozen=True)
class ExponentialRate:
    """factor^t: lower after every round."""

    factor: PositiveShare
    kind: Literal["exponential"] = "exponential"

    def __post_init__(self) -> None:
        check(self)

    def scale(self, t: int) -> float:
        """The factor once for every round."""
        return _power(self.factor, t)


@dataclass(frozen=True)
class CosineRate:
    """floor + (1 - floor) (1 + cos(π t / rounds)) / 2, and the floor from then on."""

    rounds: PositiveInt
    floor: PositiveShare = 0.01  # of the first rate; above 0, for methods divide by the rate
    kind: Literal["cosine"] = "cosine"

    def __post_init__(self) -> None:
        check(self)

    def scale(self, t: int) -> float:
        """Half a period of the cosine."""
        done = min(t / self.rounds, 1.0)
        return self.floor + (1 - self.floor) * (1 + math.cos(math.pi * done)) / 2


CONSTANT: Final = ConstantRate()
LRSchedule = ConstantRate | StepRate | ExponentialRate | CosineRate
LR_SCHEDULES: Final[Mapping[str, type[LRSchedule]]] = {
    "constant": ConstantRate,
    "step": StepRate,
    "exponential": ExponentialRate,
    "cosine": CosineRate,
}


def build_lr_schedule(table: Mapping[str, Any]) -> LRSchedule:
    """A schedule from a table with its kind."""
    kind = str(table.get("kind"))
    if kind not in LR_SCHEDULES:
        raise ConfigError(f"lr-schedule needs a known kind, got {kind!r}{suggestion(kind, LR_SCHEDULES)}")
    return build(LR_SCHEDULES[kind], table, "lr-schedule", where=f"lr-schedule ({kind})")


def _power(factor: float, n: int) -> float:
    """Never 0, however many rounds there are."""
    return max(factor**n, sys.float_info.min)
