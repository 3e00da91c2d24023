"""How runs look: tables of results, and what is shown while they run."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from rich import box
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from pacfl.cli.console import err
from pacfl.experiment.summary import ACCURACY, in_percent, metric_of, scores
from pacfl.experiment.swept import beside_label, in_words, list_settings, short_names, swept_settings

if TYPE_CHECKING:
    from pacfl.experiment.config import Run

Show = Callable[["Run", Mapping[str, Any]], None]
PROTOCOLS: Final = ("received", "personal", "last_trained")
ROWS_SHOWN: Final = 20
COLUMNS_OF_SETTINGS: Final = 3  # more swept settings share one column


def results_table(results: list[dict[str, Any]], title: str) -> Table:
    """Results by one primary metric side by side, every score under the name of its protocol."""
    metric = metric_of(results[0])
    caption = (
        f"{_unit(metric)}, mean±standard deviation over clients; k: clusters; worst: worst tenth of clients, received; "
        f"below: clients with a worse {metric} than with local training only, received; "
        "Mb: megabits per client, both ways"
    )
    table = Table(title=title, caption=caption, box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    settings = _add_runs(table, results)
    for heading in ("k", "ARI", "received", "worst", "personal", "last-trained", "below", "Mb"):
        table.add_column(heading, justify="right", no_wrap=True, overflow="fold")
    for r in results:
        received, personal, last = (scores(r).get(p) for p in PROTOCOLS)
        worst = "-" if received is None else _number(received["worst_tenth"], metric)
        worse = r["worse_than_alone"].get("received")
        table.add_row(
            *_run_cells(r, settings),
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
    settings = _add_runs(table, results)
    for heading in ("received", "fine-tuned"):
        table.add_column(heading, justify="right")
    for r in results:
        served = (cell(scores(r["newcomers"]).get(protocol), metric) for protocol in ("received", "fine_tuned"))
        table.add_row(*_run_cells(r, settings), *served)
    return table


def targets_table(results: list[dict[str, Any]]) -> Table:
    """When each run reached each target, by the model as received."""
    metric = metric_of(results[0])
    table = Table(title=f"rounds and megabits per client to a mean received {metric}", box=box.SIMPLE_HEAD)
    targets = list(results[0]["to_target"])
    settings = _add_runs(table, results)
    for heading in (value(float(target), metric, "g") for target in targets):
        table.add_column(heading, justify="right")
    for r in results:
        reached = (r["to_target"][target].get("received") for target in targets)
        cells = ("-" if at is None else f"{at['rounds']} / {at['megabits_per_client']:.1f}" for at in reached)
        table.add_row(*_run_cells(r, settings), *cells)
    return table


def _add_runs(table: Table, results: Sequence[Mapping[str, Any]]) -> list[str]:
    """Columns that name the runs: algorithm, swept settings, seed. The paths of the settings."""
    paths = beside_label([r["settings"] for r in results])
    table.add_column("algorithm", overflow="fold")
    for heading in settings_headings(paths):
        table.add_column(
            escape(heading), justify="right" if len(paths) <= COLUMNS_OF_SETTINGS else "left", overflow="fold"
        )
    table.add_column("seed", justify="right", no_wrap=True)
    return paths


def _run_cells(result: Mapping[str, Any], paths: Sequence[str]) -> list[str]:
    return [escape(result["algorithm"]), *settings_cells(result["settings"], paths), str(result["seed"])]


def settings_headings(paths: Sequence[str]) -> list[str]:
    """A column for each setting, or one for all of them if they are many."""
    return list(short_names(paths).values()) if len(paths) <= COLUMNS_OF_SETTINGS else ["settings"]


def settings_cells(settings: Mapping[str, Any], paths: Sequence[str]) -> list[str]:
    """The cells of a run below these headings."""
    few = len(paths) <= COLUMNS_OF_SETTINGS
    cells = [in_words(settings.get(path)) for path in paths] if few else [list_settings(settings, paths)]
    return [escape(cell) for cell in cells]


def metrics_table(results: list[dict[str, Any]]) -> Table:
    """The metrics beside the primary one, of the model as received."""
    names = list(dict.fromkeys(name for r in results for name in r.get("metrics", {})))
    caption = "mean±standard deviation over clients, received; in brackets: clients for which it is not defined"
    table = Table(title="metrics", caption=caption, box=box.SIMPLE_HEAD)
    settings = _add_runs(table, results)
    for name in names:
        table.add_column(escape(_unit(name)), justify="right")
    for r in results:
        spreads = ((r.get("metrics", {}).get(name, {}).get("received"), name) for name in names)
        cells = (cell(spread, name) + _undefined(spread) for spread, name in spreads)
        table.add_row(*_run_cells(r, settings), *cells)
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
    progress = Progress(asked, run_names(asked))
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
                err.print(f"{progress.name(one)} seed {one.seed}: {status}", highlight=False)

        yield line


def run_names(asked: "Sequence[Run]") -> dict[str, str]:
    """By hash: the label of the algorithm, and the settings in which the runs differ."""
    settings = swept_settings([one.content() for one in asked])
    paths = beside_label(settings)
    both = ((one, list_settings(own, paths)) for one, own in zip(asked, settings, strict=True))
    return {one.hash: f"{one.label()} {more}".strip() for one, more in both}


@dataclass
class Progress:
    """What is known of the runs of an experiment while they run."""

    asked: "list[Run]"
    names: Mapping[str, str] = field(default_factory=dict)  # by hash; without one, the label of the algorithm
    latest: dict[str, dict[str, Any]] = field(default_factory=dict)
    first: dict[str, tuple[int, float]] = field(default_factory=dict)  # round and time of the first record seen
    clock: Callable[[], float] = time.monotonic

    def note(self, one: "Run", record: Mapping[str, Any]) -> None:
        """Take a record, or a result, into account."""
        self.latest[one.hash] = {**self.latest.get(one.hash, {}), **record}
        if "round" in record:
            self.first.setdefault(one.hash, (record["round"], self.clock()))

    def name(self, one: "Run") -> str:
        """What distinguishes a run from the others but for its seed."""
        return self.names.get(one.hash) or one.label()

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
            table.add_row(escape(self.name(one)), str(one.seed), *row)
        return table
