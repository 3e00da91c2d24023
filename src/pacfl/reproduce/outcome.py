"""The outcome of an item, small enough to commit: summaries of its runs, and how they were tuned. No models."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pacfl.experiment.store import RunFolder
from pacfl.experiment.summary import ACCURACY, megabits_per_client, metric_of
from pacfl.files import write_atomically
from pacfl.reproduce.items import Item, Scale
from pacfl.reproduce.missing_runs import stored_result
from pacfl.reproduce.planning import Planned

Outcome = dict[str, Any]  # plain values, ready for JSON
DIGITS = 5


def outcome(
    item: Item,
    scale: Scale,
    missing: Mapping[str, str],
    planned: Sequence[Planned],
    tuning: Sequence[Mapping[str, Any]],
    runs: Path,
) -> Outcome:
    """All that is known of an item's runs."""
    found = [_run(one, runs) for one in planned]
    return {
        "item": item.name,
        "scale": scale,
        "missing": dict(missing),
        "tuning": [dict(one) for one in tuning],
        "runs": [one for one in found if one is not None],
    }


def save(outcome: Outcome, folder: Path) -> Path:
    """Write an outcome where it can be committed."""
    path = place(folder, outcome["item"], outcome["scale"])
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(path, (_lines(outcome) + "\n").encode())
    return path


def load(folder: Path, name: str, scale: Scale) -> Outcome | None:
    """An outcome that was saved, or None."""
    path = place(folder, name, scale)
    if not path.exists():
        return None
    stored: Outcome = json.loads(path.read_text(encoding="utf-8"))
    return stored


def place(folder: Path, name: str, scale: str) -> Path:
    """The file of an outcome."""
    return folder / (f"{name}.json" if scale == "paper" else f"{name}.{scale}.json")


def merged(old: Outcome | None, new: Outcome) -> Outcome:
    """The new outcome with the other runs and columns of the old one: an item may be run in parts."""
    if old is None:
        return new
    runs = {_key(one): one for one in (*old.get("runs", ()), *new.get("runs", ()))}
    tuning = {(t["column"], t["method"]): t for t in (*old.get("tuning", ()), *new.get("tuning", ()))}
    missing = {**old.get("missing", {}), **new["missing"]}
    have = {one["column"] for one in runs.values()}
    return {
        **{key: _joined_parts(old.get(key), value) for key, value in new.items()},
        "missing": {column: why for column, why in missing.items() if column not in have},
        "tuning": list(tuning.values()),
        "runs": list(runs.values()),
    }


def _joined_parts(old: Any, new: Any) -> Any:
    """The new value, and the columns of the old one that the new one does not have."""
    if isinstance(old, dict) and isinstance(new, dict):
        return {**old, **new}
    if isinstance(old, list) and isinstance(new, list) and all("column" in one for one in (*old, *new)):
        fresh = {one["column"] for one in new}
        return [*(one for one in old if one["column"] not in fresh), *new]
    return new


def joined(name: str, scale: Scale, outcomes: Sequence[tuple[str, Outcome]]) -> Outcome:
    """Outcomes of several items as one, each column named by its item too."""
    return {
        "item": name,
        "scale": scale,
        "missing": {f"{source} {column}": why for source, one in outcomes for column, why in one["missing"].items()},
        "tuning": [],
        "runs": [{**run, "column": f"{source} {run['column']}"} for source, one in outcomes for run in one["runs"]],
    }


def _key(run: Mapping[str, Any]) -> tuple[Any, ...]:
    return run["column"], run["method"], run["seed"]


def _run(planned: Planned, runs: Path) -> dict[str, Any] | None:
    result = stored_result(planned.run, runs)
    if result is None:
        return None
    run = planned.run
    facts = {"column": planned.column, "method": planned.method, "seed": run.seed, "hash": run.hash}
    settings = {"algorithm": dict(run.algorithm), "learning": asdict(run.learning)}
    folder = RunFolder(runs / run.hash)
    curves = {"curve": curve(folder.records())}
    if "diverged" in result:
        return {**facts, **settings, "diverged": result["diverged"], "round": result["round"], **curves}
    metric = metric_of(result)
    fields = ("clusters", "ari", metric, "bytes_down", "bytes_up", "seconds")
    return {
        **facts,
        **settings,
        **({} if metric == ACCURACY else {"metric": metric}),
        **{key: _rounded(result[key]) for key in fields},
        **({"tests": _tests(result["tests"])} if "tests" in result else {}),
        **({"newcomers": _rounded(result["newcomers"]["accuracy"])} if "newcomers" in result else {}),
        **curves,
        **_threshold(folder),
        **_samples(folder),
    }


def _tests(tests: Mapping[str, Any]) -> dict[str, Any]:
    """By kind of test samples beside the primary one: the accuracy."""
    return {kind: {"accuracy": _rounded(own["accuracy"])} for kind, own in tests.items()}


def curve(records: Sequence[Mapping[str, Any]]) -> dict[str, list[float | None]]:
    """Rounds, megabits per client and mean accuracy by protocol, wherever all clients were evaluated."""
    evaluated = [i for i, record in enumerate(records) if record["sampled"] and "accuracy" in record]
    protocols = sorted({p for i in evaluated for p in records[i]["accuracy"]})
    series: dict[str, list[float | None]] = {
        "rounds": [i + 1 for i in evaluated],
        "megabits": [round(megabits_per_client(records[: i + 1]), 4) for i in evaluated],
    }
    for p in protocols:
        means = [records[i]["accuracy"].get(p, {}).get("mean") for i in evaluated]
        series[p] = [None if mean is None else round(mean, DIGITS) for mean in means]
    return series


def _threshold(folder: RunFolder) -> dict[str, Any]:
    """The cut in degrees and its finding, of runs that have one."""
    path = folder.path / "clustering.json"
    if not path.exists():
        return {}
    clustering = json.loads(path.read_text(encoding="utf-8"))
    cut = {key: clustering[key] for key in ("measure", "linkage", "threshold")}
    return {"clustering": {**cut, "finding": clustering["evidence"]["finding"]}}


def _samples(folder: RunFolder) -> dict[str, Any]:
    """Clients, and their training and test samples on average: they show an extract of a data set."""
    path = folder.path / "clients.json"
    if not path.exists():
        return {}
    clients = json.loads(path.read_text(encoding="utf-8"))["clients"]
    means = {part: round(sum(one[part] for one in clients) / len(clients), 1) for part in ("train", "test")}
    return {"clients": len(clients), **means}


def _rounded(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _rounded(part) for key, part in value.items()}
    return round(value, DIGITS) if isinstance(value, float) else value


def _lines(outcome: Outcome) -> str:
    """JSON with one line for each run, so that a change of one is a change of one line."""
    parts = []
    for key, value in outcome.items():
        if isinstance(value, list) and value:
            body = "[\n" + ",\n".join(f"  {json.dumps(one, allow_nan=False)}" for one in value) + "\n ]"
        else:
            body = json.dumps(value, allow_nan=False)
        parts.append(f" {json.dumps(key)}: {body}")
    return "{\n" + ",\n".join(parts) + "\n}"
