"""PACFL's defaults beside other methods on both kinds of test samples, compared client by client.

Methods that are FedAvg to the bit are not trained again: IFCA with one model, CFL that never splits, and the paper's
PACFL with one cluster.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from pacfl.experiment.compare import below_local
from pacfl.experiment.config import Run
from pacfl.experiment.store import RunFolder
from pacfl.experiment.summary import PAPERS_PACFL
from pacfl.experiment.tested_on import on_test
from pacfl.reproduce.items import Item, missing
from pacfl.reproduce.making import Request, asked_columns, not_exported
from pacfl.reproduce.missing_runs import run_missing, stored_result
from pacfl.reproduce.outcome import DIGITS, Outcome, outcome
from pacfl.reproduce.planning import Planned, plan
from pacfl.reproduce.tables import NOT_RUN, Runs, Table, clusters_and_ari, over_seeds

KINDS: Final = ("proportional", "owned")  # of test samples; runs have owned as the primary one
PROTOCOLS: Final = ("received", "personal")
OURS: Final = "PACFL"
NAMES: Final = ("SOLO", "FedAvg", "FedAvg, label prior", "IFCA, k given", "CFL", "PACFL of the paper", OURS)
NOISE: Final = 2.0  # standard errors


def name_of(algorithm: Mapping[str, Any]) -> str:
    """The row of a method."""
    if algorithm["name"] == "fedavg":
        return "FedAvg, label prior" if algorithm.get("label_prior") else "FedAvg"
    if algorithm["name"] == "pacfl":
        return "PACFL of the paper" if PAPERS_PACFL.items() <= algorithm.items() else OURS
    return {"solo": "SOLO", "ifca": "IFCA, k given", "cfl": "CFL"}[algorithm["name"]]


def make(item: Item, request: Request) -> Outcome:
    """Run what is missing, one seed of everything before the next of anything."""
    lacking = missing(item, request.scale, request.data)
    columns = [column for column in asked_columns(item, request) if column not in lacking]
    of_columns = [plan(item, column, request.scale, request.only, request.n_seeds) for column in columns]
    planned = not_exported([one for own in of_columns for one in own], request)
    planned.sort(key=lambda one: one.run.seed)
    if request.run:
        for cell in cells(planned):
            train(cell, request)
    found = outcome(item, request.scale, lacking, planned, [], request.runs)
    return {**found, "runs": [run for cell in cells(planned) for run in _compared(cell, found["runs"], request.runs)]}


def cells(planned: Sequence[Planned]) -> Iterator[dict[str, Planned]]:
    """The methods of each column and seed, by name."""
    for _, own in groupby(planned, lambda one: (one.run.seed, one.column)):
        yield {name_of(one.run.algorithm): one for one in own}


def train(cell: Mapping[str, Planned], request: Request) -> None:
    """Run what is missing of a cell, CFL before FedAvg: if it does not split, FedAvg is known."""
    order = sorted(cell, key=lambda name: (name == "FedAvg", NAMES.index(name)))
    runs = {name: cell[name].run for name in order}
    with request.watch(list(runs.values())) as show:
        for name, run in runs.items():
            if name == "FedAvg" and "CFL" in runs and is_fedavg(runs["CFL"], request.runs):
                continue
            if name == "IFCA, k given" and is_fedavg(run, request.runs):
                continue
            for record in run_missing(run, request.runs, request.data, request.workers):
                show(run, record)
                if name == "PACFL of the paper" and is_fedavg(run, request.runs):
                    break


def is_fedavg(run: Run, runs: Path) -> bool:
    """Whether a method is known to be FedAvg to the bit."""
    name, folder = name_of(run.algorithm), RunFolder(runs / run.hash)
    if name == "IFCA, k given":
        return bool(run.algorithm["clusters"] == 1)
    if name == "CFL":
        return bool((stored_result(run, runs) or {}).get("clusters") == 1)
    first = next(iter(folder.records()), {}) if name == "PACFL of the paper" and folder.path.is_dir() else {}
    return first.get("clusters") == 1


# What is compared


def _compared(cell: Mapping[str, Planned], found: Runs, runs: Path) -> Iterator[dict[str, Any]]:
    """The runs of a cell with those that are FedAvg to the bit, each beside local training and beside PACFL."""
    by_hash = {run["hash"]: run for run in found}
    same = [name for name in ("FedAvg", "CFL", "PACFL of the paper", "IFCA, k given") if name in cell]
    same = [name for name in same if name == "FedAvg" or is_fedavg(cell[name].run, runs)]
    trained = next((cell[name].run.hash for name in same if cell[name].run.hash in by_hash), None)
    scores = {name: last_record(one.run.hash, runs) for name, one in cell.items()}
    for name, one in cell.items():
        run = by_hash.get(one.run.hash)
        record = scores[name]
        if run is None and name in same and trained is not None:
            run, record = _as(one, by_hash[trained]), last_record(trained, runs)
        if run is not None and record is not None:
            yield {**run, **_beside(record, scores.get("SOLO"), scores.get(OURS))}
        elif run is not None:
            yield dict(run)  # it diverged


def _as(one: Planned, run: Mapping[str, Any]) -> dict[str, Any]:
    """A run that was not trained, because another one is the same."""
    shared = {key: run[key] for key in run if key not in ("bytes_down", "bytes_up", "seconds", "clustering")}
    own = {"method": one.method, "hash": one.run.hash, "algorithm": dict(one.run.algorithm), "same_as": run["hash"]}
    return {**shared, **own, "clusters": 1}


def _beside(record: Mapping[str, Any], solo: Mapping[str, Any] | None, ours: Mapping[str, Any] | None) -> Outcome:
    """Shares of clients below local training, and what PACFL gains over this run."""
    below: dict[str, Any] = {}
    gains: dict[str, Any] = {}
    for kind in KINDS:
        own, alone, pacfl = (None if one is None else _on(one, kind) for one in (record, solo, ours))
        assert own is not None  # it is given
        shares = below_local(own, alone)
        below[kind] = {p: shares[p] for p in PROTOCOLS}
        if pacfl is not None:
            gains[kind] = {p: gain(pacfl["by_client"][p], own["by_client"][p]) for p in PROTOCOLS}
    return {"below_local": below, **({"pacfl_gains": gains} if gains else {})}


def gain(ours: Mapping[str, Sequence[float]], theirs: Mapping[str, Sequence[float]]) -> list[float]:
    """Mean difference of accuracies over clients, and its standard error."""
    differences = np.array([ours[c][0] - theirs[c][0] for c in theirs])
    error = differences.std(ddof=1) / np.sqrt(len(differences))
    return [round(float(differences.mean()), DIGITS), round(float(error), DIGITS)]


def last_record(name: str, runs: Path) -> dict[str, Any] | None:
    """The final evaluation of the run with a hash, if it is finished."""
    folder = RunFolder(runs / name)
    return dict(folder.records()[-1]) if folder.path.is_dir() and folder.result() is not None else None


def _on(record: Mapping[str, Any], kind: str) -> dict[str, Any]:
    return on_test(record, None if record.get("test") == kind else kind)


# Tables


def tables(item: Item, outcome: Outcome) -> list[Table]:
    """Accuracies for each kind of test samples and protocol, then clusters and clients below local training.

    Rows of which nothing was run are named once, below the last table.
    """
    have = {run["column"] for run in outcome["runs"]}
    by_cell = {column: _by_name(outcome["runs"], column) for column in item.columns if column in have}
    shown = [_accuracies(by_cell, kind, protocol) for kind in KINDS for protocol in PROTOCOLS]
    lacking = [f"{c} ({outcome['missing'].get(c, NOT_RUN)})" for c in item.columns if c not in have]
    note = (f"Rows without results: {', '.join(lacking)}.",) if lacking else ()
    return [*shown, _clusters(by_cell), replace(_below(by_cell), notes=note)]


def _by_name(runs: Runs, column: str) -> dict[str, Runs]:
    """The runs of a column by method, of the seeds that all methods which were run have in common."""
    own = [run for run in runs if run["column"] == column]
    by_name = {name: {run["seed"]: run for run in own if name_of(run["algorithm"]) == name} for name in NAMES}
    common = set.intersection(*(found or {run["seed"] for run in own} for found in map(set, by_name.values())))
    return {name: [found[seed] for seed in sorted(common) if seed in found] for name, found in by_name.items()}


def _accuracies(by_cell: Mapping[str, Mapping[str, Runs]], kind: str, protocol: str) -> Table:
    rows = []
    for column, own in by_cell.items():
        shown = (_cell(runs, kind, protocol) for runs in own.values())
        seeds = sorted({run["seed"] for runs in own.values() for run in runs})
        rows.append((column, *shown, " ".join(map(str, seeds))))
    title = f"{kind.capitalize()} test samples, `{protocol}`"
    return Table(title, ("data", *NAMES, "seeds"), tuple(rows), _standing(by_cell, kind, protocol))


def _cell(runs: Runs, kind: str, protocol: str) -> str:
    """The mean accuracy in %, and how it compares with PACFL's."""
    values = [100 * _scores(run, kind)[protocol]["mean"] for run in runs if "accuracy" in run]
    if not values:
        return "diverged" if runs else NOT_RUN
    text = over_seeds(values, 1)
    text = f"({text})" if any("same_as" in run for run in runs) else text
    mark = {"ahead": " ▲", "tied": " ≈"}.get(compared(runs, kind, protocol) or "", "")
    return text + mark


