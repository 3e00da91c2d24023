"""The outcome of a benchmark -> one page of HTML that needs nothing else: methods by shifts, ranks, tests and costs."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from operator import itemgetter
from pathlib import Path
from typing import Any, Final

import numpy as np

from pacfl import __version__
from pacfl.benchmark.grid import columns, grid, settings
from pacfl.benchmark.leaders import leaders, missing
from pacfl.benchmark.outcome import PROTOCOLS, Outcome
from pacfl.benchmark.statistics import FINE_TUNED, REFERENCE, best_in_cells, score_of, values
from pacfl.errors import StoreError, library
from pacfl.files import write_atomically
from pacfl.report.page import ASSETS, POLICY, closed, embedded, text_of

Runs = Sequence[Mapping[str, Any]]
Value = Callable[[Mapping[str, Any]], float | None]
SCRIPTS: Final = ("1-data.js", "2-save.js", "2-tables.js", "leaderboard.js")


def write(outcome: Outcome, path: Path) -> int:
    """Write the page of an outcome, as `pacfl.benchmark.outcome.load` reads it, in one step; its size in bytes."""
    return write_atomically(path, page(outcome).encode())


def page(outcome: Outcome) -> str:
    """The page."""
    if not outcome["runs"]:
        raise StoreError("the outcome has no runs; run pacfl benchmark first, or name other methods and shifts")
    jinja2, markup = library("jinja2", "a report", "report"), library("markupsafe", "a report", "report").Markup
    environment = jinja2.Environment(loader=jinja2.FileSystemLoader(ASSETS), autoescape=True)
    html: str = environment.get_template("leaderboard.html").render(
        version=__version__,
        policy=POLICY,
        scale=outcome["scale"],
        description=_description(outcome),
        reference=REFERENCE,
        missing=list(missing(outcome["runs"])),
        css=markup(text_of("page.css") + text_of("leaderboard.css")),
        data=markup(embedded(payload(outcome))),
        script=markup(closed("\n".join(map(text_of, SCRIPTS)))),
    )
    return html


def payload(outcome: Outcome) -> dict[str, Any]:
    """All that the page shows. Rows of values are methods, columns are cells."""
    runs = outcome["runs"]
    given = {run["method"]: run["given"] for run in runs}
    cells = list(dict.fromkeys((run["data_set"], run["column"]) for run in runs))
    kinds = list(dict.fromkeys(kind for run in runs for kind in run.get("scores", ())))
    table = _Table(list(given), cells, runs)
    return {
        "methods": [{"name": name, "given": is_given} for name, is_given in given.items()],
        "cells": [
            {"set": data_set, "shift": column, "title": _titles(data_set).get(column, "")} for data_set, column in cells
        ],
        "kinds": kinds,
        "protocols": PROTOCOLS,
        "reference": REFERENCE,
        "fineTuned": FINE_TUNED,
        "status": table.rows(_status),
        "runs": table.rows(lambda own: " ".join(run["hash"][:8] for run in own) or None),
        "values": {name: table.means(value) for name, value in COSTS.items()}
        | {
            f"{name}|{kind}|{protocol}": table.means(value(kind, protocol), NOTHING_LEARNT.get(name))
            for name, value in SCORES.items()
            for kind in kinds
            for protocol in PROTOCOLS
        },
        "leaders": {
            f"{data_set}|{chosen}|{kind}|{protocol}": _leaders(own, kind, protocol)
            for (data_set, chosen), own in _choices(runs, given).items()
            for kind in kinds
            for protocol in PROTOCOLS
        },
    }


COSTS: Final[Mapping[str, Value]] = {
    name: itemgetter(name) for name in ("ari", "clusters", "megabytes", "seconds", "rounds_to_target")
}
SCORES: Final[Mapping[str, Callable[[str, str], Value]]] = {
    "accuracy": score_of,
    "worst_tenth": lambda kind, protocol: score_of(kind, protocol, "worst_tenth"),
    "below_local": lambda kind, protocol: lambda run: run["below_local"][kind][protocol],
}


NOTHING_LEARNT: Final = {"accuracy": 0.0, "worst_tenth": 0.0}  # of a run that diverged, as in the ranks


class _Table:
    """Runs by method and cell."""

    def __init__(self, methods: Sequence[str], cells: Sequence[tuple[str, str]], runs: Runs) -> None:
        self._by_place: dict[tuple[str, str, str], list[Mapping[str, Any]]] = {}
        for run in sorted(runs, key=lambda run: run["seed"]):
            self._by_place.setdefault((run["method"], run["data_set"], run["column"]), []).append(run)
        self._methods, self._cells = methods, cells

    def rows(self, of_cell: Callable[[Runs], Any]) -> list[list[Any]]:
        """A value of each cell, by method."""
        return [[of_cell(self._by_place.get((m, *cell), ())) for cell in self._cells] for m in self._methods]

    def means(self, value: Value, diverged: float | None = None) -> list[list[float | None]]:
        """Means over the seeds that have a value; diverged: that of a run that diverged."""

        def of_run(run: Mapping[str, Any]) -> float | None:
            return value(run) if "scores" in run else diverged if "diverged" in run else None

        def mean(own: Runs) -> float | None:
            known = [found for run in own if (found := of_run(run)) is not None]
            return round(float(np.mean(known)), 5) if known else None

        return self.rows(mean)


def _status(own: Runs) -> str | None:
    """Why a cell has no value, or not that of all seeds."""
    if not own:
        return "not run"
    return next((what for what in ("refused", "diverged") if any(what in run for run in own)), None)


def _choices(runs: Runs, given: Mapping[str, bool]) -> dict[tuple[str, str], Runs]:
    """The runs that are ranked together: of one data set or all (""), by which methods."""
    sets = list(dict.fromkeys(run["data_set"] for run in runs))
    methods = {
        "all": set(given),
        "free": {name for name, is_given in given.items() if not is_given},
        "given": {name for name, is_given in given.items() if is_given or name in (REFERENCE, FINE_TUNED)},
    }
    return {
        (data_set, chosen): [run for run in runs if data_set in ("", run["data_set"]) and run["method"] in names]
        for data_set in ("", *(sets if len(sets) > 1 else ()))
        for chosen, names in methods.items()
    }


def _leaders(runs: Runs, kind: str, protocol: str) -> dict[str, Any]:
    """Rows of the leaderboard, the number of cells, and in each cell the methods that are best or tied."""
    ranked = values(runs, score_of(kind, protocol))
    rows = [{**asdict(row), "verdict": row.verdict} for row in leaders(runs, kind, protocol)]
    best = best_in_cells(ranked) or {}
    return {
        "rows": rows,
        "cells": [len(ranked.cells), ranked.n_cells],
        "best": {"|".join(cell): names for cell, names in best.items()},
    }


def _description(outcome: Outcome) -> str:
    runs, usual = outcome["runs"], settings(outcome["scale"])
    seeds = sorted({run["seed"] for run in runs})
    sets = ", ".join(dict.fromkeys(run["data_set"] for run in runs))
    n_methods = len({run["method"] for run in runs})
    n_cells = len({(run["data_set"], run["column"]) for run in runs})
    schedule, learning = usual.schedule, usual.learning
    tuned = "untuned" if usual.tuning is None else "tuned by four trials for each method and shift"
    return (
        f"{n_methods} methods on {n_cells} shifts of {sets}; {usual.data['clients']} clients, or as many as "
        f"a name says; {schedule['rounds']} rounds with {100 * schedule['participation']:.4g} % of them, "
        f"{learning['epochs']} local epochs; {'seeds' if len(seeds) > 1 else 'seed'} {', '.join(map(str, seeds))}; "
        f"{tuned}."
    )


def _titles(data_set: str) -> dict[str, str]:
    """What the shifts of a data set are, by column."""
    return {c.name: c.shift.title for c in columns("full", data_set)} if data_set in grid()["data-sets"] else {}
