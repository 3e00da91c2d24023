"""How clients train, and the names of nets and engines. Needs no torch, so that settings are read without it."""

from dataclasses import dataclass
from typing import Final

from pacfl.settings import NonNegative, NonNegativeInt, Positive, PositiveInt, ShareBelowOne, check

ENGINES: Final[tuple[str, ...]] = ("auto", "native", "eager")
NET_NAMES: Final[tuple[str, ...]] = ("lenet5", "resnet9", "mlp", "logistic")  # of pacfl.learning.nets.NETS


@dataclass(frozen=True)
class LocalTraining:
    """How a client trains."""

    epochs: NonNegativeInt = 5
    batch_size: PositiveInt = 10
    lr: Positive = 0.01
    momentum: ShareBelowOne = 0.5
    weight_decay: NonNegative = 0.0

    def __post_init__(self) -> None:
        check(self)
