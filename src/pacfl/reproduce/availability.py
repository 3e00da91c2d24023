"""Whether the data of an item are here, whole."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from pacfl.data import Entry, catalogue
from pacfl.reproduce.items import Item, Scale

# Training samples of the published sets. An extract must not pass for the whole.
WHOLE: Final = {
    "fmnist": 60_000,
    "cifar10": 50_000,
    "cifar100": 50_000,
    "svhn": 73_257,
    "usps": 7_291,
    "celeba": 162_770,
}

NOT_HERE: Final = "data not available here"


def missing(item: Item, scale: Scale, folder: Path | None) -> dict[str, str]:
    """The columns that cannot be made here, and why."""
    found = {entry.name: entry for entry in catalogue(folder)}
    reasons = {column: _lacking(wanted(item, column, scale), found) for column in item.columns}
    return {column: f"{NOT_HERE}: {reason}" for column, reason in reasons.items() if reason}


def wanted(item: Item, column: str, scale: Scale) -> dict[str, int]:
    """Training samples that a column wants of each data set."""
    data = item.table(column, scale).get("data", {})
    scheme: Mapping[str, Any] = data.get("scheme", {})
    if "counts" in scheme and "sets" in data:
        return {name: n * scheme["size"] for name, n in zip(data["sets"], scheme["counts"], strict=True)}
    names: Iterable[str] = data.get("sets") or ([data["name"]] if "name" in data else [])
    most = data.get("samples") or max(WHOLE.values())
    return {name: min(WHOLE.get(name, 1), most) for name in names}


def _lacking(wanted: Mapping[str, int], found: Mapping[str, Entry]) -> str:
    has = {name: (found[name].n_train or 0) if name in found else 0 for name in wanted}
    return ", ".join(f"{name} has {has[name]:,} of {n:,} samples" for name, n in wanted.items() if has[name] < n)
