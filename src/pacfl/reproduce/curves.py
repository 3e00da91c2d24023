"""Accuracy against rounds, from the runs of other items."""

from collections.abc import Iterable, Mapping
from itertools import cycle
from pathlib import Path
from typing import Any, Final

import numpy as np

from pacfl.reproduce.figures import Figure, save
from pacfl.reproduce.items import Item
from pacfl.reproduce.outcome import Outcome
from pacfl.reproduce.tables import Runs, Table, named, over_seeds

ROUNDS: Final = (10, 20, 40, 80)  # the paper's budget is 80
PROTOCOLS: Final = ("received", "last_trained")
ORDER: Final = (
    "solo",
    "fedavg",
    "fedavg-ft",
    "fedprox",
    "fednova",
    "scaffold",
    "lg-fedavg",
    "per-fedavg",
    "ifca",
    "cfl",
    "pacfl",
)
STYLES: Final = ("-", "--", ":", "-.")  # of an algorithm, and of its variants


def tables(item: Item, outcome: Outcome) -> list[Table]:
    """Accuracy after a few numbers of rounds; the paper shows curves and no numbers."""
    return [
        _table(item, column, by_method, protocol)
        for column, by_method in _columns(outcome).items()
        for protocol in PROTOCOLS
    ]


def figures(item: Item, outcome: Outcome, folder: Path) -> list[Path]:
    """One picture for each data set and protocol."""
    return [
        _figure(item, column, by_method, protocol, folder)
        for column, by_method in _columns(outcome).items()
        for protocol in PROTOCOLS
    ]


def _columns(outcome: Outcome) -> dict[str, dict[str, Runs]]:
    found: dict[str, dict[str, list[Mapping[str, Any]]]] = {}
    for run in outcome["runs"]:
        if "curve" in run:
            found.setdefault(run["column"], {}).setdefault(run["method"], []).append(run)
    return {
        column: {method: by_method[method] for method in _ordered(by_method)} for column, by_method in found.items()
    }


def _ordered(methods: Iterable[str]) -> list[str]:
    """In the paper's order of algorithms; variants of one in the order of the runs."""
    return sorted(methods, key=lambda method: ORDER.index(_algorithm(method)))


def _algorithm(method: str) -> str:
    return method.partition("(")[0]


def _table(item: Item, column: str, by_method: Mapping[str, Runs], protocol: str) -> Table:
    rows = tuple((method, *(over_seeds(_at(runs, protocol, t)) for t in ROUNDS)) for method, runs in by_method.items())
    head = ("method", *(f"{t} rounds" for t in ROUNDS))
    return Table(f"{item.title}: {column}, {named(protocol)}, in %", head, rows)


def _at(runs: Runs, protocol: str, t: int) -> list[float]:
    """Accuracies in % after t rounds, of the runs that were evaluated then."""
    series = (dict(zip(run["curve"]["rounds"], run["curve"].get(protocol, []), strict=False)) for run in runs)
    return [100 * values[t] for values in series if values.get(t) is not None]


def _looks(methods: Iterable[str]) -> dict[str, dict[str, str]]:
    """How each method is drawn: a colour for each algorithm, dashes for its variants."""
    variants: dict[str, list[str]] = {}
    for method in methods:
        variants.setdefault(_algorithm(method), []).append(method)
    return {
        method: {"color": f"C{colour}", "linestyle": style}
        for colour, of_one in enumerate(variants.values())
        for method, style in zip(of_one, cycle(STYLES), strict=False)
    }


def _figure(item: Item, column: str, by_method: Mapping[str, Runs], protocol: str, folder: Path) -> Path:
    figure = Figure(figsize=(6, 4), layout="constrained")
    axes: Any = figure.subplots()
    looks = _looks(by_method)
    for method, runs in by_method.items():
        shortest = min(len(run["curve"]["rounds"]) for run in runs)
        series = [run["curve"][protocol][:shortest] for run in runs if protocol in run["curve"]]
        if series:
            means = 100 * np.mean(np.array(series, dtype=float), axis=0)
            axes.plot(runs[0]["curve"]["rounds"][:shortest], means, label=method, linewidth=1, **looks[method])
    axes.set_xlim(0, max(ROUNDS))
    axes.set_xlabel("rounds")
    axes.set_ylabel(f"mean accuracy, {named(protocol)} (%)")
    axes.set_title(f"{item.title}: {column}", fontsize=9)
    axes.legend(fontsize=7)
    return save(figure, folder / f"{item.name}-{column.replace(' ', '-')}-{protocol}.svg")
