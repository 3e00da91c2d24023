"""What differences between methods are worth: mean ranks, a paired bootstrap over cells, and Holm's correction.

A cell is a data set, a shift and a number of clients. Its value for a method is the mean over the seeds that all
methods have in it. A run that diverged has learnt nothing: its accuracy is 0.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata, wilcoxon

from pacfl.experiment.seeds import best_and_ties
from pacfl.learning.randomness import stream

REFERENCE: Final = "pacfl"
FINE_TUNED: Final = "fedavg-ft"
LEVEL: Final = 0.05
DRAWS: Final = 10_000
FEWEST_CELLS: Final = 6  # with fewer, no difference can be significant at this level: 2 / 2^5 > 0.05

Cell = tuple[str, str]  # data set, column
Values = Mapping[Cell, Mapping[str, Mapping[int, float]]]  # by method and seed


@dataclass(frozen=True, eq=False)
class Grid:
    """Values of methods in the cells that all of them have, paired by seed."""

    methods: tuple[str, ...]
    cells: tuple[Cell, ...]
    by_seed: Values
    n_cells: int  # with those that some method does not have yet

    @cached_property
    def means(self) -> NDArray[np.float64]:
        """(cells, methods): means over seeds."""
        rows = [[np.mean(list(self.by_seed[cell][m].values())) for m in self.methods] for cell in self.cells]
        return np.array(rows).reshape(len(self.cells), len(self.methods))

    def column(self, method: str) -> NDArray[np.float64]:
        """(cells,) of one method."""
        return self.means[:, self.methods.index(method)]


def values(runs: Iterable[Mapping[str, Any]], score: Callable[[Mapping[str, Any]], float | None]) -> Grid:
    """The grid of a score of finished runs. Methods that some cell refuses are left out: they have no rank."""
    found: dict[Cell, dict[str, dict[int, float]]] = {}
    without: set[str] = set()
    for run in runs:
        value = 0.0 if "diverged" in run else None if "refused" in run else score(run)
        if value is None:
            without.add(run["method"])
        else:
            cell = found.setdefault((run["data_set"], run["column"]), {})
            cell.setdefault(run["method"], {})[run["seed"]] = value
    methods = dict.fromkeys(m for of_cell in found.values() for m in of_cell if m not in without)
    paired = {cell: _paired(of_cell, methods) for cell, of_cell in found.items() if set(of_cell) >= set(methods)}
    complete = {cell: own for cell, own in paired.items() if own and all(own.values())}
    return Grid(tuple(methods), tuple(complete), complete, len(found))


def _paired(of_cell: Mapping[str, Mapping[int, float]], methods: Iterable[str]) -> dict[str, dict[int, float]]:
    """The values of the seeds that all methods have."""
    common = sorted(set.intersection(*(set(of_cell[m]) for m in methods))) if of_cell else []
    return {m: {seed: of_cell[m][seed] for seed in common} for m in methods}


def mean_ranks(grid: Grid) -> dict[str, float]:
    """By method, 1 is the best; equal means share the mean of their ranks."""
    ranks = rankdata(-grid.means, axis=1) if len(grid.cells) else np.full((1, len(grid.methods)), np.nan)
    return dict(zip(grid.methods, ranks.mean(axis=0).tolist(), strict=True))


def best_in_cells(grid: Grid) -> dict[Cell, list[str]] | None:
    """By cell the best method, and those that are not distinguished from it; None for single seeds or methods."""
    best: dict[Cell, list[str]] = {}
    for cell in grid.cells:
        own = grid.by_seed[cell]
        found = best_and_ties([own[m] for m in grid.methods]) if len(grid.methods) > 1 else None
        if found is None:
            return None
        best[cell] = [grid.methods[i] for i in (found[0], *found[1])]
    return best


def within_noise(best: Mapping[Cell, Sequence[str]] | None, grid: Grid) -> dict[str, float | None]:
    """By method the share of cells in which it is best, or not distinguished from the best; None where not known."""
    if not best:
        return dict.fromkeys(grid.methods)
    return {m: float(np.mean([m in good for good in best.values()])) for m in grid.methods}


@dataclass(frozen=True)
class Comparison:
    """By how much a reference is ahead of a method, over cells."""

    gain: float  # mean difference
    low: float  # 95 % interval of the paired bootstrap over cells
    high: float
    p: float | None  # Wilcoxon's signed-rank test, before Holm's correction; None for too few cells
    holm: float | None = None  # after it

    @property
    def verdict(self) -> str:
        """Whether the reference is ahead of the method, behind, or tied with it."""
        if self.holm is None or self.holm >= LEVEL:
            return "tied" if self.holm is not None else "too few cells"
        return "ahead" if self.gain > 0 else "behind"


def compared(grid: Grid, reference: str = REFERENCE) -> dict[str, Comparison]:
    """Every other method beside the reference; the tests are one family."""
    if reference not in grid.methods or not grid.cells:
        return {}
    ours = grid.column(reference)
    drawn = stream(0, "bootstrap").integers(0, len(ours), (DRAWS, len(ours)))  # the same cells for all methods
    found = {m: _comparison(ours - grid.column(m), drawn) for m in grid.methods if m != reference}
    corrected = holm([one.p for one in found.values()])
    return {
        m: Comparison(one.gain, one.low, one.high, one.p, p)
        for (m, one), p in zip(found.items(), corrected, strict=True)
    }


def _comparison(differences: NDArray[np.float64], drawn: NDArray[np.int64]) -> Comparison:
    low, high = np.quantile(differences[drawn].mean(axis=1), (LEVEL / 2, 1 - LEVEL / 2))
    return Comparison(float(differences.mean()), float(low), float(high), signed_rank(differences))


def signed_rank(differences: NDArray[np.float64]) -> float | None:
    """Wilcoxon's test, two-sided; cells without a difference count for neither (Pratt). None for too few cells.

    >>> signed_rank(np.arange(1.0, 7.0)), signed_rank(np.zeros(8)), signed_rank(np.ones(3))
    (0.03125, 1.0, None)
    """
    if len(differences) < FEWEST_CELLS:
        return None
    if not differences.any():
        return 1.0
    # The exact distribution is that of differences that are all different and not 0
    sizes = np.abs(differences)
    exact = len(np.unique(sizes)) == len(sizes) and sizes.all()
    return float(wilcoxon(differences, zero_method="pratt", method="exact" if exact else "approx").pvalue)


def holm(chances: Sequence[float | None]) -> list[float | None]:
    """Chances of a family of tests, corrected step by step: the smallest times m, the next times m - 1, ...

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    known = sorted((p, i) for i, p in enumerate(chances) if p is not None)
    corrected: list[float | None] = [None] * len(chances)
    least = 0.0
    for step, (p, i) in enumerate(known):
        least = max(least, min(1.0, p * (len(known) - step)))
        corrected[i] = least
    return corrected


def score_of(kind: str, protocol: str, what: str = "mean") -> Callable[[Mapping[str, Any]], float | None]:
    """Of a run: the mean accuracy over clients, or of the worst tenth, on a kind of test samples by a protocol."""
    return lambda run: run["scores"][kind][protocol][what]
