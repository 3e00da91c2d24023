"""Final accuracies beside the paper's: label skew, Dirichlet, MIX-4, and newcomers."""

from collections.abc import Mapping
from typing import Any, Final

from pacfl.reproduce.items import Item
from pacfl.reproduce.outcome import Outcome
from pacfl.reproduce.planning import plan
from pacfl.reproduce.tables import NOT_RUN, PROTOCOLS, Runs, Table, leaders, named, over_seeds, percent, settings

NEWCOMERS: Final = ("received", "fine_tuned", "personal")


def accuracy(item: Item, outcome: Outcome) -> list[Table]:
    """One table for each data set: the paper's value, and ours under every protocol."""
    return [_table(item, outcome, column, PROTOCOLS) for column in item.columns]


def newcomers(item: Item, outcome: Outcome) -> list[Table]:
    """The same of clients who came after the last round."""
    return [_table(item, outcome, column, NEWCOMERS) for column in item.columns]


def _table(item: Item, outcome: Outcome, column: str, protocols: tuple[str, ...]) -> Table:
    published: Mapping[str, str] = item.published().get(column, {})
    by_method = _by_method(item, outcome, column)
    lacking = outcome["missing"].get(column)
    head = ("method", "paper", *(named(p) for p in protocols), "clusters", "ARI", "lr", "seeds", "runs")
    rows = [
        (method, published.get(method, "-"), *_cells(runs, protocols, lacking)) for method, runs in by_method.items()
    ]
    return Table(f"{item.title}: {column}", head, tuple(rows), _notes(by_method, protocols, lacking, outcome, column))


def _by_method(item: Item, outcome: Outcome, column: str) -> dict[str, Runs]:
    methods = dict.fromkeys(one.method for one in plan(item, column, outcome["scale"]))
    runs = [run for run in outcome["runs"] if run["column"] == column]
    return {method: [run for run in runs if run["method"] == method] for method in methods}


def _cells(runs: Runs, protocols: tuple[str, ...], lacking: str | None) -> tuple[str, ...]:
    if not runs:
        return (lacking or NOT_RUN, *[""] * (len(protocols) + 4))
    whole = [run for run in runs if "diverged" not in run]
    aris = [run["ari"] for run in whole if run["ari"] is not None]
    return (
        *(percent(runs, p) for p in protocols),
        over_seeds([run["clusters"] for run in whole], 1),
        over_seeds(aris),
        settings(runs),
        " ".join(str(run["seed"]) for run in runs),
        " ".join(run["hash"][:8] for run in runs),
    )


def _notes(
    by_method: Mapping[str, Runs], protocols: tuple[str, ...], lacking: str | None, outcome: Outcome, column: str
) -> tuple[str, ...]:
    if lacking or not any(by_method.values()):
        return ()
    told = [
        "Accuracy in %, mean over clients, then mean ± deviation over seeds. The paper does not state its protocol.",
        *(leaders(by_method, p) for p in protocols),
    ]
    if outcome["scale"] == "quick":
        told.append("This is the quick version: it shows that everything works, and its numbers mean nothing.")
    tuned = [t for t in outcome["tuning"] if t["column"] == column]
    told.append(_tuned(tuned) if tuned else "Not tuned: the settings of the file.")
    return tuple(told)


def _tuned(tuned: list[dict[str, Any]]) -> str:
    cells = [f"{t['method']} {_trials(t)}" for t in tuned]
    return "Tuned on held-out training samples (settings: accuracy in %, * chosen): " + "; ".join(cells) + "."


def _trials(tuned: Mapping[str, Any]) -> str:
    told = []
    for trial in tuned["trials"]:
        given = {key: value for key, value in trial.items() if key not in ("accuracy", "hash")}
        words = "/".join(f"{value:g}" for value in given.values())
        score = "diverged" if trial["accuracy"] is None else f"{100 * trial['accuracy']:.1f}"
        told.append(f"{words}: {score}{'*' if given == tuned['chosen'] else ''}")
    return "(" + ", ".join(told) + f"; {tuned['judged_by']})"
