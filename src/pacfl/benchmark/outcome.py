"""The outcome of a grid, small enough to commit: a summary of each run, and how methods were tuned. No models."""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pacfl.benchmark.grid import Planned, Scale
from pacfl.errors import StoreError
from pacfl.experiment.compare import below_local
from pacfl.experiment.store import RunFolder
from pacfl.experiment.tested_on import on_test
from pacfl.files import locked, write_atomically
from pacfl.reproduce.missing_runs import stored_result
from pacfl.reproduce.outcome import curve
from pacfl.reproduce.targets import reached

Outcome = dict[str, Any]  # plain values, ready for JSON
Summary = dict[str, Any]

PROTOCOLS: Final = ("received", "personal")
TARGET_OF: Final = "fedavg"  # the method whose final accuracy is the target that others reach in so many rounds
LOCAL: Final = "solo"
DIGITS: Final = 5


def empty(scale: Scale) -> Outcome:
    """Nothing yet."""
    return {"scale": scale, "tuning": [], "runs": []}


def summary(one: Planned, runs: Path, outcome: Outcome, refused: str | None = None) -> Summary | None:
    """What is reported of a run that has ended or is refused, beside others; None if it has not ended."""
    result = stored_result(one.run, runs)
    if refused is not None:
        return {**_place(one), "refused": refused}
    if result is None:
        return None
    if "diverged" in result:
        return {**_place(one), "diverged": result["diverged"], "round": result["round"]}
    folder = RunFolder(runs / one.run.hash)
    own, evidence = {**_place(one), **_scores(folder, result)}, _evidence(folder)
    if one.method.name in (LOCAL, TARGET_OF):
        own["evidence"] = evidence  # others are compared with it, and it with them
    return {**own, **_compared(evidence, Beside.of(own, [*outcome["runs"], own]))}


def settled(run: Summary, one: Planned, runs: Path, outcome: Outcome) -> Summary:
    """A summary with all that can be known of its run: what it is compared with may have ended later."""
    beside = Beside.of(run, outcome["runs"])
    if "scores" not in run or run["beside"] == beside.hashes:
        return run
    if "evidence" in run:
        return {**run, **_compared(run["evidence"], beside)}
    return summary(one, runs, outcome) or run


@dataclass(frozen=True)
class Beside:
    """The summaries with which the others of their cell and seed are compared."""

    local: Summary | None
    target: Summary | None

    @classmethod
    def of(cls, run: Summary, runs: Sequence[Summary]) -> "Beside":
        """Those of the cell and seed of a run, as far as they have scores."""
        same = {key: run[key] for key in ("data_set", "column", "seed")}.items()
        own = {other["method"]: other for other in runs if "scores" in other and same <= other.items()}
        return cls(own.get(LOCAL), own.get(TARGET_OF))

    @property
    def hashes(self) -> list[str | None]:
        """Which runs they are."""
        return [None if one is None else one["hash"] for one in (self.local, self.target)]


def place_of(one: Planned) -> Summary:
    """The cell and the method of a run."""
    return {"data_set": one.column.data_set, "column": one.column.name, "method": one.method.name}


def _place(one: Planned) -> Summary:
    """Which cell a run is of, and its settings."""
    return {
        **place_of(one),
        "clients": one.column.clients,
        "given": one.method.given,
        "seed": one.run.seed,
        "hash": one.run.hash,
        "algorithm": dict(one.run.algorithm),
        "lr": one.run.learning.lr,
    }


def _scores(folder: RunFolder, result: Mapping[str, Any]) -> Summary:
    """What is reported of a finished run alone."""
    kinds = _kinds(result)
    described = folder.description("clients") or {"clients": []}
    groups = {client["true_cluster"] for client in described["clients"]} - {None}
    used = folder.description("processor")
    return {
        "scores": {kind: _accuracies(result, chosen) for kind, chosen in kinds.items()},
        "clusters": result["clusters"],
        "true_clusters": len(groups) or None,
        "ari": _rounded(result["ari"]),
        "megabytes": _rounded((result["bytes_down"] + result["bytes_up"]) / 1e6),
        "seconds": result["seconds"],
        "processor": None if used is None else {name: round(value, 3) for name, value in used.items()},
    }


def _kinds(result: Mapping[str, Any]) -> dict[str, str | None]:
    """The kinds of test samples, as they are named here and in the run: None is the primary one."""
    return {str(result.get("test", "owned")): None, **{kind: kind for kind in result.get("tests", {})}}


def _evidence(folder: RunFolder) -> dict[str, Any]:
    """What a run is compared by: the accuracy of each client by kind of test samples, and the means of all rounds."""
    records = folder.records()
    by_client = {kind: _by_client(records[-1], chosen) for kind, chosen in _kinds(records[-1]).items()}
    means = curve(records)
    return {"by_client": by_client, "curve": {key: means[key] for key in ("rounds", "received") if key in means}}


def _compared(evidence: Mapping[str, Any], beside: Beside) -> Summary:
    """Clients below local training, and rounds to the target."""
    local = beside.local["evidence"]["by_client"] if beside.local is not None else {}
    below = {
        kind: below_local({"by_client": own}, {"by_client": local[kind]} if kind in local else None)
        for kind, own in evidence["by_client"].items()
    }
    return {
        "below_local": {kind: {p: _rounded(value) for p, value in shares.items()} for kind, shares in below.items()},
        "rounds_to_target": _rounds_to_target(evidence["curve"], beside.target),
        "beside": beside.hashes,
    }


def _by_client(record: Mapping[str, Any], kind: str | None) -> dict[str, dict[str, list[float]]]:
    """By protocol and client: the accuracy, in a list as in a record, rounded as it is stored."""
    found = on_test(record, kind)["by_client"]
    return {p: {client: [_rounded(own[0])] for client, own in found[p].items()} for p in PROTOCOLS}


def _accuracies(result: Mapping[str, Any], kind: str | None) -> dict[str, Any]:
    accuracy = on_test(result, kind)["accuracy"]
    return {p: {name: _rounded(value) for name, value in accuracy[p].items()} for p in PROTOCOLS}


def _rounds_to_target(means: Mapping[str, Any], target: Summary | None) -> float | None:
    """The first evaluated round in which the models as received are as good as FedAvg's at the end; None if none is."""
    if target is None:
        return None
    end = next(iter(target["scores"].values()))["received"]["mean"]
    return reached(means, "received", end, "rounds")


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
    """Add an outcome to what is there, which can be committed: a line for each run, so that a change of one is small.

    Several processes may save to one folder.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder):
        there = load(folder, outcome["scale"])
        whole = outcome if there is None else merged(there, outcome["runs"], outcome["tuning"])
        path = place(folder, outcome["scale"])
        write_atomically(path, ("\n".join(_lines(whole)) + "\n").encode())
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
        if stored["scale"] == scale and all(map(_is_whole, stored["runs"])) and all(map(_key, stored["tuning"])):
            return stored
    except (ValueError, LookupError, TypeError, RecursionError):
        pass
    raise StoreError(f"{path}: is no outcome of the benchmark; export it again")


def _is_whole(run: Summary) -> bool:
    return bool(_key(run)) and ("scores" not in run or "beside" in run)


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
