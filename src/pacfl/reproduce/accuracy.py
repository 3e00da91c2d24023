"""Final accuracies beside the paper's: label skew, Dirichlet, MIX-4, and newcomers."""

from collections.abc import Mapping
from typing import Any, Final, get_args

import numpy as np

from pacfl.reproduce.items import NOT_HERE, Item
from pacfl.reproduce.outcome import Outcome
from pacfl.reproduce.planning import plan
from pacfl.reproduce.tables import (
    NOT_RUN,
    PROTOCOLS,
    Runs,
    Table,
    accuracies,
    clusters_and_ari,
    leaders,
    named,
    percent,
    settings,
)
from pacfl.subspace.threshold import Finding

NEWCOMERS: Final = ("received", "fine_tuned", "personal")
GLOBAL: Final = ("fedavg", "fedprox", "fednova", "scaffold")  # the published code scores their global model


def accuracy(item: Item, outcome: Outcome) -> list[Table]:
    """One table for each data set: the paper's value, and ours under every protocol."""
    return [_table(item, outcome, column, PROTOCOLS) for column in item.columns]


def newcomers(item: Item, outcome: Outcome) -> list[Table]:
    """The same of clients that joined after the last round."""
    of_newcomers = [{**run, "accuracy": run["newcomers"]} for run in outcome["runs"] if "newcomers" in run]
    shown = {**outcome, "runs": [*of_newcomers, *(run for run in outcome["runs"] if "diverged" in run)]}
    return [_table(item, shown, column, NEWCOMERS) for column in item.columns]


def _table(item: Item, outcome: Outcome, column: str, protocols: tuple[str, ...]) -> Table:
    published: Mapping[str, str] = item.published().get(column, {})
    by_method = _by_method(item, outcome, column)
    lacking = outcome["missing"].get(column)
    head = ("method", "paper", *(named(p) for p in protocols), "clusters", "ARI", "lr", "seeds", "runs")
    rows = [
        (method, published.get(method, "-"), *_cells(runs, protocols, lacking)) for method, runs in by_method.items()
    ]
    notes = _notes(by_method, protocols, lacking, outcome, column)
    distances = _distances(by_method, published, protocols) if outcome["scale"] == "paper" else []
    return Table(f"{item.title}: {column}", head, tuple(rows), (*notes, *distances))


def _by_method(item: Item, outcome: Outcome, column: str) -> dict[str, Runs]:
    methods = dict.fromkeys(one.method for one in plan(item, column, outcome["scale"]))
    runs = [run for run in outcome["runs"] if run["column"] == column]
    return {method: [run for run in runs if run["method"] == method] for method in methods}


def _cells(runs: Runs, protocols: tuple[str, ...], lacking: str | None) -> tuple[str, ...]:
    if not runs:
        return (NOT_HERE if lacking else NOT_RUN, *[""] * (len(protocols) + 4))
    return (
        *(percent(runs, p) for p in protocols),
        *clusters_and_ari(runs),
        settings(runs),
        " ".join(str(run["seed"]) for run in runs),
        " ".join(run["hash"][:8] for run in runs),
    )


def _notes(
    by_method: Mapping[str, Runs], protocols: tuple[str, ...], lacking: str | None, outcome: Outcome, column: str
) -> tuple[str, ...]:
    if lacking:
        return (f"{lacking}.",)
    if not any(by_method.values()):
        return ()
    notes = [
        "Accuracy in %, mean over clients, then mean ± standard deviation over seeds (divisor n). "
        "The paper does not state its protocol.",
        *_samples(by_method),
        _variant(by_method),
        *_findings(by_method),
        *(leaders(by_method, p) for p in protocols),
    ]
    if outcome["scale"] == "quick":
        notes.append("This is the quick version: it shows that everything works, and its numbers mean nothing.")
    tuned = [t for t in outcome["tuning"] if t["column"] == column]
    notes.append(_tuned(tuned) if tuned else "Not tuned: the settings of the file.")
    return tuple(notes)


def _samples(by_method: Mapping[str, Runs]) -> list[str]:
    """How many samples clients had on average, over all runs: it shows an extract of a data set."""
    runs = [run for of_method in by_method.values() for run in of_method if "train" in run]
    if not runs:
        return []
    train, test = (_range([run[part] for run in runs]) for part in ("train", "test"))
    return [f"Samples of a client on average: {train} for training, {test} for testing."]


def _range(values: list[float]) -> str:
    low, high = min(values), max(values)
    return f"{low:,.0f}" if low == high else f"{low:,.0f} to {high:,.0f}"


def _variant(by_method: Mapping[str, Runs]) -> str:
    """Which variant of each method this is."""
    cuts = [run["clustering"] for runs in by_method.values() for run in runs if "clustering" in run]
    ways = {f"`{cut['measure']}` angles between whole raw data, `{cut['linkage']}` linkage" for cut in cuts}
    pacfl = f" PACFL by {'; '.join(sorted(ways))}." if ways else ""
    return f"Variant: every method after its own paper, not after the published code.{pacfl}"


def _findings(by_method: Mapping[str, Runs]) -> list[str]:
    """What the automatic threshold found: whether there are distinct clusters at all."""
    cuts = [run["clustering"]["finding"] for runs in by_method.values() for run in runs if "clustering" in run]
    found = sorted({finding for finding in cuts if finding in get_args(Finding)})
    return [f"Finding of the automatic threshold: {', '.join(found)}."] if found else []


def _distances(by_method: Mapping[str, Runs], published: Mapping[str, str], protocols: tuple[str, ...]) -> list[str]:
    """How far ours are from the published values under each protocol, and under that of the published code."""
    pairs = {p: distances(by_method, published, dict.fromkeys(by_method, p)) for p in protocols}
    if "last_trained" in protocols:
        as_published = {m: "received" if m in GLOBAL else "last_trained" for m in by_method}
        pairs["received for global methods and last_trained for others"] = distances(by_method, published, as_published)
    means = [f"{named(p)} {np.mean(d):.1f}" for p, d in pairs.items() if d]
    n = max((len(d) for d in pairs.values()), default=0)
    return [f"Mean distance from the paper's values in points, over {n} methods: {', '.join(means)}."] if means else []


def distances(
    by_method: Mapping[str, Runs], published: Mapping[str, str], protocol_of: Mapping[str, str]
) -> list[float]:
    """Points between the paper's value and ours, for every method that has both."""
    both = [(published[m], accuracies(runs, protocol_of[m])) for m, runs in by_method.items() if m in published]
    return [abs(float(theirs.split()[0]) - float(np.mean(ours))) for theirs, ours in both if ours]


def _tuned(tuned: list[dict[str, Any]]) -> str:
    cells = [f"{t['method']} {_trials(t)}" for t in tuned]
    return "Tuned on held-out training samples (settings: accuracy in %, * chosen): " + "; ".join(cells) + "."


def _trials(tuned: Mapping[str, Any]) -> str:
    trials = []
    for trial in tuned["trials"]:
        given = {key: value for key, value in trial.items() if key not in ("accuracy", "hash")}
        words = "/".join(f"{value:g}" for value in given.values())
        score = "diverged" if trial["accuracy"] is None else f"{100 * trial['accuracy']:.1f}"
        trials.append(f"{words}: {score}{'*' if given == tuned['chosen'] else ''}")
    return "(" + ", ".join(trials) + f"; {tuned['evaluated_by']})"
