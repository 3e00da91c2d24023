"""Runs side by side: which belong together, and what came of each algorithm."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Protocol

import numpy as np

from pacfl.experiment.compare import EVALUATION_SETTINGS
from pacfl.report.facts import NEWCOMERS, Played
from pacfl.report.noise import Figure, marked, over_seeds
from pacfl.report.words import differing, title, words

JUDGED: Final = ("received", "personal", "last_trained")
ORDER: Final = (*JUDGED, *(NEWCOMERS + protocol for protocol in ("received", "personal", "fine_tuned")))


@dataclass(frozen=True, eq=False)
class Row:
    """One algorithm with one setting of its learning, over its seeds."""

    algorithm: str
    learning: str  # what differs from other rows
    runs: tuple[Played, ...]
    accuracy: Mapping[str, Figure]  # by protocol
    worst_tenth: Mapping[str, Figure]
    hurt: Mapping[str, Figure]  # share of clients with less than what they have alone
    hurt_by_personalising: Figure | None  # share of clients with less after than before
    clusters: Figure
    ari: Figure | None
    megabits: Figure
    megabytes: Figure


@dataclass(frozen=True, eq=False)
class Experiment:
    """Runs that differ in algorithm, its learning, and seed only, so that they may be compared."""

    title: str
    words: str
    protocols: tuple[str, ...]
    rows: tuple[Row, ...]

    @property
    def runs(self) -> list[Played]:
        """All of them, row by row."""
        return [run for row in self.rows for run in row.runs]


def experiments(runs: Sequence[Played]) -> list[Experiment]:
    """Runs put together by what they have in common."""
    return [_experiment(members) for members in _together(runs, setting)]


def setting(run: Played) -> Any:
    """What runs must have in common to be compared."""
    plan = {key: value for key, value in run.settings["schedule"].items() if key not in EVALUATION_SETTINGS}
    return run.settings["data"], run.settings["model"], plan


def alone(run: Played, runs: Sequence[Played]) -> Played | None:
    """The run in which the same clients learn alone; of several, the one that learns with the same settings."""
    found = [other for other in runs if other.settings["algorithm"]["name"] == "solo" and other.seed == run.seed]
    if len(found) > 1:
        found = [other for other in found if other.settings["learning"] == run.settings["learning"]]
    return found[0] if len(found) == 1 and found[0] is not run else None


def _experiment(runs: Sequence[Played]) -> Experiment:
    known = {protocol for run in runs for protocol in run.accuracy}
    protocols = (*(p for p in ORDER if p in known), *sorted(known - set(ORDER)))
    members = _together(runs, lambda run: (run.algorithm, run.settings["learning"]))
    accuracies = _accuracies(members, protocols)
    differ = differing([run.settings["learning"] for run in runs])
    rows = (_row(own, runs, accuracy, differ) for own, accuracy in zip(members, accuracies, strict=True))
    return Experiment(title(runs[0].settings), words([run.settings for run in runs]), protocols, tuple(rows))


def _together(runs: Sequence[Played], key: Callable[[Played], Any]) -> list[list[Played]]:
    """Runs with equal keys together, by seed."""
    found: dict[str, list[Played]] = {}
    for run in sorted(runs, key=lambda run: run.seed):
        found.setdefault(json.dumps(key(run), sort_keys=True), []).append(run)
    first = {run.hash: i for i, run in enumerate(runs)}
    return sorted(found.values(), key=lambda members: min(first[run.hash] for run in members))


def _accuracies(members: Sequence[Sequence[Played]], protocols: Sequence[str]) -> list[dict[str, Figure]]:
    """For every row its accuracies by protocol, the best of each protocol marked."""
    rows: list[dict[str, Figure]] = [{} for _ in members]
    for protocol in protocols:
        judged = [i for i, runs in enumerate(members) if all(protocol in run.accuracy for run in runs)]
        means = {i: {run.hash: float(np.nanmean(run.accuracy[protocol])) for run in members[i]} for i in judged}
        by_seed = [{run.seed: means[i][run.hash] for run in members[i]} for i in judged]
        for i, figure in zip(judged, marked([over_seeds(means[i]) for i in judged], by_seed), strict=True):
            rows[i][protocol] = figure
    return rows


def _row(
    runs: Sequence[Played], everybody: Sequence[Played], accuracy: Mapping[str, Figure], differ: Sequence[str]
) -> Row:
    def over(value: Callable[[Played], float | None]) -> Figure | None:
        values = {run.hash: value(run) for run in runs}
        known = {run: number for run, number in values.items() if number is not None}
        return over_seeds(known) if len(known) == len(values) else None

    def by_protocol(value: "ByProtocol") -> dict[str, Figure]:
        found = {p: over(partial(value, protocol=p)) for p in accuracy}
        return {p: figure for p, figure in found.items() if figure is not None}

    references = {run.hash: alone(run, everybody) for run in runs}
    return Row(
        algorithm=runs[0].algorithm,
        learning=", ".join(f"{key} {runs[0].settings['learning'][key]}" for key in differ),
        runs=tuple(runs),
        accuracy=accuracy,
        worst_tenth=by_protocol(lambda run, protocol: run.worst_tenth[protocol]),
        hurt=by_protocol(lambda run, protocol: _share_below(run, protocol, references[run.hash], protocol)),
        hurt_by_personalising=over(lambda run: _share_below(run, "personal", run, "received")),
        clusters=over_seeds({run.hash: run.clusters for run in runs}),
        ari=over(lambda run: run.ari),
        megabits=over_seeds({run.hash: run.megabits for run in runs}),
        megabytes=over_seeds({run.hash: (run.bytes_down + run.bytes_up) / 1e6 for run in runs}),
    )


class ByProtocol(Protocol):
    """A number of a run that depends on how clients are judged."""

    def __call__(self, run: Played, protocol: str) -> float | None:
        """The number, where it is known."""


def _share_below(run: Played, protocol: str, other: Played | None, others_protocol: str) -> float | None:
    """Of the clients that both judged, the share that has less here than there."""
    if other is None or protocol not in run.accuracy or others_protocol not in other.accuracy:
        return None
    here, there = run.accuracy[protocol], other.accuracy[others_protocol]
    both = ~np.isnan(here) & ~np.isnan(there)
    return float((here[both] < there[both]).mean()) if both.any() else None