def compared(runs: Runs, kind: str, protocol: str) -> str | None:
    """Whether a method is ahead of PACFL, tied with it or behind; None: it is PACFL, or PACFL was not run.

    The noise is that of clients, who are compared one by one, or that of seeds, whichever is larger.
    """
    gains = np.array([run["pacfl_gains"][kind][protocol] for run in runs if "pacfl_gains" in run])
    return None if not len(gains) or name_of(runs[0]["algorithm"]) == OURS else compared_by(gains)


def compared_by(gains: NDArray[np.float64]) -> str:
    """Whether a method is ahead of PACFL, tied with it or behind, by PACFL's gain and its standard error, by seed."""
    mean, n = float(gains[:, 0].mean()), len(gains)
    of_clients = float(np.sqrt((gains[:, 1] ** 2).sum())) / n
    of_seeds = float(gains[:, 0].std(ddof=1)) / np.sqrt(n) if n > 1 else 0.0
    noise = NOISE * max(of_clients, of_seeds)
    return "ahead" if mean < -noise else "behind" if mean > noise else "tied"


def _standing(by_cell: Mapping[str, Mapping[str, Runs]], kind: str, protocol: str) -> tuple[str, ...]:
    """In how many cells PACFL is first, and where it is not; nothing if no row is complete."""
    complete = {column: own for column, own in by_cell.items() if all(own.values()) and "pacfl_gains" in own["SOLO"][0]}
    found = {
        column: {name: compared(runs, kind, protocol) for name, runs in own.items() if name != OURS}
        for column, own in complete.items()
    }
    alone = [column for column, own in found.items() if set(own.values()) == {"behind"}]
    behind = [f"{column} ({', '.join(ahead)})" for column, own in found.items() if (ahead := _ahead(own))]
    text = f"Of {len(found)} complete rows PACFL is first alone in {len(alone)}"
    return (f"{text}, and behind in {len(behind)}{': ' if behind else ''}{'; '.join(behind)}.",) if found else ()


