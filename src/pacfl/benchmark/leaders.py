"""The rows of the leaderboard: each method over all cells, beside PACFL and beside FedAvg with fine-tuning."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pacfl.benchmark.statistics import (
    FINE_TUNED,
    Comparison,
    Grid,
    best_in_cells,
    compared,
    mean_ranks,
    score_of,
    values,
    within_noise,
)

Runs = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Leader:
    """A method over the cells that all methods have."""

    method: str
    given: bool  # the number of clusters
    rank: float | None
    cells: int  # over which it is ranked
    accuracy: float | None
    worst_tenth: float | None
    below_local: float | None
    ari: float | None
    megabytes: float | None
    seconds: float | None
    native: float | None  # the share of the processor time inside the native engine
    rounds_to_target: float | None  # median over runs that reach it
    reached: float | None  # the share of them
    within_noise: float | None  # the share of cells in which it is best, or not distinguished from the best
    least_beside_fine_tuned: float | None  # the least difference from FedAvg with fine-tuning, over cells
    beside_reference: Comparison | None
    verdict: str | None  # what the reference is, beside it

    def row(self) -> tuple[str, ...]:
        """The cells of a printed row."""
        own = self.beside_reference
        return (
            self.method + " k" * self.given,
            _number(self.rank, 1),
            _points(self.accuracy),
            _points(self.worst_tenth),
            _points(self.below_local, 0),
            _number(self.ari, 2),
            _number(self.megabytes, 1),
            _number(self.seconds, 1),
            "" if own is None else f"{100 * own.gain:+.1f}",
            "" if own is None or own.holm is None else f"{own.holm:.3f}",
        )


def leaders(runs: Runs, kind: str, protocol: str) -> list[Leader]:
    """All methods, the best mean rank first; those without a rank, as a cell refuses them, last."""
    grid = values(runs, score_of(kind, protocol))
    fine = values([run for run in runs if run["method"] == FINE_TUNED], score_of(kind, "personal"))
    about = _About(grid, fine, mean_ranks(grid), within_noise(best_in_cells(grid), grid), compared(grid))
    methods = dict.fromkeys(run["method"] for run in runs)
    rows = [_leader(name, [run for run in runs if run["method"] == name], about, kind, protocol) for name in methods]
    return sorted(rows, key=lambda row: (row.rank is None, row.rank or 0.0, row.method))


@dataclass(frozen=True, eq=False)
class _About:
    """What is known of all methods together."""

    grid: Grid
    fine_tuned: Grid
    ranks: Mapping[str, float]
    within: Mapping[str, float | None]
    comparisons: Mapping[str, Comparison]


def _leader(name: str, runs: Runs, about: _About, kind: str, protocol: str) -> Leader:
    ranked = name in about.ranks and bool(about.grid.cells)
    ended = [run for run in runs if "scores" in run and (run["data_set"], run["column"]) in about.grid.cells]
    to_target = [run["rounds_to_target"] for run in ended if run["rounds_to_target"] is not None]
    comparison = about.comparisons.get(name)
    return Leader(
        method=name,
        given=any(run["given"] for run in runs),
        rank=about.ranks[name] if ranked else None,
        cells=len(about.grid.cells) if ranked else 0,
        accuracy=float(about.grid.column(name).mean()) if ranked else None,
        worst_tenth=_mean(ended, score_of(kind, protocol, "worst_tenth")),
        below_local=_mean(ended, lambda run: run["below_local"][kind][protocol]),
        ari=_mean(ended, lambda run: run["ari"]),
        megabytes=_mean(ended, lambda run: run["megabytes"]),
        seconds=_mean(ended, lambda run: run["seconds"]),
        native=native_share(ended),
        rounds_to_target=float(np.median(to_target)) if to_target else None,
        reached=len(to_target) / len(ended) if ended else None,
        within_noise=about.within.get(name),
        least_beside_fine_tuned=_least(name, about) if ranked else None,
        beside_reference=comparison,
        verdict=None if comparison is None else comparison.verdict,
    )


def _least(name: str, about: _About) -> float | None:
    """The least difference from FedAvg after fine-tuning, whatever the protocol of the method."""
    fine = {cell: np.mean(list(own[FINE_TUNED].values())) for cell, own in about.fine_tuned.by_seed.items()}
    own = dict(zip(about.grid.cells, about.grid.column(name).tolist(), strict=True))
    differences = [own[cell] - fine[cell] for cell in own if cell in fine]
    return float(min(differences)) if differences else None


def _mean(runs: Runs, value: Callable[[Mapping[str, Any]], float | None]) -> float | None:
    """Over the runs that have one."""
    known = [found for run in runs if (found := value(run)) is not None]
    return float(np.mean(known)) if known else None


def native_share(runs: Runs) -> float | None:
    """The share of the processor time of runs inside the native engine; None if no run has its time."""
    used = [run["processor"] for run in runs if run.get("processor") is not None]
    everything = sum(one["all"] for one in used)
    return sum(one["native"] for one in used) / everything if everything else None


def missing(runs: Runs) -> Iterator[str]:
    """What has no score, in a line for each method and reason."""
    for what, words in (("refused", "is refused in"), ("diverged", "diverged in")):
        found: dict[tuple[str, str], list[str]] = {}
        for run in runs:
            if what in run:
                cells = found.setdefault((run["method"], run[what] if what == "refused" else ""), [])
                cells.append(f"{run['data_set']} {run['column']}")
        for (method, why), cells in found.items():
            yield f"{method} {words} {', '.join(dict.fromkeys(cells))}{': ' if why else ''}{why}"


def _number(value: float | None, decimals: int) -> str:
    return "-" if value is None else f"{value:,.{decimals}f}"


def _points(value: float | None, decimals: int = 1) -> str:
    return "-" if value is None else f"{100 * value:.{decimals}f}"
