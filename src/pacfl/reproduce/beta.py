"""Accuracy and number of clusters of PACFL against its threshold, the automatic choice marked."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from pacfl.reproduce.figures import Figure, save
from pacfl.reproduce.items import Item
from pacfl.reproduce.outcome import Outcome
from pacfl.reproduce.tables import NOT_RUN, PROTOCOLS, Runs, Table, accuracies, counted, named, over_seeds, percent

AUTO = "pacfl(paper)"  # the method whose threshold is chosen for it


def tables(item: Item, outcome: Outcome) -> list[Table]:
    """One table for each data set, from one model for all to one for each."""
    return [_table(item, outcome, column) for column in item.columns]


def _table(item: Item, outcome: Outcome, column: str) -> Table:
    cuts = by_cut(outcome, column)
    head = ("method", "beta (degrees)", "clusters", *(named(p) for p in PROTOCOLS), "seeds", "runs")
    title = f"{item.title}: {column}"
    if not cuts:
        reason = outcome["missing"].get(column, NOT_RUN)
        return Table(title, head, ((AUTO, reason, *[""] * (len(head) - 2)),))
    rows = tuple(
        (
            f"{method} (automatic)" if method == AUTO else method,
            over_seeds([run["clustering"]["threshold"] for run in runs]),
            counted([run["clusters"] for run in runs]),
            *(percent(runs, p) for p in PROTOCOLS),
            " ".join(str(run["seed"]) for run in runs),
            " ".join(run["hash"][:8] for run in runs),
        )
        for method, runs in cuts.items()
    )
    return Table(title, head, rows, tuple(_verdict(cuts, p) for p in PROTOCOLS))


def by_cut(outcome: Outcome, column: str) -> dict[str, Runs]:
    """Runs that did not diverge by method, from the smallest threshold to the largest."""
    runs = [run for run in outcome["runs"] if run["column"] == column and "clustering" in run]
    methods = {run["method"] for run in runs}
    found: dict[str, Runs] = {m: [run for run in runs if run["method"] == m] for m in methods}
    return dict(sorted(found.items(), key=lambda pair: (_beta(pair[1]), pair[0])))


def _beta(runs: Runs) -> float:
    return float(np.mean([run["clustering"]["threshold"] for run in runs]))


def _verdict(cuts: Mapping[str, Runs], protocol: str) -> str:
    means = {m: float(np.mean(v)) for m, runs in cuts.items() if (v := accuracies(runs, protocol))}
    if AUTO not in means:
        return f"{named(protocol)}: the automatic choice was not run."
    best = max(means, key=lambda m: means[m])
    behind = means[best] - means[AUTO]
    return f"{named(protocol)}: the automatic choice is {behind:.2f} points below the best cut of the sweep ({best})."


def figures(item: Item, outcome: Outcome, folder: Path) -> list[Path]:
    """Accuracy as a line and clusters as bars, against beta."""
    return [_figure(item, column, cuts, folder) for column in item.columns if len(cuts := by_cut(outcome, column)) > 1]


def _figure(item: Item, column: str, cuts: Mapping[str, Runs], folder: Path) -> Path:
    figure = Figure(figsize=(6, 3.6), layout="constrained")
    left: Any = figure.subplots()
    right = left.twinx()
    places = range(len(cuts))
    right.bar(places, [np.mean([run["clusters"] for run in runs]) for runs in cuts.values()], color="0.85")
    right.set_ylabel("clusters")
    for protocol in PROTOCOLS:
        values = [np.mean(accuracies(runs, protocol) or [np.nan]) for runs in cuts.values()]
        left.plot(places, values, marker="o", label=named(protocol))
    left.axvline(list(cuts).index(AUTO), color="black", linestyle="--", linewidth=0.8, label="automatic")
    left.set_zorder(right.get_zorder() + 1)
    left.patch.set_visible(False)
    left.set_xticks(places, [f"{_beta(runs):.3g}" for runs in cuts.values()])
    left.set_xlabel("beta (degrees)")
    left.set_ylabel("accuracy (%)")
    left.set_title(f"{item.title}: {column}", fontsize=9)
    left.legend(fontsize=7)
    return save(figure, folder / f"{item.name}-{column}.svg")