def _ahead(own: Mapping[str, str | None]) -> list[str]:
    return [name for name, standing in own.items() if standing == "ahead"]


def _clusters(by_cell: Mapping[str, Mapping[str, Runs]]) -> Table:
    """How many clusters were found, and their agreement with the true ones."""
    names = [name for name in NAMES if name not in ("SOLO", "FedAvg", "FedAvg, label prior")]
    rows = []
    for column, own in by_cell.items():
        found = (clusters_and_ari(own[name]) if own[name] else (NOT_RUN, "-") for name in names)
        rows.append((column, *(n if ari == "-" else f"{n}, {ari}" for n, ari in found)))
    return Table("Clusters at the end, and their ARI where true clusters are known", ("data", *names), tuple(rows))


def _below(by_cell: Mapping[str, Mapping[str, Runs]]) -> Table:
    """Shares of clients below local training."""
    rows = []
    for column, own in by_cell.items():
        shares = [
            [100 * share for run in own[name] if (share := run.get("below_local", {}).get(kind, {}).get(p)) is not None]
            for name in ("FedAvg", OURS)
            for kind in KINDS
            for p in PROTOCOLS
        ]
        rows.append((column, *(over_seeds(values, 0) for values in shares)))
    head = tuple(f"{name}: {kind}, {p}" for name in ("FedAvg", OURS) for kind in KINDS for p in PROTOCOLS)
    return Table("Clients below local training, %", ("data", *head), tuple(rows))


def _scores(run: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    """Accuracies on a kind of test samples."""
    found: Mapping[str, Any] = run["tests"][kind]["accuracy"] if kind in run["tests"] else run["accuracy"]
    return found
