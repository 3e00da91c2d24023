"""Tables of the results of runs."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from rich import box
from rich.markup import escape
from rich.table import Table

from pacfl.experiment.summary import in_percent, metric_of, scores
from pacfl.experiment.swept import beside_label, in_words, list_settings, short_names

Result = Mapping[str, Any]

COLUMNS_OF_SETTINGS: Final = 3  # more swept settings share one column
MOST_OF_A_NAME: Final = 24  # characters of an algorithm, or of a setting, that are not folded


@dataclass(frozen=True)
class Column:
    """Some number of each result; a heading that needs an explanation has one."""

    heading: str
    cell: Callable[[Result], str]
    explained: str = ""


def results_table(results: Sequence[Result], title: str, width: int | None = None) -> Table:
    """Results by one primary metric side by side, every score under the name of its protocol.

    Columns without any number are left out. If the table is wider than `width`, so are the columns that matter least,
    and the caption names them.
    """
    metric = metric_of(results[0])
    columns = [c for c in _columns(metric) if c.heading == "received" or any(c.cell(r) != "-" for r in results)]
    padding = 0 if width is not None and _width(results, columns, 1) > width else 1
    left_out = []
    for heading in LEAST_FIRST:
        if width is not None and _width(results, columns, padding) > width:
            left_out += [heading for column in columns if column.heading == heading]
            columns = [column for column in columns if column.heading != heading]
    caption = [f"{_unit(metric)}, mean±standard deviation over clients", *(c.explained for c in columns if c.explained)]
    if left_out:
        caption.append(f"too wide for the terminal, but shown by --json: {', '.join(left_out)}")
    table = Table(title=title, caption="; ".join(caption), box=box.SIMPLE_HEAD, padding=(0, padding, 0, 0))
    settings = _add_runs(table, results)
    for column in columns:
        table.add_column(column.heading, justify="right", no_wrap=True)
    for r in results:
        table.add_row(*_run_cells(r, settings), *(column.cell(r) for column in columns))
    return table


LEAST_FIRST: Final = ("Mb", "worst", "ARI", "k", "below", "last-trained", "personal")


def _columns(metric: str) -> list[Column]:
    def score(protocol: str) -> Callable[[Result], str]:
        return lambda r: cell(scores(r).get(protocol), metric)

    def worst(r: Result) -> str:
        received = scores(r).get("received")
        return "-" if received is None else _number(received["worst_tenth"], metric)

    def below(r: Result) -> str:
        share = r["worse_than_alone"].get("received")
        return "-" if share is None else f"{100 * share:.0f}%"

    return [
        Column("k", lambda r: "-" if r["clusters"] is None else str(r["clusters"]), "k: clusters"),
        Column(
            "ARI", lambda r: "-" if r["ari"] is None else f"{r['ari']:.2f}", "ARI: agreement with the true clusters"
        ),
        Column("received", score("received")),
        Column("worst", worst, "worst: worst tenth of clients, received"),
        Column("personal", score("personal")),
        Column("last-trained", score("last_trained")),
        Column("below", below, f"below: clients with a worse {metric} than with local training only, received"),
        Column("Mb", lambda r: f"{r['megabits_per_client']:.1f}", "Mb: megabits per client, both ways"),
    ]


def _width(results: Sequence[Result], columns: Sequence[Column], padding: int) -> int:
    """Characters that the table takes if no name of at most `MOST_OF_A_NAME` is folded."""
    paths = beside_label([r["settings"] for r in results])
    names = [("algorithm", *settings_headings(paths)), *(_run_cells(r, paths)[:-1] for r in results)]
    lengths = [min(MOST_OF_A_NAME, max(map(len, column))) for column in zip(*names, strict=True)]
    seed = max(len("seed"), *(len(str(r["seed"])) for r in results))
    numbers = [max(len(column.heading), *(len(column.cell(r)) for r in results)) for column in columns]
    return sum(length + padding + 1 for length in (*lengths, seed, *numbers)) + 1


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
