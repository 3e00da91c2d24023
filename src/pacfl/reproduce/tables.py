"""Tables of words, the paper's value beside ours; printed by the command, or written as Markdown."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

PROTOCOLS: Final = ("received", "personal", "last_trained")
NOT_RUN: Final = "not run"

Runs = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Table:
    """Words in rows and columns."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()


def markdown(table: Table) -> str:
    """The table as Markdown, its notes below."""
    lines = [f"**{table.title}**", "", _row(table.head), "|---" * len(table.head) + "|"]
    lines += [_row(row) for row in table.rows]
    for note in table.notes:
        lines += ["", note]
    return "\n".join(lines) + "\n"


def over_seeds(values: Sequence[float], digits: int = 2) -> str:
    """Mean and deviation over seeds, as the paper gives them; one seed has no deviation."""
    if not values:
        return "-"
    mean = f"{np.mean(values):.{digits}f}"
    return mean if len(values) == 1 else f"{mean} ± {np.std(values):.{digits}f}"


def counted(values: Sequence[int]) -> str:
    """How many, over seeds: a whole number where all seeds agree."""
    return str(values[0]) if len(set(values)) == 1 else over_seeds(values, 1)


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
    told = {_settings(run) for run in runs}
    return "; ".join(sorted(told)) or "-"


def leaders(by_method: Mapping[str, Runs], protocol: str) -> str:
    """Who is first under a protocol, and who ties: closer than the two deviations together."""
    values = {m: v for m, runs in by_method.items() if (v := accuracies(runs, protocol))}
    if not values:
        return f"{named(protocol)}: nothing was run."
    best = max(values, key=lambda m: float(np.mean(values[m])))
    first = f"{named(protocol)}: first is {best} with {over_seeds(values[best])}"
    if min(len(v) for v in values.values()) < 2:
        return f"{first}; with one seed no deviation is known, and small differences mean nothing."
    ties = [m for m in values if m != best and _tie(values[best], values[m])]
    return f"{first}; within the deviations of it, and so tied: {', '.join(ties) if ties else 'nobody'}."


def named(protocol: str) -> str:
    """A protocol as it is spelt in tables."""
    return protocol.replace("_", "-")


def _tie(best: Sequence[float], other: Sequence[float]) -> bool:
    return bool(np.mean(best) - np.mean(other) <= np.std(best) + np.std(other))


def _settings(run: Mapping[str, Any]) -> str:
    mu = f", mu {run['algorithm']['mu']:g}" if "mu" in run["algorithm"] else ""
    return f"{run['learning']['lr']:g}{mu}"


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
