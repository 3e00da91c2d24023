"""Which metrics a run has: the primary one of its targets, and those that were asked for beside it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final

import numpy as np

from pacfl import plugins
from pacfl.errors import ConfigError
from pacfl.learning.metrics import METRICS, Array, Metric

if TYPE_CHECKING:
    from pacfl.learning.losses import Targets

# Every client has them, whatever its samples are: R² is not defined where the targets do not vary
PRIMARY: "Final[Mapping[Targets, str]]" = {"classes": "accuracy", "labels": "accuracy", "values": "mae"}


def find_metric(name: str) -> Metric:
    """A metric by name, entry point (pacfl.metrics) or import path.

    A function (outputs, y) -> float is a metric for all targets, where higher is better, unless its attributes
    `targets` (one word, or several) and `higher_is_better` say otherwise.
    """
    found = plugins.find("metrics", name, METRICS)
    if isinstance(found, Metric):
        return found
    if not callable(found):
        raise ConfigError(f"metric {name!r} must be a function (outputs, y) -> float, got {found!r}")
    targets = getattr(found, "targets", tuple(PRIMARY))
    targets = (targets,) if isinstance(targets, str) else tuple(targets)
    if not targets or not set(targets) <= set(PRIMARY):
        raise ConfigError(f"metric {name!r}: its targets must be of {', '.join(PRIMARY)}, got {targets!r}")
    return Metric(dict.fromkeys(targets, found), bool(getattr(found, "higher_is_better", True)))


@dataclass(frozen=True)
class Metrics:
    """The primary metric of a kind of targets, and others that are computed beside it."""

    targets: "Targets" = "classes"
    names: tuple[str, ...] = ()  # of the others

    @property
    def primary(self) -> str:
        """The name of the primary metric."""
        return PRIMARY[self.targets]

    @cached_property
    def others(self) -> dict[str, Metric]:
        """Those beside it; looked up once, for entry points are in many files."""
        return {name: find_metric(name) for name in self.names}

    def check(self, n_outputs: int | None = None) -> None:
        """Refuse metrics that are not for these targets, or not for so many outputs."""
        for name, metric in self.others.items():
            if self.targets not in metric.functions:
                fitting = ", ".join(n for n, m in METRICS.items() if self.targets in m.functions)
                raise ConfigError(
                    f"metric {name!r} is for {' or '.join(metric.functions)}, but the loss is for {self.targets}; "
                    f"there are {fitting}"
                )
            expected = 2 if self.targets == "classes" else 1
            if metric.binary and n_outputs is not None and n_outputs != expected:
                raise ConfigError(
                    f"metric {name!r} is for two classes or one label, but the model has {n_outputs} outputs for "
                    f"{self.targets}; use balanced-accuracy or macro-f1"
                )

    def evaluate(self, outputs: Array, y: Array) -> tuple[float, dict[str, float]]:
        """The primary metric, and the others that are defined for these samples."""
        self.check(outputs.shape[1])
        primary = METRICS[self.primary].functions[self.targets](outputs, y)
        values = {n: _number(n, metric.functions[self.targets](outputs, y)) for n, metric in self.others.items()}
        return primary, {name: value for name, value in values.items() if not np.isnan(value)}


def normalise(names: Iterable[str], targets: "Targets") -> tuple[str, ...]:
    """The metrics that are computed beside the primary one, each once and in a fixed order."""
    return tuple(sorted(set(names) - {PRIMARY[targets]}))


def _number(name: str, value: object) -> float:
    try:
        number = float(value)  # type: ignore[arg-type]  # whatever a plug-in returns
    except (TypeError, ValueError):
        number = np.inf
    if np.isinf(number):
        raise ConfigError(f"metric {name!r} must return a finite number, or NaN where it is undefined, got {value!r}")
    return number
