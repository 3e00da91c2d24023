"""The items of the paper, one file of settings each: tables, figures and theorems."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, get_args

from pacfl.errors import ConfigError
from pacfl.experiment.config import read_table
from pacfl.settings import build, suggestion

Scale = Literal["quick", "paper"]
SCALES: Final[tuple[Scale, ...]] = get_args(Scale)
Settings = tuple[str, ...]  # such as data.clients=20


@dataclass(frozen=True)
class Tuning:
    """Short runs over a grid, judged by held-out training samples: the same for every method."""

    rounds: int
    validation: float
    lr: tuple[float, ...]
    mu: tuple[float, ...]  # of FedProx


@dataclass(frozen=True)
class Item:
    """One table, figure or theorem of the paper."""

    name: str
    path: Path
    number: int
    title: str
    paper: str  # where it stands there
    kind: str  # what is made of it
    quick: Settings = ()  # what makes it small
    columns: Mapping[str, Settings] = field(default_factory=dict)  # of the table: usually data sets, and what they set
    of: tuple[str, ...] = ()  # the items whose runs it shows, if it has none of its own

    def table(self, column: str | None, scale: Scale) -> dict[str, Any]:
        """The experiment of a column, or what all columns have in common, as plain settings."""
        of_column = () if column is None else self.columns[column]
        return read_table(self.path, (*of_column, *(self.quick if scale == "quick" else ())))

    def settings(self, scale: Scale, column: str | None = None) -> dict[str, Any]:
        """Settings of an item that is no experiment."""
        found: dict[str, Any] = self.table(column, scale)["item"]["settings"]
        return found

    @property
    def trains(self) -> bool:
        """It has runs of its own."""
        return not self.of and "algorithm" in self.table(None, "paper")

    def tuned(self, column: str, scale: Scale) -> Tuning | None:
        """How the methods of a column are tuned, if they are."""
        table = self.table(column, scale)["item"]
        return build(Tuning, table["tuning"], "item.tuning") if "tuning" in table else None

    def published(self) -> dict[str, Any]:
        """The paper's values, as published."""
        path = self.path.parent / "published" / f"{self.name}.toml"
        return tomllib.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def experiments() -> Path:
    """The folder of experiment files: beside this module in an installed package, else that of the repository."""
    packaged = Path(__file__).parent / "experiments"
    return packaged if packaged.is_dir() else Path(__file__).parents[3] / "experiments"


def items() -> list[Item]:
    """All items in the paper's order."""
    tables = {path: read_table(path) for path in sorted(experiments().glob("*.toml"))}
    found = [_item(path, table["item"]) for path, table in tables.items() if "item" in table]
    return sorted(found, key=lambda item: item.number)


def item(name: str) -> Item:
    """The item of a name, or of a number."""
    known = {item.name: item for item in items()}
    found = known.get(name) or next((item for item in known.values() if str(item.number) == name), None)
    if found is None:
        raise ConfigError(f"there is no item {name!r}{suggestion(name, known)}")
    return found


def _item(path: Path, table: Mapping[str, Any]) -> Item:
    fields = {key: value for key, value in table.items() if key not in ("tuning", "settings")}
    return build(Item, {**fields, "name": path.stem, "path": path}, "item")
