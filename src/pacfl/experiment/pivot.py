"""Finished runs as a table of two settings against each other: means over seeds, never over different settings."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pacfl.errors import ConfigError, StoreError
from pacfl.experiment.compare import EVALUATION_SETTINGS
from pacfl.experiment.result_table import Cells, Key, Line, Protocol, ResultTable, notes_of
from pacfl.experiment.seeds import SeedMean, mark_best, seed_mean
from pacfl.experiment.store import RunFolder, all_folders
from pacfl.experiment.stored_runs import StoredRuns
from pacfl.experiment.summary import label, metric_of
from pacfl.experiment.swept import Settings, differing, flatten, in_words, without_single_versions
from pacfl.experiment.tested_on import choose, kinds, on_test
from pacfl.learning.metrics import METRICS
from pacfl.settings import check_value, suggestion

Folder = str | Path | RunFolder | StoredRuns
Runs = Folder | Iterable[Folder]

# Of a result, beside its metrics: whether more of it is better, if that can be said
NUMBERS: Final[Mapping[str, bool | None]] = {"ari": True, "clusters": None, "megabits_per_client": False}
NOT_SETTINGS: Final = ("format", "seed")
# Settings that change only what is known of a run
WITHOUT_EFFECT: Final = ("metrics", *(f"schedule.{name}" for name in EVALUATION_SETTINGS))


@dataclass(frozen=True, eq=False)
class _Run:
    name: str
    content: Settings
    flat: Settings
    value: float
    several: bool  # whether it was evaluated on several kinds of test samples

    def key(self, paths: Sequence[str]) -> Key:
        return tuple(_value(self, path) for path in paths)

    @property
    def seed(self) -> int:
        return int(self.content["seed"])


def table(
    runs: Runs,
    rows: str | Sequence[str] = "algorithm",
    columns: str | Sequence[str] = (),
    metric: str | None = None,
    protocol: Protocol | None = None,
    test: str | None = None,
) -> ResultTable:
    """Finished runs as a table: mean and standard deviation over seeds of one metric under one protocol.

    runs: a folder of runs, `pacfl.runs(...)`, or several run folders. rows, columns: settings by path, such as
    "data.scheme.alpha"; "algorithm" is an algorithm with its settings. metric: by default the primary one; or another
    metric, "loss", "ari", "clusters", "megabits_per_client". protocol: by default "received". test: a kind of test
    samples, such as "proportional"; by default the primary one of each run.

    Other settings in which runs of one cell differ become rows of their own, so that no mean is over different
    settings. In each column the best result on the same data is marked, or those that are tied (`pacfl report` has
    the rule). Where all rows are settings of the data, and no column is, results are compared in each row.

    >>> table("runs", rows="algorithm", columns="data.scheme.alpha").latex()  # doctest: +SKIP
    """
    check_value("protocol", protocol, Protocol | None)
    row_paths, column_paths = _paths(rows), _paths(columns)
    folders = _folders(runs)
    finished = [(folder, result) for folder in folders if (result := folder.result()) is not None]
    if not finished:
        raise StoreError(f"none of the {len(folders)} runs is finished; 'pacfl run' resumes them")
    on_kind = [(folder, _on_test(folder, result, test)) for folder, result in finished]
    if not any(result for _, result in on_kind):
        there = dict.fromkeys(kind for folder in folders for kind in kinds(folder.content() or {}))
        raise ConfigError(f"no run was evaluated on test samples of the kind {test!r}{suggestion(str(test), there)}")
    metric, protocol = _what([result for _, result in on_kind if result], metric, protocol)
    if protocol is None and test is not None:
        raise ConfigError(f"{metric} is the same on all test samples; leave the kind {test!r} out")
    found = [_read(folder, _number(result, metric, protocol), test) for folder, result in on_kind]
    scored = [run for run in found if run is not None]
    for path in (*row_paths, *column_paths):
        _check_path(path, scored)
    extra = _extra_rows(scored, row_paths, column_paths)
    all_rows = (*row_paths, *extra)
    cells = _cells(scored, all_rows, column_paths)
    along: Line = "row" if column_paths and _of_data(all_rows, all) and not _of_data(column_paths, any) else "column"
    better = _higher_is_better(metric)
    named = None if protocol is None else _named_kind(scored, test)
    marked = _marked(cells, along, better) if better is not None else {key: _mean(of) for key, of in cells.items()}
    return ResultTable(
        rows=all_rows,
        columns=column_paths,
        row_keys=_ordered({row for row, _ in cells}, scored, all_rows),
        column_keys=_ordered({column for _, column in cells}, scored, column_paths),
        cells=marked,
        metric=metric,
        protocol=protocol,
        notes=notes_of(
            marked, metric, protocol, along, extra, len(folders) - len(finished), len(found) - len(scored), named
        ),
        test=named,
    )


def _folders(runs: Runs) -> list[RunFolder]:
    listed = [runs] if isinstance(runs, str | Path | RunFolder | StoredRuns) else list(runs)
    found: dict[str, RunFolder] = {}
    for entry in listed:
        path = Path(entry) if isinstance(entry, str | Path) else entry.path
        for folder in [RunFolder(path)] if (path / "run.json").exists() else all_folders(path):
            found.setdefault(folder.path.name, folder)
    if not found:
        raise StoreError(f"{', '.join(map(str, listed)) or 'the list'}: has no runs in it; give a folder of runs")
    return list(found.values())


def _paths(given: str | Sequence[str]) -> tuple[str, ...]:
    return tuple(path.replace("-", "_") for path in ([given] if isinstance(given, str) else given))


def _what(
    results: Sequence[Mapping[str, Any]], metric: str | None, protocol: Protocol | None
) -> tuple[str, Protocol | None]:
    """The metric and the protocol that are shown."""
    if metric is None:
        primary = sorted({metric_of(result) for result in results})
        if len(primary) > 1:
            raise ConfigError(f"the runs are scored by {' and '.join(primary)}; choose one metric")
        metric = primary[0]
    known = dict.fromkeys([*(name for result in results for name in _metrics(result)), *NUMBERS])
    metric = next((name for name in known if name.replace("-", "_") == metric.replace("-", "_")), metric)
    if metric in NUMBERS:
        if protocol is not None:
            raise ConfigError(f"{metric} is the same under every protocol; leave the protocol out")
        return metric, None
    chosen = protocol or "received"
    if metric not in known:
        raise ConfigError(f"no run has the metric {metric!r}{suggestion(metric, known)}")
    if all(_number(result, metric, chosen) is None for result in results):
        raise ConfigError(f"no run has {metric} under the protocol {chosen}; choose another one")
    return metric, chosen


def _metrics(result: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    own = {name: result[name] for name in (metric_of(result), "loss") if name in result}
    return {**own, **result.get("metrics", {})}


def _number(result: Mapping[str, Any], metric: str, protocol: Protocol | None) -> float | None:
    """The value of a run: the mean over clients of a metric, or a number of the result."""
    if protocol is None:
        return result.get(metric)
    return (_metrics(result).get(metric, {}).get(protocol) or {}).get("mean")


def _on_test(folder: RunFolder, result: Mapping[str, Any], test: str | None) -> Mapping[str, Any]:
    """The result on a kind of test samples; empty if the run was not evaluated on it."""
    content = folder.content() or {}
    return on_test(result, choose(content, test)) if test is None or test in kinds(content) else {}


def _read(folder: RunFolder, value: float | None, test: str | None) -> _Run | None:
    """A run as if it had been evaluated on the kind of test samples that is shown only."""
    if value is None:
        return None
    content = folder.content() or {}
    several = len(kinds(content)) > 1
    if several:
        data = {key: own for key, own in content["data"].items() if key != "test"}
        shown = test or kinds(content)[0]
        content = {**content, "data": data if shown == "owned" else {**data, "test": shown}}
    return _Run(folder.path.name, content, flatten(content), float(value), several)


def _named_kind(runs: Sequence[_Run], test: str | None) -> str | None:
    """The kind of test samples, where it is to be named: it was chosen, or runs were evaluated on several."""
    shown = {kinds(run.content)[0] for run in runs}
    return test or (shown.pop() if len(shown) == 1 and any(run.several for run in runs) else None)


def _value(run: _Run, path: str) -> Any:
    """A setting of a run; a section in the form of a label; None where the run does not have it."""
    if path == "algorithm":
        return label(run.content["algorithm"], run.content.get("aggregation", {}))
    if path in run.flat:
        value = run.flat[path]
        return in_words(value) if isinstance(value, list | tuple | Mapping) else value
    section: Any = run.content
    for word in path.split("."):
        section = section.get(word) if isinstance(section, Mapping) else None
    if section is None:
        return None
    named = section.get("name", section.get("kind"))
    return label({"name": named, **{key: value for key, value in section.items() if key not in ("name", "kind")}})


def _check_path(path: str, runs: Sequence[_Run]) -> None:
    if all(_value(run, path) is None for run in runs):
        known = dict.fromkeys(["algorithm", *(leaf for run in runs for leaf in run.flat if leaf != "format")])
        raise ConfigError(f"no run has the setting {path!r}{suggestion(path, known)}")


def _covers(path: str, leaf: str) -> bool:
    sections = ("algorithm", "aggregation", "plugins") if path == "algorithm" else (path,)
    return any(leaf == section or leaf.startswith(f"{section}.") for section in sections)


def _extra_rows(runs: Sequence[_Run], rows: Sequence[str], columns: Sequence[str]) -> tuple[str, ...]:
    """Settings in which runs of one cell differ."""
    found: dict[str, None] = {}
    for members in _grouped(runs, rows, columns).values():
        leaves = without_single_versions(differing([run.flat for run in members]), [run.flat for run in members])
        found |= dict.fromkeys(leaf for leaf in leaves if leaf not in (*NOT_SETTINGS, *WITHOUT_EFFECT))
    extra = [leaf for leaf in found if not any(_covers(path, leaf) for path in (*rows, *columns))]
    if not any(path.startswith("algorithm.") for path in (*rows, *columns)):
        extra = ["algorithm" if leaf.startswith(("algorithm.", "aggregation.")) else leaf for leaf in extra]
    return tuple(dict.fromkeys(extra))


def _grouped(runs: Sequence[_Run], rows: Sequence[str], columns: Sequence[str]) -> dict[tuple[Key, Key], list[_Run]]:
    found: dict[tuple[Key, Key], list[_Run]] = {}
    for run in runs:
        found.setdefault((run.key(rows), run.key(columns)), []).append(run)
    return found


def _cells(runs: Sequence[_Run], rows: Sequence[str], columns: Sequence[str]) -> dict[tuple[Key, Key], dict[int, _Run]]:
    """The runs of each cell by seed. Those of one seed differ in nothing that has an effect: the newest counts."""
    grouped = _grouped(runs, rows, columns)
    return {key: {run.seed: run for run in sorted(of, key=lambda run: run.seed)} for key, of in grouped.items()}


def _mean(by_seed: Mapping[int, _Run]) -> SeedMean:
    return seed_mean({run.name: run.value for run in by_seed.values()})


def _marked(cells: Mapping[tuple[Key, Key], Mapping[int, _Run]], along: Line, higher_is_better: bool) -> Cells:
    """The means of the cells, the best on the same data in each row, or column, marked."""
    lines: dict[tuple[Key, str], list[tuple[Key, Key]]] = {}
    for key, of in cells.items():
        data = json.dumps(next(iter(of.values())).content["data"], sort_keys=True)
        lines.setdefault((key[0] if along == "row" else key[1], data), []).append(key)
    sign = 1 if higher_is_better else -1
    marked: dict[tuple[Key, Key], SeedMean] = {}
    for keys in lines.values():
        by_seed = [{seed: sign * run.value for seed, run in cells[key].items()} for key in keys]
        marked.update(zip(keys, mark_best([_mean(cells[key]) for key in keys], by_seed), strict=True))
    return {key: marked[key] for key in cells}


def _higher_is_better(metric: str) -> bool | None:
    """None where it cannot be said, as of the number of clusters, or is not known here, as of plug-ins."""
    if metric in METRICS:
        return METRICS[metric].higher_is_better
    return {**NUMBERS, "loss": False}.get(metric)


def _of_data(paths: Sequence[str], which: Callable[[Iterable[bool]], bool]) -> bool:
    return which(path.partition(".")[0] == "data" for path in paths)


def _ordered(keys: set[Key], runs: Sequence[_Run], paths: Sequence[str]) -> tuple[Key, ...]:
    """Keys by their settings: numbers ascending, words in the order of the runs."""
    ranks = []
    for path in paths:
        values = list(dict.fromkeys(_value(run, path) for run in runs))
        words = [value for value in values if isinstance(value, str)]
        numbers = sorted(value for value in values if value is not None and not isinstance(value, str))
        ranks.append([*(value for value in values if value is None), *numbers, *words])
    return tuple(sorted(keys, key=lambda key: [rank.index(value) for rank, value in zip(ranks, key, strict=True)]))
