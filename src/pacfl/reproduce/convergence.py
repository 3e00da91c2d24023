"""Error against T and K beside the rates of the two theorems, with misidentified clients; gradient diversity."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from pacfl.learning.randomness import stream
from pacfl.reproduce import diversity, theorems
from pacfl.reproduce.figures import Figure, save
from pacfl.reproduce.items import Item, missing
from pacfl.reproduce.making import Request, asked_columns
from pacfl.reproduce.outcome import Outcome
from pacfl.reproduce.tables import NOT_RUN, Table
from pacfl.reproduce.theorems import Problem, Whose

Array = NDArray[np.float64]

SAMPLED: Final = (1, 2, 4, 8, 16)  # K
GROUPS: Final = 8  # of repetitions, for the standard error of slopes
PREDICTED: Final = {"Polyak-Lojasiewicz": -1.0, "smooth non-convex": -0.5}


def make(item: Item, request: Request) -> Outcome:
    """Both theorems for every share of misidentified clients, and one federation."""
    settings = item.settings(request.scale)
    tried = [
        fit
        for theorem in (first, second)
        for share in settings["misidentified"]
        for fit in theorem(share, settings["longest"], settings["repetitions"])
    ]
    lacking = missing(item, request.scale, request.data)
    columns = [column for column in asked_columns(item, request) if column not in lacking]
    recorded = [one for column in columns for one in diversity.recorded(item, column, request)]
    common = {"item": item.name, "scale": request.scale, "missing": lacking, "runs": [], "tuning": []}
    return {**common, "theorems": tried, "diversity": recorded}


def first(share: float, longest: int, repetitions: int) -> list[dict[str, Any]]:
    """Theorem 1: E[F(θ_T) - F*] of a Polyak-Lojasiewicz objective with decreasing rates falls as 1 / (KT)."""
    problem, at = theorems.convex(share), times(longest)
    rates = theorems.decreasing_rates(problem, longest).tolist()

    def errors(k: int, whose: Sequence[Whose]) -> Array:
        path = theorems.local_sgd(problem, k, rates, repetitions, stream(0, "theorem 1", k))
        reached = [point for t, point in enumerate(path, 1) if t in at]
        return np.array([[problem.excess(point, one) for point in reached] for one in whose])

    return _tried(problem, share, at, errors)


def second(share: float, longest: int, repetitions: int) -> list[dict[str, Any]]:
    """Theorem 2: the mean of E|∇F(θ_t)|² over T steps of rate √(K/T) / L falls as 1 / √(KT)."""
    problem, at = theorems.nonconvex(share), times(longest)

    def mean_excess(k: int, whose: Sequence[Whose], steps: int) -> Array:
        rates = theorems.constant_rates(problem, k, steps).tolist()
        path = theorems.local_sgd(problem, k, rates, repetitions, stream(0, "theorem 2", k, steps))
        total = np.zeros((len(whose), repetitions))
        for point in path:
            total += [problem.excess(point, one) for one in whose]
        return total / steps

    def errors(k: int, whose: Sequence[Whose]) -> Array:
        return np.stack([mean_excess(k, whose, steps) for steps in at], axis=1)

    return _tried(problem, share, at, errors)


def times(longest: int) -> tuple[int, ...]:
    """Five numbers of steps, each twice the one before."""
    return tuple(longest >> i for i in reversed(range(5)))


def slopes(at: Sequence[int], sampled: Sequence[int], errors: Array) -> tuple[float, float]:
    """Exponents of T and K in error = constant × T^a × K^b, by least squares: errors (K, T)."""
    k, t = np.meshgrid(np.log(sampled), np.log(at), indexing="ij")
    design = np.column_stack([t.ravel(), k.ravel(), np.ones(t.size)])
    (a, b, _), *_ = np.linalg.lstsq(design, np.log(errors).ravel(), rcond=None)
    return float(a), float(b)


def _tried(
    problem: Problem, share: float, at: Sequence[int], errors: Callable[[int, Sequence[Whose]], Array]
) -> list[dict[str, Any]]:
    """Errors by the objective of the whole cluster, and of its rightly identified clients where they are not all."""
    whose: tuple[Whose, ...] = ("all", "right") if share else ("all",)
    by_sampled = np.stack([errors(k, whose) for k in SAMPLED], axis=1)  # (whose, K, T, repetitions)
    fits = []
    for name, values in zip(whose, by_sampled, strict=True):
        groups = np.array_split(values, min(GROUPS, values.shape[-1]), axis=-1)
        each = np.array([slopes(at, SAMPLED, group.mean(axis=-1)) for group in groups])
        fitted = slopes(at, SAMPLED, values.mean(axis=-1))
        spread = each.std(axis=0) / np.sqrt(len(groups))
        fits.append(
            {
                "problem": problem.name,
                "misidentified": share,
                "objective": name,
                "steps": list(at),
                "sampled": list(SAMPLED),
                "errors": [[float(f"{v:.5g}") for v in row] for row in values.mean(axis=-1)],
                "slope_in_steps": [fitted[0], float(spread[0])],
                "slope_in_sampled": [fitted[1], float(spread[1])],
            }
        )
    return fits


def tables(item: Item, outcome: Outcome) -> list[Table]:
    """Fitted exponents beside the predicted ones, and diversity within and across clusters."""
    return [_theorems(item, outcome), _diversity(item, outcome)]


def _theorems(item: Item, outcome: Outcome) -> Table:
    head = (
        "problem",
        "misidentified",
        "objective of",
        "predicted",
        "exponent of T",
        "exponent of K",
        "error, last T, K = 4",
    )
    whose = {"all": "the whole cluster", "right": "the rightly identified"}
    rows = tuple(
        (
            fit["problem"],
            f"{fit['misidentified']:.0%}",
            whose[fit["objective"]],
            f"{PREDICTED[fit['problem']]:g}",
            *(f"{fit[key][0]:.3f} ± {fit[key][1]:.3f}" for key in ("slope_in_steps", "slope_in_sampled")),
            f"{fit['errors'][fit['sampled'].index(4)][-1]:.3g}",
        )
        for fit in outcome["theorems"]
    )
    notes = (
        "Error = constant · T^a · K^b, fitted to five T and five K. Error is F - F* for the first problem, the mean "
        "squared norm of the gradient for the second.",
        "The theorems bound the objective of the whole cluster, misidentified clients included. What its rightly "
        "identified clients care for is their own objective: there misidentified clients leave an error that more "
        "steps and clients do not take away.",
    )
    return Table(f"{item.title}: the theorems", head, rows, notes)


def _diversity(item: Item, outcome: Outcome) -> Table:
    head = ("federation", "method", "round", "clusters", "of its own clients", "of all clients", "run")
    rows = [
        (
            t["column"],
            t["method"],
            str(t["round"]),
            str(t["clusters"]),
            f"{t['within']:.2f}",
            f"{t['across']:.2f}",
            t["hash"][:8],
        )
        for t in outcome["diversity"]
    ]
    known = {t["column"] for t in outcome["diversity"]}
    rows += [(c, outcome["missing"].get(c, NOT_RUN), "", "", "", "", "") for c in item.columns if c not in known]
    notes = (
        "Weighted gradient diversity at each cluster's model, mean over clusters. It is |C| Σ|∇F_k|² / |Σ∇F_k|², which "
        "is 1 where all gradients are equal; Eq. 4 as printed is that over |C|². It grows without end where a model "
        "comes to rest and clients still disagree: a bound on it is an assumption that they do not.",
    )
    return Table(f"{item.title}: gradient diversity", head, tuple(rows), notes)


def figures(item: Item, outcome: Outcome, folder: Path) -> list[Path]:
    """Error against T and against K in logarithms, one picture for each problem."""
    problems = dict.fromkeys(fit["problem"] for fit in outcome["theorems"])
    return [_figure(item, problem, outcome, folder) for problem in problems]


def _figure(item: Item, problem: str, outcome: Outcome, folder: Path) -> Path:
    figure = Figure(figsize=(8, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    for fit in outcome["theorems"]:
        if fit["problem"] == problem:
            _draw(left, right, fit)
    for axes, label in ((left, "T"), (right, "K")):
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set_xlabel(label)
    left.set_ylabel("error")
    left.legend(fontsize=6)
    figure.suptitle(f"{problem}: predicted exponent {PREDICTED[problem]:g}", fontsize=9)
    return save(figure, folder / f"{item.name}-{problem.replace(' ', '-')}.svg")


def _draw(left: Any, right: Any, fit: Mapping[str, Any]) -> None:
    errors = np.array(fit["errors"])
    label = f"{fit['misidentified']:.0%} misidentified, {fit['objective']}"
    style = "-" if fit["objective"] == "all" else "--"
    left.plot(fit["steps"], errors[fit["sampled"].index(4)], style, marker=".", label=f"{label}, K = 4")
    right.plot(fit["sampled"], errors[:, -1], style, marker=".")
