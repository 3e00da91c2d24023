"""What is shown while runs are computed."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from rich.live import Live
from rich.markup import escape
from rich.table import Table

from pacfl.cli.console import err
from pacfl.cli.result_tables import cell
from pacfl.experiment.summary import ACCURACY, metric_of, scores
from pacfl.experiment.swept import beside_label, list_settings, swept_settings

if TYPE_CHECKING:
    from pacfl.experiment.config import Run

Show = Callable[["Run", Mapping[str, Any]], None]
ROWS_SHOWN: Final = 20


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
