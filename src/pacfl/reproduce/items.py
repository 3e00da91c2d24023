"""The items of the paper, one file of settings each: tables, figures and theorems, and whether their data are here."""

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, get_args

from pacfl.data import Entry, catalogue
from pacfl.errors import ConfigError
from pacfl.experiment.config import read_table
from pacfl.settings import build, suggestion

Scale = Literal["quick", "paper"]
SCALES: Final[tuple[Scale, ...]] = get_args(Scale)
Settings = tuple[str, ...]  # such as data.clients=20
NOT_HERE: Final = "data not available here"

# Training samples of the published sets. An extract must not pass for the whole.
WHOLE: Final = {
    "fmnist": 60_000,
    "cifar10": 50_000,
    "cifar100": 50_000,
    "svhn": 73_257,
    "usps": 7_291,
    "celeba": 162_770,
}


@dataclass(frozen=True)
class Tuning:
    """Short runs over a grid, evaluated on held-out training samples: the same for every method."""

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
    kind: str  # how it is computed and shown, see kinds.py
    paper: str = ""  # where it is in the paper, if it is
    quick: Settings = ()  # settings of the small version
    columns: Mapping[str, Settings] = field(default_factory=dict)  # of the table: usually data sets, and their settings
    of: tuple[str, ...] = ()  # the items whose runs it shows, if it has none of its own

    def table(self, column: str | None, scale: Scale) -> dict[str, Any]:
        """The experiment of a column, or what all columns have in common, as plain settings."""
        of_column = () if column is None else self.columns[column]
        return read_table(self.path, (*of_column, *(self.quick if scale == "quick" else ())))

    def settings(self, scale: Scale, column: str | None = None) -> dict[str, Any]:
        """Settings of an item that is not an experiment."""
        found: dict[str, Any] = self.table(column, scale)["item"]["settings"]
        return found

    @property
    def trains(self) -> bool:
        """Whether it has runs of its own."""
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
    """The item with a name, or with a number."""
    known = {item.name: item for item in items()}
    found = known.get(name) or next((item for item in known.values() if str(item.number) == name), None)
    if found is None:
        raise ConfigError(f"there is no item {name!r}{suggestion(name, known)}")
    return found


def _item(path: Path, table: Mapping[str, Any]) -> Item:
    fields = {key: value for key, value in table.items() if key not in ("tuning", "settings")}
    return build(Item, {**fields, "name": path.stem, "path": path}, "item")


def missing(item: Item, scale: Scale, folder: Path | None) -> dict[str, str]:
    """The columns that cannot be computed here, and why."""
    found = {entry.name: entry for entry in catalogue(folder)}
    reasons = {column: _lacking(needed(item, column, scale), found) for column in item.columns}
    return {column: f"{NOT_HERE}: {reason}" for column, reason in reasons.items() if reason}


def needed(item: Item, column: str, scale: Scale) -> dict[str, int]:
    """Training samples that a column needs of each data set."""
    data = item.table(column, scale).get("data", {})
    scheme: Mapping[str, Any] = data.get("scheme", {})
    if "counts" in scheme and "sets" in data:
        return {name: n * scheme["size"] for name, n in zip(data["sets"], scheme["counts"], strict=True)}
    names: Iterable[str] = data.get("sets") or ([data["name"]] if "name" in data else [])
    most = data.get("samples") or max(WHOLE.values())
    return {name: min(WHOLE.get(name, 1), most) for name in names}


def _lacking(needed: Mapping[str, int], found: Mapping[str, Entry]) -> str:
    has = {name: (found[name].n_train or 0) if name in found else 0 for name in needed}
    return ", ".join(f"{name} has {has[name]:,} of {n:,} samples" for name, n in needed.items() if has[name] < n)
