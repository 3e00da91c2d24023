"""How runs look: tables of results, and what is shown while they are played."""

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

if TYPE_CHECKING:
    from pacfl.experiment.config import Run

Show = Callable[["Run", Mapping[str, Any]], None]
PROTOCOLS: Final = ("received", "personal", "last_trained")
ROWS_SHOWN: Final = 20


def results_table(results: list[dict[str, Any]], title: str) -> Table:
    """Results side by side; every accuracy under the name of its protocol."""
    caption = (
        "accuracy in %, mean±deviation over clients; k: clusters; worst: the worst tenth of clients, received; "
        "<alone: clients that do worse than alone, received; Mb: megabits per client, down and up"
    )
    table = Table(title=title, caption=caption, box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    headings = ("algorithm", "seed", "k", "ARI", "received", "worst", "personal", "last-trained", "<alone", "Mb")
    for heading in headings:
        table.add_column(heading, justify="left" if heading == "algorithm" else "right", no_wrap=heading != "algorithm")
    for r in results:
        received, personal, last = (r["accuracy"].get(p) for p in PROTOCOLS)
        worst = "-" if received is None else f"{100 * received['worst_tenth']:.1f}"
        worse = r["worse_than_alone"].get("received")
        table.add_row(
            escape(r["algorithm"]),
            str(r["seed"]),
            str(r["clusters"]),
            "-" if r["ari"] is None else f"{r['ari']:.2f}",
            percent(received),
            worst,
            percent(personal),
            percent(last),
            "-" if worse is None else f"{100 * worse:.0f}%",
            f"{r['megabits_per_client']:.1f}",
        )
    return table


def newcomers_table(results: list[dict[str, Any]]) -> Table:
    """How those who came after the last round are served: by what they receive, and after fine-tuning it."""
    table = Table(title="newcomers", caption="accuracy in %, mean±deviation over newcomers", box=box.SIMPLE_HEAD)
    for heading in ("algorithm", "seed", "received", "fine-tuned"):
        table.add_column(heading, justify="left" if heading == "algorithm" else "right")
    for r in results:
        scores = r["newcomers"]["accuracy"]
        served = (percent(scores.get(protocol)) for protocol in ("received", "fine_tuned"))
        table.add_row(escape(r["algorithm"]), str(r["seed"]), *served)
    return table


def targets_table(results: list[dict[str, Any]]) -> Table:
    """When each run reached each target, by the model as received."""
    table = Table(title="rounds and megabits per client to a mean received accuracy", box=box.SIMPLE_HEAD)
    targets = list(results[0]["to_target"])
    for heading in ("algorithm", "seed", *(f"{100 * float(target):g} %" for target in targets)):
        table.add_column(heading, justify="left" if heading == "algorithm" else "right")
    for r in results:
        reached = (r["to_target"][target].get("received") for target in targets)
        cells = ("-" if at is None else f"{at['rounds']} / {at['megabits_per_client']:.1f}" for at in reached)
        table.add_row(escape(r["algorithm"]), str(r["seed"]), *cells)
    return table


def percent(spread: Mapping[str, float] | None) -> str:
    """Mean and deviation in percent."""
    return "-" if spread is None else f"{100 * spread['mean']:.1f}±{100 * spread['std']:.1f}"


@contextmanager
def display(asked: "list[Run]", quiet: bool) -> Iterator[Show]:
    """A live table for those who watch, plain lines otherwise; nothing where only the result is wanted."""
    progress = Progress(asked)
    if quiet:
        yield lambda _one, _kept: None
    elif err.is_terminal:
        with Live(progress.table(), console=err, transient=True, refresh_per_second=4) as live:

            def update(one: "Run", kept: Mapping[str, Any]) -> None:
                progress.note(one, kept)
                live.update(progress.table())

            yield update
    else:

        def line(one: "Run", kept: Mapping[str, Any]) -> None:
            progress.note(one, kept)
            if kept.get("accuracy") and ("seconds" in kept or kept["round"] < one.schedule.rounds):
                words = (progress.where(one), f"received {percent(kept['accuracy'].get('received'))}")
                left = progress.left(one)
                told = ", ".join((*words, f"{left} left") if left else words)
                err.print(f"{one.label()} seed {one.seed}: {told}", highlight=False)

        yield line


@dataclass
class Progress:
    """What is known of the runs of an experiment while they are played."""

    asked: "list[Run]"
    latest: dict[str, dict[str, Any]] = field(default_factory=dict)
    first: dict[str, tuple[int, float]] = field(default_factory=dict)  # round and time of the first record seen
    clock: Callable[[], float] = time.monotonic

    def note(self, one: "Run", kept: Mapping[str, Any]) -> None:
        """Take a record, or a result, into account."""
        self.latest[one.hash] = {**self.latest.get(one.hash, {}), **kept}
        if "round" in kept:
            self.first.setdefault(one.hash, (kept["round"], self.clock()))

    def where(self, one: "Run") -> str:
        """How far a run is."""
        kept = self.latest.get(one.hash, {})
        if "seconds" in kept:
            return "done"
        return f"round {min(kept.get('round', -1) + 1, one.schedule.rounds)}/{one.schedule.rounds}"

    def left(self, one: "Run") -> str:
        """Time to go, if rounds go on as they did; nothing where that cannot be said yet."""
        kept = self.latest.get(one.hash, {})
        first, since = self.first.get(one.hash, (0, 0.0))
        played = kept.get("round", 0) - first
        if "seconds" in kept or played < 1:
            return ""
        minutes, seconds = divmod(round((self.clock() - since) / played * (one.schedule.rounds - kept["round"])), 60)
        return f"{minutes}:{seconds:02}"

    def table(self) -> Table:
        """The runs around the one that is played."""
        table = Table()
        for heading in ("algorithm", "seed", "rounds", "clusters", "received", "time left"):
            table.add_column(heading, justify="left" if heading == "algorithm" else "right")
        begun = sum(one.hash in self.latest for one in self.asked)
        start = max(0, min(begun - ROWS_SHOWN // 2, len(self.asked) - ROWS_SHOWN))
        for one in self.asked[start : start + ROWS_SHOWN]:
            kept = self.latest.get(one.hash, {})
            score = percent(kept.get("accuracy", {}).get("received"))
            row = (self.where(one), str(kept.get("clusters", "")), score, self.left(one))
            table.add_row(escape(one.label()), str(one.seed), *row)
        return table
