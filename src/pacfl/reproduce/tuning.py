"""Every method over the paper's grid in short runs, evaluated on held-out training samples."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

from pacfl import algorithms
from pacfl.experiment.config import Run
from pacfl.federation.algorithm import Algorithm
from pacfl.reproduce.items import Tuning
from pacfl.reproduce.missing_runs import stored_result
from pacfl.reproduce.planning import Planned, with_settings, without_cut


@dataclass(frozen=True)
class Trial:
    """A short run with one choice of settings."""

    method: str
    settings: Mapping[str, float]
    run: Run


def trials(planned: Sequence[Planned], tuning: Tuning) -> list[Trial]:
    """The trials of these runs: the first seed, every choice of the grid, each method once."""
    found: dict[str, Trial] = {}
    for one in planned:
        if one.run.seed == planned[0].run.seed:
            for trial in _grid(one, tuning):
                found[trial.run.hash] = trial
    return list(found.values())


def protocol_of(run: Run) -> str:
    """What a method is tuned for: the model as sent down, unless it has a personalisation of its own."""
    kind = algorithms.find(run.algorithm["name"])
    return "received" if kind.personalise is Algorithm.personalise else "personal"


def chosen(tried: Sequence[Trial], runs: Path) -> list[dict[str, Any]]:
    """For each method, all its trials and the settings with the best accuracy; trials must have ended."""
    by_method: dict[str, list[Trial]] = {}
    for trial in tried:
        by_method.setdefault(trial.method, []).append(trial)
    return [_chosen(method, of_method, runs) for method, of_method in by_method.items()]


def _chosen(method: str, tried: Sequence[Trial], runs: Path) -> dict[str, Any]:
    scores = [_accuracy(trial, runs) for trial in tried]
    best = max(range(len(tried)), key=lambda i: -1.0 if (score := scores[i]) is None else score)
    return {
        "method": method,
        "evaluated_by": protocol_of(tried[0].run),
        "chosen": dict(tried[best].settings),
        "trials": [
            {**trial.settings, "accuracy": score, "hash": trial.run.hash}
            for trial, score in zip(tried, scores, strict=True)
        ],
    }


def _accuracy(trial: Trial, runs: Path) -> float | None:
    """Mean accuracy on held-out samples; None if the trial diverged."""
    result = stored_result(trial.run, runs)
    if result is None:
        raise RuntimeError(f"trial {trial.run.hash} of {trial.method} has not ended")
    return None if "diverged" in result else float(result["accuracy"][protocol_of(trial.run)]["mean"])


def _grid(planned: Planned, tuning: Tuning) -> Iterator[Trial]:
    run = planned.run
    short = replace(
        run,
        data=replace(run.data, validation=tuning.validation, test="owned"),  # held-out samples are the only tests
        schedule=replace(run.schedule, rounds=tuning.rounds, evaluate_every=0, personal_every=0, newcomers=0),
        algorithm=without_cut(run.algorithm),
    )
    grid: dict[str, tuple[float, ...]] = {"lr": tuning.lr}
    if run.algorithm["name"] == "fedprox":
        grid["mu"] = tuning.mu
    for values in product(*grid.values()):
        settings = dict(zip(grid, values, strict=True))
        yield Trial(planned.tuned_as, settings, with_settings(short, settings))
