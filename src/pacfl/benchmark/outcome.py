"""The outcome of a grid, small enough to commit: a summary of each run, and how methods were tuned. No models."""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from pacfl.benchmark.grid import Planned, Scale
from pacfl.errors import StoreError
from pacfl.experiment.compare import below_local
from pacfl.experiment.store import RunFolder
from pacfl.experiment.tested_on import on_test
from pacfl.files import write_atomically
from pacfl.reproduce.missing_runs import stored_result
from pacfl.reproduce.outcome import curve
from pacfl.reproduce.targets import reached

Outcome = dict[str, Any]  # plain values, ready for JSON
Summary = dict[str, Any]

PROTOCOLS: Final = ("received", "personal")
TARGET_OF: Final = "fedavg"  # the method whose final accuracy is the target that others reach in so many rounds
LOCAL: Final = "solo"
DIGITS: Final = 5


def summaries(
    planned: Sequence[Planned], runs: Path, refused: Mapping[str, str], known: Collection[str] = ()
) -> list[Summary]:
    """Those of the runs of one column and seed that have ended, but for those whose hashes are known."""
    by_name = {one.method.name: RunFolder(runs / one.run.hash) for one in planned}
    local, target = by_name.get(LOCAL), by_name.get(TARGET_OF)
    found = []
    for one in planned:
        result = stored_result(one.run, runs)
        if one.run.hash in known or (result is None and one.run.hash not in refused):
            continue
        if result is None:
            about = {"refused": refused[one.run.hash]}
        elif "diverged" in result:
            about = {"diverged": result["diverged"], "round": result["round"]}
        else:
            about = _scores(RunFolder(runs / one.run.hash), result, local, target)
        found.append({**_place(one), **about})
    return found


def _place(one: Planned) -> Summary:
    """Which cell a run is of, and its settings."""
    return {
        "data_set": one.column.data_set,
        "column": one.column.name,
        "clients": one.column.clients,
        "method": one.method.name,
        "given": one.method.given,
        "seed": one.run.seed,
        "hash": one.run.hash,
        "algorithm": dict(one.run.algorithm),
        "lr": one.run.learning.lr,
    }


def _scores(folder: RunFolder, result: Mapping[str, Any], local: RunFolder | None, target: RunFolder | None) -> Summary:
    """What is reported of a finished run, beside local training and beside the target in the same column and seed."""
    records = folder.records()
    alone = local.records()[-1] if local is not None and local.path.is_dir() and local.result() is not None else None
    kinds = {str(result.get("test", "owned")): None, **{kind: kind for kind in result.get("tests", {})}}
    described = folder.description("clients") or {"clients": []}
    groups = {client["true_cluster"] for client in described["clients"]} - {None}
    return {
        "scores": {kind: _accuracies(result, chosen) for kind, chosen in kinds.items()},
        "below_local": {kind: _below(records[-1], alone, chosen) for kind, chosen in kinds.items()},
        "clusters": result["clusters"],
        "true_clusters": len(groups) or None,
        "ari": _rounded(result["ari"]),
        "megabytes": _rounded((result["bytes_down"] + result["bytes_up"]) / 1e6),
        "rounds_to_target": _rounds_to_target(records, target),
        "seconds": result["seconds"],
    }


def _accuracies(result: Mapping[str, Any], kind: str | None) -> dict[str, Any]:
    accuracy = on_test(result, kind)["accuracy"]
    return {p: {name: _rounded(value) for name, value in accuracy[p].items()} for p in PROTOCOLS}


def _below(record: Mapping[str, Any], alone: Mapping[str, Any] | None, kind: str | None) -> dict[str, Any]:
    shares = below_local(record, alone, kind)
    return {p: _rounded(shares[p]) for p in PROTOCOLS}


def _rounds_to_target(records: Sequence[Mapping[str, Any]], target: RunFolder | None) -> float | None:
    """The first evaluated round in which the models as received are as good as FedAvg's at the end; None if none is."""
    end = curve(target.records()) if target is not None and target.path.is_dir() else {}
    if target is None or target.result() is None or not end.get("received"):
        return None
    return reached(curve(records), "received", float(end["received"][-1] or 0.0), "rounds")


def _rounded(value: Any) -> Any:
    return round(value, DIGITS) if isinstance(value, float) else value


def merged(old: Outcome, runs: Sequence[Summary], tuning: Sequence[Summary] = ()) -> Outcome:
    """The outcome with more runs; of one cell, method and seed the last one counts."""
    return {
        **old,
        "runs": list({_key(one): one for one in (*old["runs"], *runs)}.values()),
        "tuning": list({_key(one): one for one in (*old["tuning"], *tuning)}.values()),
    }


def _key(one: Mapping[str, Any]) -> tuple[Any, ...]:
    return one["data_set"], one["column"], one["method"], one.get("seed")


def save(outcome: Outcome, folder: Path) -> Path:
    """Write an outcome where it can be committed: a line for each run, so that a change of one is a change of one."""
    path = place(folder, outcome["scale"])
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(path, ("\n".join(_lines(outcome)) + "\n").encode())
    return path


def _lines(outcome: Outcome) -> Iterator[str]:
    yield f'{{"scale": {json.dumps(outcome["scale"])},'
    for name, end in (("tuning", ","), ("runs", "")):
        lines = [json.dumps(one, allow_nan=False) for one in outcome[name]]
        yield f'"{name}": [\n' + ",\n".join(lines) + f"\n]{end}"
    yield "}"


def load(folder: Path, scale: Scale) -> Outcome | None:
    """An outcome that was saved, or None."""
    path = place(folder, scale)
    if not path.exists():
        return None
    try:
        stored: Outcome = json.loads(path.read_text(encoding="utf-8"))
        if stored["scale"] == scale and all(map(_key, (*stored["runs"], *stored["tuning"]))):
            return stored
    except (ValueError, LookupError, TypeError, RecursionError):
        pass
    raise StoreError(f"{path}: is no outcome of the benchmark; export it again")


def place(folder: Path, scale: str) -> Path:
    """The file of an outcome."""
    return folder / f"benchmark.{scale}.json"


def shown(outcome: Outcome, methods: Collection[str], columns: Collection[tuple[str, str]]) -> Outcome:
    """The outcome with these methods and columns (data set, name) only; none of them: all."""
    runs = [
        run
        for run in outcome["runs"]
        if (not methods or run["method"] in methods) and (not columns or (run["data_set"], run["column"]) in columns)
    ]
    return {**outcome, "runs": runs}
