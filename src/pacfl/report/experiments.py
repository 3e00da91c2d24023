"""Runs side by side: which are comparable, and the results of each algorithm."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from pacfl.experiment.compare import EVALUATION_SETTINGS
from pacfl.experiment.seeds import SeedMean, mark_best, seed_mean
from pacfl.experiment.swept import in_words
from pacfl.learning.metrics import METRICS
from pacfl.report.summary import NEWCOMERS, ON_TEST, RunSummary
from pacfl.report.titles import description, differing_in_rows, row_settings, site_description, titles

PROTOCOL_ORDER: Final = (
    *("received", "personal", "last_trained"),
    *(NEWCOMERS + protocol for protocol in ("received", "personal", "fine_tuned")),
)


@dataclass(frozen=True, eq=False)
class Row:
    """One algorithm with one setting of local training, over its seeds."""

    algorithm: str
    progress: str  # of runs that are not finished, in words
    training: str  # the settings in which it differs from other rows
    runs: tuple[RunSummary, ...]
    scores: Mapping[str, SeedMean]  # of the primary metric, by protocol
    metrics: Mapping[str, SeedMean]  # others, of the model as received
    worst_tenth: Mapping[str, SeedMean]
    below_local: Mapping[str, SeedMean]  # share of clients below the local baseline
    below_received: SeedMean | None  # share of clients that personalisation makes worse
    clusters: SeedMean | None
    ari: SeedMean | None
    megabits: SeedMean
    megabytes: SeedMean


@dataclass(frozen=True, eq=False)
class Experiment:
    """Runs on the same data by the same schedule, so that they are comparable."""

    title: str
    description: str
    protocols: tuple[str, ...]
    rows: tuple[Row, ...]

    @property
    def runs(self) -> list[RunSummary]:
        """All of them, row by row."""
        return [run for row in self.rows for run in row.runs]

    @property
    def metric(self) -> str:
        """The primary metric."""
        return self.rows[0].runs[0].metric

    @property
    def metrics(self) -> list[str]:
        """The others."""
        return list(dict.fromkeys(name for run in self.runs for name in run.metrics))

    @property
    def higher_is_better(self) -> bool:
        """Of the primary metric."""
        return METRICS[self.metric].higher_is_better


def experiments(runs: Sequence[RunSummary]) -> list[Experiment]:
    """Runs grouped by the settings that make them comparable."""
    found = [_experiment(members) for members in _grouped(runs, comparable_settings)]
    simulated = [experiment for experiment in found if experiment.runs[0].federation is None]
    names = titles([experiment.runs[0].settings for experiment in simulated])
    named = (
        replace(experiment, title=name if names.count(name) == 1 else f"{name}, {experiment.metric}")
        for experiment, name in zip(simulated, names, strict=True)
    )
    return [*named, *(_real(experiment) for experiment in found if experiment.runs[0].federation is not None)]


def _real(experiment: Experiment) -> Experiment:
    """An experiment that is a federation of real sites."""
    (run,) = experiment.runs
    words = site_description(run.settings, len(run.clients.names), run.unfinished)
    return replace(experiment, title=f"{run.federation}: training at its sites", description=words)


def comparable_settings(run: RunSummary) -> Any:
    """What runs must have in common to be compared."""
    if run.federation is not None:
        return run.hash
    schedule = {key: value for key, value in run.settings["schedule"].items() if key not in EVALUATION_SETTINGS}
    return run.settings["data"], run.settings["model"], schedule, run.metric


def _experiment(runs: Sequence[RunSummary]) -> Experiment:
    known = {protocol for run in runs for protocol in run.scores}
    protocols = tuple(sorted(known, key=protocol_place))
    members = _grouped(runs, lambda run: (run.algorithm, row_settings(run.settings), run.unfinished is None))
    scores = _scores(members, protocols)
    differ = differing_in_rows([run.settings for run in runs])
    rows = (_row(own, of_row, differ) for own, of_row in zip(members, scores, strict=True))
    words = "" if runs[0].federation is not None else description([run.settings for run in runs])
    return Experiment("", words, protocols, tuple(rows))


def protocol_place(protocol: str) -> tuple[str, int, str]:
    """The primary kind of test samples first, then each other kind, in the order of protocols."""
    kind, _, plain = protocol.rpartition(ON_TEST)
    place = PROTOCOL_ORDER.index(plain) if plain in PROTOCOL_ORDER else len(PROTOCOL_ORDER)
    return kind, place, plain


def _grouped(runs: Sequence[RunSummary], key: Callable[[RunSummary], Any]) -> list[list[RunSummary]]:
    """Runs with equal keys together, by seed."""
    found: dict[str, list[RunSummary]] = {}
    for run in sorted(runs, key=lambda run: run.seed):
        found.setdefault(json.dumps(key(run), sort_keys=True), []).append(run)
    first = {run.hash: i for i, run in enumerate(runs)}
    return sorted(found.values(), key=lambda members: min(first[run.hash] for run in members))


def _scores(members: Sequence[Sequence[RunSummary]], protocols: Sequence[str]) -> list[dict[str, SeedMean]]:
    """For every row its scores by protocol, the best of each protocol marked."""
    sign = _sign(members[0][0])
    rows: list[dict[str, SeedMean]] = [{} for _ in members]
    for protocol in protocols:
        evaluated = [i for i, runs in enumerate(members) if all(protocol in run.scores for run in runs)]
        means = {i: [float(np.nanmean(run.scores[protocol])) for run in members[i]] for i in evaluated}
        by_seed = [{run.seed: sign * mean for run, mean in zip(members[i], means[i], strict=True)} for i in evaluated]
        over = [seed_mean({run.hash: m for run, m in zip(members[i], means[i], strict=True)}) for i in evaluated]
        for i, mean in zip(evaluated, over, strict=True):
            rows[i][protocol] = mean
        ended = [j for j, i in enumerate(evaluated) if members[i][0].unfinished is None]
        marks = mark_best([over[j] for j in ended], [by_seed[j] for j in ended])
        for j, marked in zip(ended, marks, strict=True):
            rows[evaluated[j]][protocol] = marked
    return rows


def _row(runs: Sequence[RunSummary], scores: Mapping[str, SeedMean], differ: Sequence[str]) -> Row:
    def over(value: Callable[[RunSummary], float | None]) -> SeedMean | None:
        values = {run.hash: value(run) for run in runs}
        known = {run: number for run, number in values.items() if number is not None}
        return seed_mean(known) if len(known) == len(values) else None

    def by_protocol(values: Callable[[RunSummary], Mapping[str, float]]) -> dict[str, SeedMean]:
        shared = [p for p in scores if all(p in values(run) for run in runs)]
        return {p: seed_mean({run.hash: values(run)[p] for run in runs}) for p in shared}

    def received(metric: str) -> SeedMean | None:
        return over(lambda run: run.metrics.get(metric, {}).get("received"))

    own = row_settings(runs[0].settings)
    return Row(
        algorithm=runs[0].algorithm,
        progress=_progress(runs),
        training=", ".join(f"{key} {in_words(own[key])}" for key in differ if key in own),
        runs=tuple(runs),
        scores=scores,
        metrics={name: mean for name in runs[0].metrics if (mean := received(name)) is not None},
        worst_tenth=by_protocol(lambda run: run.worst_tenth),
        below_local=by_protocol(lambda run: run.below_local),
        below_received=over(_below_received),
        clusters=over(lambda run: run.clusters),
        ari=over(lambda run: run.ari),
        megabits=seed_mean({run.hash: run.megabits for run in runs}),
        megabytes=seed_mean({run.hash: (run.bytes_down + run.bytes_up) / 1e6 for run in runs}),
    )


def _progress(runs: Sequence[RunSummary]) -> str:
    """How far runs are that are not finished: "round 3 of 10"."""
    rounds = [run.unfinished for run in runs if run.unfinished is not None]
    least, most = (f(done for done, _ in rounds) for f in (min, max)) if rounds else (0, 0)
    return f"round {least}{f' to {most}' if most > least else ''} of {rounds[0][1]}" if rounds else ""


def _below_received(run: RunSummary) -> float | None:
    """The share of clients that score worse after personalisation than as received."""
    if not {"received", "personal"} <= run.scores.keys():
        return None
    received, personal = (_sign(run) * run.scores[protocol] for protocol in ("received", "personal"))
    both = ~np.isnan(received) & ~np.isnan(personal)
    return float((personal[both] < received[both]).mean()) if both.any() else None


def _sign(run: RunSummary) -> int:
    """What makes higher scores the better ones."""
    return 1 if METRICS[run.metric].higher_is_better else -1
