"""How each kind of item is computed and shown: its outcome, tables and pictures."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pacfl.errors import ConfigError
from pacfl.reproduce import (
    accuracy,
    angles,
    beta,
    celeba,
    convergence,
    curves,
    divergences,
    pictures,
    real,
    targets,
    together,
)
from pacfl.reproduce.items import Item, Scale, item
from pacfl.reproduce.making import Request, run_item
from pacfl.reproduce.outcome import Outcome, joined, load
from pacfl.reproduce.tables import Table


def no_figures(_item: Item, _outcome: Outcome, _folder: Path) -> Sequence[Path]:
    """Nothing to draw."""
    return ()


@dataclass(frozen=True)
class Kind:
    """How an item is computed and shown."""

    tables: Callable[[Item, Outcome], list[Table]]
    figures: Callable[[Item, Outcome, Path], Sequence[Path]] = no_figures
    make: Callable[[Item, Request], Outcome] = run_item


def of_others(own: Item, request: Request) -> Outcome:
    """The outcome of an item that shows the runs of others, which are run if missing."""
    found = [(name, KINDS[item(name).kind].make(item(name), request)) for name in own.of]
    return joined(own.name, request.scale, found)


KINDS: Final[Mapping[str, Kind]] = {
    "accuracy": Kind(accuracy.accuracy),
    "newcomers": Kind(accuracy.newcomers),
    "beta": Kind(beta.tables, beta.figures),
    "rounds-to-target": Kind(targets.rounds, make=of_others),
    "megabits-to-target": Kind(targets.megabits, make=of_others),
    "curves": Kind(curves.tables, curves.figures, of_others),
    "real": Kind(real.tables, make=real.make),
    "together": Kind(together.tables, make=together.make),
    "angles": Kind(angles.tables, angles.figures, angles.make),
    "divergences": Kind(divergences.tables, make=divergences.make),
    "pictures": Kind(pictures.tables, pictures.figures, pictures.make),
    "celeba": Kind(celeba.tables, celeba.figures, celeba.make),
    "convergence": Kind(convergence.tables, convergence.figures, convergence.make),
}


def stored(own: Item, folder: Path, scale: Scale) -> Outcome | None:
    """The outcome of an item as it was exported, or None; of one that shows the runs of others, if any of those was."""
    if not own.of:
        return load(folder, own.name, scale)
    found = [(name, load(folder, name, scale)) for name in own.of]
    there = [(name, outcome) for name, outcome in found if outcome is not None]
    return joined(own.name, scale, there) if there else None


def kind_of(item: Item) -> Kind:
    """The kind of an item."""
    if item.kind not in KINDS:
        raise ConfigError(f"{item.path}: there is no kind {item.kind!r} of item; there are {', '.join(KINDS)}")
    return KINDS[item.kind]
