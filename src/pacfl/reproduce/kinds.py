"""What is made of each kind of item: an outcome, tables of it, and pictures."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pacfl.experiment.settings import ConfigError
from pacfl.reproduce import accuracy, beta
from pacfl.reproduce.items import Item
from pacfl.reproduce.making import Request, trained
from pacfl.reproduce.outcome import Outcome
from pacfl.reproduce.tables import Table


def no_figures(_item: Item, _outcome: Outcome, _folder: Path) -> Sequence[Path]:
    """Nothing to draw."""
    return ()


@dataclass(frozen=True)
class Kind:
    """How an item is made and shown."""

    tables: Callable[[Item, Outcome], list[Table]]
    figures: Callable[[Item, Outcome, Path], Sequence[Path]] = no_figures
    make: Callable[[Item, Request], Outcome] = trained


KINDS: Final[Mapping[str, Kind]] = {
    "accuracy": Kind(accuracy.accuracy),
    "newcomers": Kind(accuracy.newcomers),
    "beta": Kind(beta.tables, beta.figures),
}


def kind_of(item: Item) -> Kind:
    """What is made of an item."""
    if item.kind not in KINDS:
        raise ConfigError(f"{item.path}: there is no kind {item.kind!r} of item; there are {', '.join(KINDS)}")
    return KINDS[item.kind]
