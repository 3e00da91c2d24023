"""How runs look: tables of results, and what is shown while they run."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from rich import box
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from pacfl.cli.console import err
from pacfl.experiment.summary import ACCURACY, in_percent, metric_of, scores

if TYPE_CHECKING:
    from pacfl.experiment.config import Run

Show = Callable[["Run", Mapping[str, Any]], None]
PROTOCOLS: Final = ("received", "personal", "last_trained")
ROWS_SHOWN: Final = 20


def results_table(results: list[dict[str, Any]], title: str) -> Table:
    """Results by one primary metric side by side, every score under the name of its protocol."""
    metric = metric_of(results[0])
    caption = (
        f"{_unit(metric)}, mean±standard deviation over clients; k: clusters; worst: worst tenth of clients, received; "
        f"below: clients with a worse {metric} than with local training only, received; "
        "Mb: megabits per client, both ways"
    )
    table = Table(title=title, caption=caption, box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    headings = ("algorithm", "seed", "k", "ARI", "received", "worst", "personal", "last-trained", "below", "Mb")
    for heading in headings:
        first = heading == "algorithm"
        table.add_column(heading, justify="left" if first else "right", no_wrap=not first, overflow="fold")
    for r in results:
        received, personal, last = (scores(r).get(p) for p in PROTOCOLS)
        worst = "-" if received is None else _number(received["worst_tenth"], metric)
        worse = r["worse_than_alone"].get("received")
        table.add_row(
            escape(r["algorithm"]),
            str(r["seed"]),
            "-" if r["clusters"] is None else str(r["clusters"]),
            "-" if r["ari"] is None else f"{r['ari']:.2f}",
            cell(received, metric),
            worst,
            cell(personal, metric),
            cell(last, metric),
            "-" if worse is None else f"{100 * worse:.0f}%",
            f"{r['megabits_per_client']:.1f}",
        )
    return table


def newcomers_table(results: list[dict[str, Any]]) -> Table:
    """Scores of clients that joined after the last round: as received, and after fine-tuning."""
    metric = metric_of(results[0])
    caption = f"{_unit(metric)}, mean±standard deviation over newcomers"
    table = Table(title="newcomers", caption=caption, box=box.SIMPLE_HEAD)
    for heading in ("algorithm", "seed", "received", "fine-tuned"):
        table.add_column(heading, justify="left" if heading == "algorithm" else "right")
    for r in results:
        served = (cell(scores(r["newcomers"]).get(protocol), metric) for protocol in ("received", "fine_tuned"))
        table.add_row(escape(r["algorithm"]), str(r["seed"]), *served)
    return table


def targets_table(results: list[dict[str, Any]]) -> Table:
    """When each run reached each target, by the model as received."""
    metric = metric_of(results[0])
    table = Table(title=f"rounds and megabits per client to a mean received {metric}", box=box.SIMPLE_HEAD)
    targets = list(results[0]["to_target"])
    for heading in ("algorithm", "seed", *(value(float(target), metric, "g") for target in targets)):
        table.add_column(heading, justify="left" if heading == "algorithm" else "right")
    for r in results:
        reached = (r["to_target"][target].get("received") for target in targets)
        cells = ("-" if at is None else f"{at['rounds']} / {at['megabits_per_client']:.1f}" for at in reached)
        table.add_row(escape(r["algorithm"]), str(r["seed"]), *cells)
    return table


def metrics_table(results: list[dict[str, Any]]) -> Table:
    """The metrics beside the primary one, of the model as received."""
    names = list(dict.fromkeys(name for r in results for name in r.get("metrics", {})))
    caption = "mean±standard deviation over clients, received; in brackets: clients for which it is not defined"
    table = Table(title="metrics", caption=caption, box=box.SIMPLE_HEAD)
    table.add_column("algorithm")
    for heading in ("seed", *(_unit(name) for name in names)):
        table.add_column(escape(heading), justify="right")
    for r in results:
        spreads = ((r.get("metrics", {}).get(name, {}).get("received"), name) for name in names)
        cells = (cell(spread, name) + _undefined(spread) for spread, name in spreads)
        table.add_row(escape(r["algorithm"]), str(r["seed"]), *cells)
    return table


def cell(spread: Mapping[str, Any] | None, metric: str) -> str:
    """Mean and standard deviation of a metric, shares in percent."""
    if spread is None or spread["mean"] is None:
        return "-"
    return f"{_number(spread['mean'], metric)}±{_number(spread['std'], metric)}"


def value(number: float, metric: str, form: str = ".1f") -> str:
    """A value of a metric with its unit.

    >>> value(0.8125, "accuracy"), value(2.0, "mae")
    ('81.2 %', '2')
    """
    return f"{100 * number:{form}} %" if in_percent(metric) else f"{number:.4g}"


def _number(number: float, metric: str) -> str:
    return f"{100 * number:.1f}" if in_percent(metric) else f"{number:.3g}"


def _unit(metric: str) -> str:
    return f"{metric} in %" if in_percent(metric) else metric


def _undefined(spread: Mapping[str, Any] | None) -> str:
    return f" ({spread['undefined']})" if spread and spread["undefined"] else ""


def count(n: int, noun: str) -> str:
    """A number of things.

    >>> count(1, "run"), count(2, "run")
    ('1 run', '2 runs')
    """
    return f"{n:,} {noun}{'' if n == 1 else 's'}"


@contextmanager
def display(asked: "list[Run]", quiet: bool) -> Iterator[Show]:
    """A live table on a terminal, plain lines otherwise; nothing where only the result is wanted."""
    progress = Progress(asked)
    if quiet:
        yield lambda _one, _record: None
    elif err.is_terminal:
        with Live(progress.table(), console=err, transient=True, refresh_per_second=4) as live:

            def update(one: "Run", record: Mapping[str, Any]) -> None:
                progress.note(one, record)
                live.update(progress.table())

            yield update
    else:

        def line(one: "Run", record: Mapping[str, Any]) -> None:
            progress.note(one, record)
            if scores(record) and ("seconds" in record or record["round"] <= one.schedule.rounds):
                metric = metric_of(record)
                named = "received" if metric == ACCURACY else f"received {metric}"
                words = (progress.where(one), f"{named} {cell(scores(record).get('received'), metric)}")
                left = progress.left(one)
                status = ", ".join((*words, f"{left} left") if left else words)
                err.print(f"{one.label()} seed {one.seed}: {status}", highlight=False)

        yield line


@dataclass
class Progress:
    """What is known of the runs of an experiment while they run."""

    asked: "list[Run]"
    latest: dict[str, dict[str, Any]] = field(default_factory=dict)
    first: dict[str, tuple[int, float]] = field(default_factory=dict)  # round and time of the first record seen
    clock: Callable[[], float] = time.monotonic

    def note(self, one: "Run", record: Mapping[str, Any]) -> None:
        """Take a record, or a result, into account."""
        self.latest[one.hash] = {**self.latest.get(one.hash, {}), **record}
        if "round" in record:
            self.first.setdefault(one.hash, (record["round"], self.clock()))

    def where(self, one: "Run") -> str:
        """How far a run is."""
        record = self.latest.get(one.hash, {})
        if "seconds" in record:
            return "done"
        return f"round {min(record.get('round', 0), one.schedule.rounds)}/{one.schedule.rounds}"

    def left(self, one: "Run") -> str:
        """Time left, if rounds take as long as before; empty where that is not known yet."""
        record = self.latest.get(one.hash, {})
        first, since = self.first.get(one.hash, (0, 0.0))
        finished = record.get("round", 0) - first
        if "seconds" in record or finished < 1:
            return ""
        minutes, seconds = divmod(
            round((self.clock() - since) / finished * (one.schedule.rounds - record["round"])), 60
        )
        return f"{minutes}:{seconds:02}"

    def table(self) -> Table:
        """The runs around the current one."""
        table = Table()
        for heading in ("algorithm", "seed", "rounds", "clusters", "received", "time left"):
            table.add_column(heading, justify="left" if heading == "algorithm" else "right")
        begun = sum(one.hash in self.latest for one in self.asked)
        start = max(0, min(begun - ROWS_SHOWN // 2, len(self.asked) - ROWS_SHOWN))
        for one in self.asked[start : start + ROWS_SHOWN]:
            record = self.latest.get(one.hash, {})
            score = cell(scores(record).get("received"), metric_of(record))
            clusters = record.get("clusters")
            row = (self.where(one), "" if clusters is None else str(clusters), score, self.left(one))
            table.add_row(escape(one.label()), str(one.seed), *row)
        return table
