"""How clients train, and the names of nets, losses and engines. Needs no torch: settings are read without it."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from pacfl import plugins
from pacfl.settings import NonNegative, NonNegativeInt, Positive, PositiveInt, ShareBelowOne, check, later

ENGINES: Final[tuple[str, ...]] = ("auto", "native", "eager")
NET_NAMES: Final[tuple[str, ...]] = ("lenet5", "resnet9", "mlp", "logistic")  # of pacfl.learning.nets.NETS
LOSS_NAMES: Final = ("cross-entropy", "binary-cross-entropy", "squared-error", "absolute-error")  # of losses.LOSSES


@dataclass(frozen=True)
class LocalTraining:
    """How a client trains."""

    epochs: NonNegativeInt = 5
    batch_size: PositiveInt = 10
    lr: Positive = 0.01
    momentum: ShareBelowOne = 0.5
    weight_decay: NonNegative = 0.0
    loss: str = later("cross-entropy")  # or a plug-in

    def __post_init__(self) -> None:
        check(self)
        _check_name("losses", self.loss, LOSS_NAMES)


def _check_name(kind: plugins.Kind, name: str, own: Iterable[str]) -> None:
    """Refuse a name that no part has. Plug-ins are imported later: they may need torch."""
    if name not in own and plugins.import_path(kind, name) is None:
        plugins.find(kind, name, dict.fromkeys(own))  # raises the error
