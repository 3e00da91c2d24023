"""When runs reached a target, in rounds or in megabits per client, from the runs of other items."""

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from pacfl.reproduce.items import NOT_HERE, Item
from pacfl.reproduce.outcome import Outcome
from pacfl.reproduce.tables import NOT_RUN, Runs, Table, named, over_seeds

Unit = Literal["rounds", "megabits"]
PROTOCOLS = ("received", "last_trained")  # those that are evaluated during a run


def rounds(item: Item, outcome: Outcome) -> list[Table]:
    """Rounds to the target, for every data set."""
    return list(_tables(item, outcome, "rounds"))


def megabits(item: Item, outcome: Outcome) -> list[Table]:
    """Megabits per client to the target, for every data set."""
    return list(_tables(item, outcome, "megabits"))


def reached(curve: Mapping[str, Any], protocol: str, target: float, unit: Unit) -> float | None:
    """The first rounds, or megabits, whose evaluation shows the target as mean accuracy; None if none does."""
    pairs = zip(curve[unit], curve.get(protocol, []), strict=False)
    return next((float(at) for at, mean in pairs if mean is not None and mean >= target), None)


def _tables(item: Item, outcome: Outcome, unit: Unit) -> Iterator[Table]:
    for source, columns in item.published().items():
        for column, values in columns.items():
            yield _table(item, outcome, f"{source} {column}", values, unit)


def _table(item: Item, outcome: Outcome, column: str, values: Mapping[str, Any], unit: Unit) -> Table:
    runs = [run for run in outcome["runs"] if run["column"] == column]
    target = values["target"]
    lacking = outcome["missing"].get(column)
    head = ("method", "paper", *(f"{named(p)} ({unit})" for p in PROTOCOLS), "seeds", "runs")
    rows = []
    for method, published in values.items():
        own = [run for run in runs if run["method"] == method]
        if method == "target":
            continue
        if own:
            seeds_and_runs = (" ".join(str(run["seed"]) for run in own), " ".join(run["hash"][:8] for run in own))
            rows.append((method, published, *(_cell(own, p, target, unit) for p in PROTOCOLS), *seeds_and_runs))
        else:
            rows.append((method, published, NOT_HERE if lacking else NOT_RUN, "", "", ""))
    return Table(f"{item.title}: {column}, target {100 * target:g} %", head, tuple(rows), _notes(unit, runs, lacking))


def _cell(runs: Runs, protocol: str, target: float, unit: Unit) -> str:
    found = [reached(run["curve"], protocol, target, unit) if "curve" in run else None for run in runs]
    there = [at for at in found if at is not None]
    if not there:
        return "diverged" if all("diverged" in run for run in runs) else "never"
    few = f" ({len(there)} of {len(found)})" if len(there) < len(found) else ""
    lost = any(at is not None and "diverged" in run for at, run in zip(found, runs, strict=True))
    return over_seeds(there, 0 if unit == "rounds" else 2) + few + (", then diverged" if lost else "")


def _notes(unit: Unit, runs: Runs, lacking: str | None) -> tuple[str, ...]:
    if not runs:
        return (f"{lacking}.",) if lacking else ()
    first = (
        "The first round after which the mean accuracy over all clients was at the target; "
        "mean ± standard deviation over seeds (divisor n)."
    )
    if unit == "rounds":
        return (first,)
    return (first, "Megabits of the messages really sent, both ways, over all clients, signatures included.")
