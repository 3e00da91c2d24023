"""What looks at rounds while they are run, and may end training. Needs no torch."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from pacfl.errors import ConfigError
from pacfl.experiment.records import RoundRecord
from pacfl.learning.evaluation import find_metric
from pacfl.settings import NonNegative, PositiveInt, check


class Stop(Enum):
    """What a callback returns to end training."""

    STOP = "stop"


STOP: Final = Stop.STOP
Callback = Callable[[RoundRecord], Any]  # whose result is ignored, unless it is STOP


@dataclass(frozen=True)
class EarlyStopping:
    """End training when the mean of a metric over clients has not improved in so many evaluations.

    patience : evaluations without improvement.
    protocol : which model is evaluated: "received", "last_trained", or "personal" with `personal_every`.
    metric : by default the primary one, accuracy for classes; or "loss", or one of `metrics`.
    min_delta : the least change that is an improvement.

    >>> EarlyStopping(3)
    EarlyStopping(patience=3, protocol='received', metric=None, min_delta=0.0)
    """

    patience: PositiveInt
    protocol: str = "received"
    metric: str | None = None
    min_delta: NonNegative = 0.0

    def __post_init__(self) -> None:
        check(self)

    def watch(self) -> Callback:
        """A callback for one run."""
        best: float | None = None
        without = 0

        def look(record: RoundRecord) -> Stop | None:
            nonlocal best, without
            if not record.scores:
                return None
            own = record.scores.get(self.protocol, {})
            metric = self.metric or next(iter(own), "accuracy")
            if metric not in own:
                if record.final:
                    return None
                there = ", ".join(f"{m} under {p}" for p, metrics in record.scores.items() for m in metrics)
                raise ConfigError(
                    f"EarlyStopping: round {record.round} has no {metric} under the protocol {self.protocol}; "
                    f"it has {there}"
                )
            mean = own[metric].mean
            sign = 1 if metric != "loss" and find_metric(metric).higher_is_better else -1
            if best is None or sign * (mean - best) > self.min_delta:
                best, without = mean, 0
            else:
                without += 1
            return STOP if without >= self.patience else None

        return look


def watching(callbacks: Sequence[Callback | EarlyStopping], stored: bool) -> Callable[[RoundRecord], bool]:
    """All callbacks as one function, which says whether any of them ends training.

    stored: refuse to end a run for a reason that its settings do not say.
    """
    looks = [(own.watch(), True) if isinstance(own, EarlyStopping) else (own, False) for own in callbacks]

    def look(record: RoundRecord) -> bool:
        ends = False
        for callback, is_setting in looks:
            if callback(record) is STOP and not record.final:
                if stored and not is_setting:
                    raise ConfigError(
                        "a callback of your own cannot end a run that is stored: the same settings would find its "
                        "result. Use EarlyStopping, which is part of the settings, or runs=None"
                    )
                ends = True
        return ends

    return look
