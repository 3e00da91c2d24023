"""Real federations: every method with clients as the data have them, compared with PACFL client by client."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from pacfl.experiment.summary import higher_is_better, metric_of, scores
from pacfl.reproduce.items import Item
from pacfl.reproduce.making import Request, run_item
from pacfl.reproduce.outcome import Outcome
from pacfl.reproduce.tables import NOT_RUN, Runs, Table, clusters_and_ari, over_seeds
from pacfl.reproduce.together import compared_by, gain, last_record

PACFL: Final = "pacfl"
COLUMNS: Final[Mapping[str, tuple[str, str]]] = {  # what is shown: the method, and the protocol
    "SOLO": ("solo", "received"),
    "FedAvg": ("fedavg", "received"),
    "FedAvg, fine-tuned": ("fedavg", "personal"),
    "IFCA, k = 2": ("ifca(clusters=2)", "received"),
    "CFL": ("cfl", "received"),
    "PACFL of the paper": ("pacfl(paper)", "received"),
    "PACFL": (PACFL, "received"),
    "PACFL, fine-tuned": (PACFL, "personal"),
}


def make(item: Item, request: Request) -> Outcome:
    """Run what is missing; every run then has what PACFL gains over it."""
    found = run_item(item, request)
    ours = {(run["column"], run["seed"]): run["hash"] for run in found["runs"] if run["method"] == PACFL}
    return {
        **found,
        "runs": [{**run, **_gains(run, ours.get((run["column"], run["seed"])), request.runs)} for run in found["runs"]],
    }


def _gains(run: Mapping[str, Any], ours: str | None, runs: Path) -> dict[str, Any]:
    """By protocol: what PACFL's received models gain over the run's, and the standard error over clients."""
    own, theirs = (None if name is None else last_record(name, runs) for name in (ours, run["hash"]))
    if own is None or theirs is None:
        return {}
    sign = 1 if higher_is_better(theirs) else -1
    received = own["by_client"]["received"]
    gains = {p: gain(received, by_client) for p, by_client in theirs["by_client"].items()}
    return {"pacfl_gains": {p: [sign * mean, error] for p, (mean, error) in gains.items()}}


def tables(item: Item, outcome: Outcome) -> list[Table]:
    """Scores of all methods, and how many clusters each found."""
    by_column = {column: _complete([r for r in outcome["runs"] if r["column"] == column]) for column in item.columns}
    run = {column: runs for column, runs in by_column.items() if runs}
    rows = tuple(
        (_titled(column, runs), *(_cell(runs, *what) for what in COLUMNS.values()), _seeds(runs))
        for column, runs in run.items()
    )
    lacking = [f"{column} ({outcome['missing'].get(column, NOT_RUN)})" for column in item.columns if column not in run]
    notes = (
        "Mean over clients, then mean ± standard deviation over seeds (divisor n). Accuracy in %, or for values the "
        "mean absolute error: lower is better. ▲: ahead of PACFL, ≈: tied with it, nothing: behind it. Tied is what "
        "differs by less than two standard errors, over clients or over seeds, whichever is larger.",
        *([f"Without results: {', '.join(lacking)}."] if lacking else []),
    )
    clustered = {
        name: method for name, (method, protocol) in COLUMNS.items() if protocol == "received" and method != "solo"
    }
    found = tuple((column, *(_clusters(runs, method) for method in clustered.values())) for column, runs in run.items())
    return [
        Table(item.title, ("data", *COLUMNS, "seeds"), rows, notes),
        Table("Clusters at the end", ("data", *clustered), found),
    ]


def _complete(runs: Runs) -> Runs:
    """The runs of the seeds that all methods which were run have in common."""
    methods = {run["method"] for run in runs}
    common = {run["seed"] for run in runs}
    for method in methods:
        common &= {run["seed"] for run in runs if run["method"] == method}
    return [run for run in runs if run["seed"] in common]


def _seeds(runs: Runs) -> str:
    return " ".join(map(str, sorted({run["seed"] for run in runs})))


def _titled(column: str, runs: Runs) -> str:
    return f"{column}, {'error' if metric_of(runs[0]) == 'mae' else '%'}, {runs[0].get('clients', '?')} clients"


def _cell(runs: Runs, method: str, protocol: str) -> str:
    own = [run for run in runs if run["method"] == method]
    found = [run for run in own if protocol in scores(run)]
    if not found:
        return "diverged" if own else NOT_RUN
    shown, digits = (1, 3) if metric_of(found[0]) == "mae" else (100, 1)
    text = over_seeds([shown * scores(run)[protocol]["mean"] for run in found], digits)
    if (method, protocol) == COLUMNS["PACFL"] or not all("pacfl_gains" in run for run in found):
        return text
    standing = compared_by(np.array([run["pacfl_gains"][protocol] for run in found]))
    return text + {"ahead": " ▲", "tied": " ≈"}.get(standing, "")


def _clusters(runs: Runs, method: str) -> str:
    own = [run for run in runs if run["method"] == method and "clusters" in run]
    return clusters_and_ari(own)[0] if own else NOT_RUN
