"""Tables of text, the paper's value beside ours; printed by the command, or written as Markdown."""

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from pacfl.experiment.seeds import best_and_ties, seed_std

PROTOCOLS: Final = ("received", "personal", "last_trained")
NOT_RUN: Final = "not run"
WIDTH: Final = 100  # of lines of prose in Markdown

Runs = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Table:
    """Text in rows and columns."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()


def markdown(table: Table) -> str:
    """The table as Markdown, its notes below."""
    lines = [f"**{table.title}**", "", _row(table.head), "|---" * len(table.head) + "|"]
    lines += [_row(row) for row in table.rows]
    for note in table.notes:
        lines += ["", textwrap.fill(note, WIDTH, break_long_words=False, break_on_hyphens=False)]
    return "\n".join(lines) + "\n"


def over_seeds(values: Sequence[float], digits: int = 2) -> str:
    """Mean ± standard deviation over seeds (divisor n); one seed has no standard deviation."""
    if not values:
        return "-"
    mean, std = f"{np.mean(values):.{digits}f}", seed_std(values)
    return mean if std is None else f"{mean} ± {std:.{digits}f}"


def counted(values: Sequence[int]) -> str:
    """A count over seeds: an integer where all seeds agree."""
    return str(values[0]) if len(set(values)) == 1 else over_seeds(values, 1)


def clusters_and_ari(runs: Runs) -> tuple[str, str]:
    """The number of clusters and its agreement with the true ones; "-" for a method without clusters (solo)."""
    clustered = [run for run in runs if "clusters" in run and run["algorithm"]["name"] != "solo"]
    aris = [run["ari"] for run in clustered if run["ari"] is not None]
    return counted([run["clusters"] for run in clustered]), over_seeds(aris)


def percent(runs: Runs, protocol: str) -> str:
    """Mean accuracy over seeds in %, and how many runs diverged."""
    if not runs:
        return NOT_RUN
    values = accuracies(runs, protocol)
    diverged = sum("diverged" in run for run in runs)
    if not values:
        return "diverged" if diverged else "-"
    return over_seeds(values) + (f" ({diverged} of {len(runs)} diverged)" if diverged else "")


def accuracies(runs: Runs, protocol: str) -> list[float]:
    """Mean accuracies over clients in %, of the runs that did not diverge."""
    return [100 * run["accuracy"][protocol]["mean"] for run in runs if protocol in run.get("accuracy", {})]


def settings(runs: Runs) -> str:
    """The learning rate, and FedProx's mu, of a method's runs."""
    return "; ".join(sorted({_settings(run) for run in runs})) or "-"


def leaders(by_method: Mapping[str, Runs], protocol: str) -> str:
    """Which method has the highest mean under a protocol, and which tie with it by the rule of `pacfl report`."""
    found = {m: v for m, runs in by_method.items() if (v := _by_seed(runs, protocol))}
    if not found:
        return f"{named(protocol)}: nothing was run."
    best = max(found, key=lambda m: float(np.mean(list(found[m].values()))))
    first = f"{named(protocol)}: {best} is first with {over_seeds(list(found[best].values()))}"
    ranked = best_and_ties(list(found.values()))
    if ranked is None:
        return f"{first}; with one seed no standard deviation is known, and small differences mean nothing."
    ties = [list(found)[i] for i in ranked[1]]
    return f"{first}; tied with it: {', '.join(ties) if ties else 'none'}."


def _by_seed(runs: Runs, protocol: str) -> dict[int, float]:
    scored = [run for run in runs if protocol in run.get("accuracy", {})]
    return dict(zip((run["seed"] for run in scored), accuracies(scored, protocol), strict=True))


def named(protocol: str) -> str:
    """A protocol as tables spell it."""
    return protocol.replace("_", "-")


def _settings(run: Mapping[str, Any]) -> str:
    mu = f", mu {run['algorithm']['mu']:g}" if "mu" in run["algorithm"] else ""
    return f"{run['learning']['lr']:g}{mu}"


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
