"""Experiments: run, ls, show, data."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from pacfl.cli.console import AsJson, app, err, out

if TYPE_CHECKING:
    from pacfl.experiment.config import Run

Runs = Annotated[Path, typer.Option("--runs", help="Folder in which runs are kept.")]
DataFolder = Annotated[
    Path | None, typer.Option("--data", help="Folder with data sets. Default: $PACFL_DATA, or ./data.")
]


class MissingLibraryError(RuntimeError):
    """A library that this command needs."""


@app.command()
def run(
    file: Annotated[Path, typer.Argument(help="An experiment in TOML.")],
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Overrule a setting, as data.clients=20.")
    ] = None,
    workers: Annotated[
        int, typer.Option(min=1, help="Processes that train clients. Results do not depend on it.")
    ] = os.cpu_count() or 1,
    runs: Runs = Path("runs"),
    data: DataFolder = None,
    as_json: AsJson = False,
) -> None:
    """Run an experiment: what is finished is not run again, what was interrupted goes on."""
    with _learning():
        from pacfl.experiment.config import read
        from pacfl.experiment.run import play
        from pacfl.experiment.store import folder_of, owned
    asked = read(file, tuple(settings or ()))
    results = []
    with _display(asked, quiet=as_json) as show:
        for one in asked:
            folder = folder_of(one, runs)
            result = folder.result()
            if result is None:
                with owned(folder):
                    for result in play(one, folder, data, workers):
                        show(one, result)
            else:
                show(one, result)
            results.append(result or {})
    if as_json:
        for result in results:
            print(json.dumps(result))
    else:
        out.print(_table(results, f"{len(results)} runs of {file}"))


@app.command("ls")
def list_runs(runs: Runs = Path("runs"), as_json: AsJson = False) -> None:
    """List the runs that are kept."""
    with _learning():
        from pacfl.experiment.store import all_folders
    rows = []
    for folder in all_folders(runs):
        content = folder.content() or {}
        result = folder.result()
        state = "finished" if result else f"{len(folder.records())} rounds"
        rows.append({"hash": folder.path.name, "state": state, **_described(content)})
    if as_json:
        for row in rows:
            print(json.dumps(row))
        return
    table = Table(title=f"{len(rows)} runs in {runs}")
    for heading in ("hash", "algorithm", "data", "clients", "seed", "state"):
        table.add_column(heading)
    for row in rows:
        table.add_row(*(escape(str(row[key])) for key in ("hash", "algorithm", "data", "clients", "seed", "state")))
    out.print(table)


@app.command()
def show(
    prefix: Annotated[str, typer.Argument(metavar="HASH", help="Of a run, or its beginning.")],
    runs: Runs = Path("runs"),
    as_json: AsJson = False,
) -> None:
    """Show one run: its settings and what came of it."""
    with _learning():
        from pacfl.experiment.store import StoreError, all_folders
    found = [folder for folder in all_folders(runs) if folder.path.name.startswith(prefix)]
    if len(found) != 1:
        raise StoreError(f"{len(found)} runs in {runs} begin with {prefix!r}; 'pacfl ls' lists them")
    folder = found[0]
    content, result, records = folder.content(), folder.result(), folder.records()
    if as_json:
        print(json.dumps({"run": content, "result": result, "rounds": records}))
        return
    out.print_json(json.dumps(content))
    if result:
        out.print(_table([result], str(folder.path)))
    judged = [record for record in records if "accuracy" in record]
    table = Table(title=f"{len(records)} rounds")
    for heading in ("round", "clusters", "received", "last-trained", "personal", "Mb per client"):
        table.add_column(heading, justify="right")
    sent = 0
    for record in records:
        sent += record["bytes_down"] + record["bytes_up"]
        if record in judged:
            megabits = 8e-6 * sent / max(record["clients"], 1)
            scores = (_percent(record["accuracy"].get(p)) for p in ("received", "last_trained", "personal"))
            table.add_row(str(record["round"]), str(record["clusters"]), *scores, f"{megabits:.1f}")
    out.print(table)


@app.command("data")
def list_data(
    folder: DataFolder = None,
    download: Annotated[str | None, typer.Option(metavar="NAME", help="Fetch a set, with its checksum.")] = None,
    as_json: AsJson = False,
) -> None:
    """List the data sets that are known, found and missing, and how to get them."""
    from pacfl.data import catalogue, data_folder
    from pacfl.data import download as fetch

    where = data_folder(folder)
    if download is not None:
        fetch(download, where)
    entries = catalogue(where)
    if as_json:
        print(json.dumps([{**asdict(entry), "found": entry.found} for entry in entries], default=str))
        return
    table = Table(title=f"data sets in {where}")
    for heading in ("name", "what", "found", "how to get it"):
        table.add_column(heading)
    for entry in entries:
        found = f"{entry.n_train:,} + {entry.n_test:,} samples, {entry.format}" if entry.found else entry.problem or "-"
        table.add_row(*(escape(text) for text in (entry.name, entry.title, found, "" if entry.found else entry.how)))
    out.print(table)


def _table(results: list[dict[str, Any]], title: str) -> Table:
    """Results side by side; every accuracy under the name of its protocol."""
    table = Table(title=title, caption="accuracy in %, mean ± deviation over clients; MB down + up")
    for heading in ("algorithm", "seed", "clusters", "ARI", "received", "personal", "last-trained", "MB"):
        table.add_column(heading, justify="left" if heading == "algorithm" else "right", no_wrap=heading != "algorithm")
    for r in results:
        scores = (_percent(r["accuracy"].get(p)) for p in ("received", "personal", "last_trained"))
        ari = "-" if r["ari"] is None else f"{r['ari']:.2f}"
        sent = f"{r['bytes_down'] / 1e6:.0f}+{r['bytes_up'] / 1e6:.0f}"
        table.add_row(escape(r["algorithm"]), str(r["seed"]), str(r["clusters"]), ari, *scores, sent)
    return table


def _percent(spread: dict[str, float] | None) -> str:
    return "-" if spread is None else f"{100 * spread['mean']:.1f}±{100 * spread['std']:.1f}"


def _described(content: dict[str, Any]) -> dict[str, Any]:
    algorithm = dict(content["algorithm"])
    name = algorithm.pop("name")
    given = ", ".join(f"{k}={v}" for k, v in algorithm.items())
    data = content["data"]
    return {
        "algorithm": f"{name}({given})" if given else name,
        "data": data["name"],
        "clients": data["clients"],
        "seed": content["seed"],
    }


@contextmanager
def _display(asked: "list[Run]", quiet: bool) -> Iterator[Any]:
    """A live table for those who watch, plain lines otherwise."""
    latest: dict[str, dict[str, Any]] = {}

    def rows() -> Table:
        table = Table()
        for heading in ("algorithm", "seed", "round", "clusters", "received"):
            table.add_column(heading, justify="left" if heading == "algorithm" else "right")
        for one in asked:
            kept = latest.get(one.hash, {})
            score = _percent(kept.get("accuracy", {}).get("received"))
            done = (
                "done"
                if "seconds" in kept
                else f"{min(kept.get('round', -1) + 1, one.schedule.rounds)}/{one.schedule.rounds}"
            )
            table.add_row(escape(one.label()), str(one.seed), done, str(kept.get("clusters", "")), score)
        return table

    if err.is_terminal and not quiet:
        with Live(rows(), console=err, transient=True, refresh_per_second=4) as live:

            def update(one: "Run", kept: dict[str, Any]) -> None:
                latest[one.hash] = {**latest.get(one.hash, {}), **kept}
                live.update(rows())

            yield update
    else:

        def line(one: "Run", kept: dict[str, Any]) -> None:
            finished = "seconds" in kept
            if "accuracy" in kept and not quiet and (finished or kept["round"] < one.schedule.rounds):
                where = "done" if finished else f"round {kept['round'] + 1}/{one.schedule.rounds}"
                score = _percent(kept["accuracy"]["received"])
                err.print(f"{one.label()} seed {one.seed}: {where}, received {score}", highlight=False)

        yield line


@contextmanager
def _learning() -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] == "torch":
            raise MissingLibraryError("training needs torch: pip install 'pacfl[learning]'") from None
        raise
