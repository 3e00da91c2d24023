"""How clients train, and the names of losses, optimisers and engines. Needs no torch: settings are read without it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from pacfl import plugins
from pacfl.errors import ConfigError
from pacfl.learning.lr_schedule import CONSTANT, LRSchedule, build_lr_schedule
from pacfl.settings import NonNegative, NonNegativeInt, Positive, PositiveInt, ShareBelowOne, check, later

ENGINES: Final[tuple[str, ...]] = ("auto", "native", "eager")
LOSS_NAMES: Final = ("cross-entropy", "binary-cross-entropy", "squared-error", "absolute-error")  # of losses.LOSSES
OPTIMISER_NAMES: Final = ("sgd", "adam", "adamw")  # of optimisers.OPTIMISERS

SGD_MOMENTUM: Final = 0.5


@dataclass(frozen=True)
class LocalTraining:
    """How a client trains.

    momentum: 0.5 for sgd and 0 for others if it is not given; adam and adamw have none.
    lr_schedule: how lr falls over the rounds, as an object or as a table with its kind.
    """

    epochs: NonNegativeInt = 5
    batch_size: PositiveInt = 10
    lr: Positive = 0.01
    momentum: ShareBelowOne = None  # type: ignore[assignment]  # replaced by a number when it is built
    weight_decay: NonNegative = 0.0
    loss: str = later("cross-entropy")  # or a plug-in
    optimiser: str = later("sgd")  # or a plug-in
    lr_schedule: LRSchedule = later(CONSTANT)

    def __post_init__(self) -> None:
        given: object = self.momentum
        if given is None:
            object.__setattr__(self, "momentum", SGD_MOMENTUM if self.optimiser == "sgd" else 0.0)
        if isinstance(self.lr_schedule, Mapping):
            object.__setattr__(self, "lr_schedule", build_lr_schedule(self.lr_schedule))
        check(self)
        _check_name("losses", self.loss, LOSS_NAMES)
        _check_name("optimisers", self.optimiser, OPTIMISER_NAMES)
        if self.momentum and self.optimiser in ("adam", "adamw"):
            raise ConfigError(
                f"momentum = {self.momentum} is a setting of sgd; leave it out with optimiser = {self.optimiser}"
            )

    def in_round(self, t: int) -> "LocalTraining":
        """The same with the learning rate of round t, from 0."""
        if self.lr_schedule == CONSTANT:
            return self
        return replace(self, lr=self.lr * self.lr_schedule.scale(t), lr_schedule=CONSTANT)


def _check_name(kind: plugins.Kind, name: str, own: Iterable[str]) -> None:
    """Refuse a name that no part has. Plug-ins are imported later: they may need torch."""
    if name not in own and plugins.import_path(kind, name) is None:
        plugins.find(kind, name, dict.fromkeys(own))  # raises the error
