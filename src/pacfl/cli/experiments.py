"""Experiments: run, ls, show, data."""

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from pacfl.cli.backends import Backend, reaching
from pacfl.cli.console import AsCsv, AsJson, app, err, out
from pacfl.cli.display import display, newcomers_table, percent, results_table, targets_table
from pacfl.cli.tensorboard import curves
from pacfl.errors import MissingLibraryError

if TYPE_CHECKING:
    from pacfl.experiment.store import RunFolder

Runs = Annotated[Path, typer.Option("--runs", help="Folder in which runs are kept.")]
DataFolder = Annotated[
    Path | None, typer.Option("--data", help="Folder with data sets. Default: $PACFL_DATA, or ./data.")
]


@app.command()
def run(
    file: Annotated[Path, typer.Argument(help="An experiment in TOML.")],
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Overrule a setting, as data.clients=20.")
    ] = None,
    workers: Annotated[
        int, typer.Option(min=1, help="Threads or processes that train clients. Results do not depend on it.")
    ] = os.cpu_count() or 1,
    engine: Annotated[
        str | None, typer.Option(help="How they train: native (compiled), eager (torch), auto (native if it can).")
    ] = None,
    backend: Annotated[
        Backend, typer.Option(help="Where clients live: here, or on Flower's simulation. Results do not depend on it.")
    ] = Backend.LOCAL,
    device: Annotated[
        str | None, typer.Option(help="Where clients train: cpu, cuda, ... Only the CPU was tried.")
    ] = None,
    runs: Runs = Path("runs"),
    data: DataFolder = None,
    tensorboard: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Also write what TensorBoard reads, into FOLDER/HASH.")
    ] = None,
    as_json: AsJson = False,
    as_csv: AsCsv = False,
) -> None:
    """Run an experiment: what is finished is not run again, what was interrupted goes on."""
    with _learning():
        from pacfl.experiment.config import evaluation, expand, read_table
        from pacfl.experiment.run import play
        from pacfl.experiment.store import folder_of
    chosen = [f"{key}={json.dumps(word)}" for key, word in (("engine", engine), ("device", device)) if word]
    table = read_table(file, (*(settings or ()), *chosen))
    asked, targets = expand(table), evaluation(table).targets
    folders = [folder_of(one, runs) for one in asked]
    diverged = []
    unfinished = [one for one, folder in zip(asked, folders, strict=True) if folder.result() is None]
    with reaching(backend, unfinished, workers) as reach, display(asked, quiet=as_json or as_csv) as show:
        for one, folder in zip(asked, folders, strict=True):
            with ExitStack() as open_files:
                shows: list[Callable[[Mapping[str, Any]], None]] = [partial(show, one)]
                if tensorboard:
                    shows.append(open_files.enter_context(curves(folder, tensorboard / one.hash)))
                message = _finish(folder, partial(play, one, folder, data, workers, reach=reach), shows)
            diverged += [f"{one.label()} seed {one.seed}: {message}"] if message else []
    _tell(_told(folders, runs, targets), f"{len(folders)} runs of {file}", as_json, as_csv)
    _warn_of_other_data(folders)
    for message in diverged:
        err.print(f"[bold red]error:[/] {escape(message)}", soft_wrap=True)
    if diverged:
        raise typer.Exit(1)


@app.command("ls")
def list_runs(runs: Runs = Path("runs"), as_json: AsJson = False) -> None:
    """List the runs that are kept."""
    with _learning():
        from pacfl.experiment.config import label
        from pacfl.experiment.store import all_folders
    rows = []
    for folder in all_folders(runs):
        content = folder.content() or {}
        rows.append(
            {
                "hash": folder.path.name,
                "algorithm": label(content["algorithm"]),
                "data": content["data"]["name"],
                "clients": content["data"]["clients"],
                "seed": content["seed"],
                "state": "finished" if folder.result() else f"{len(folder.records())} rounds",
            }
        )
    if as_json:
        for row in rows:
            print(json.dumps(row))
        return
    headings = ("hash", "algorithm", "data", "clients", "seed", "state")
    table = Table(*headings, title=f"{len(rows)} runs in {runs}")
    for row in rows:
        table.add_row(*(escape(str(row[key])) for key in headings))
    out.print(table)


@app.command()
def show(
    prefix: Annotated[str, typer.Argument(metavar="HASH", help="Of a run, or its beginning.")],
    runs: Runs = Path("runs"),
    target: Annotated[
        list[float] | None, typer.Option(min=0, max=1, help="A mean accuracy: when was it reached? May be repeated.")
    ] = None,
    as_json: AsJson = False,
    as_csv: AsCsv = False,
) -> None:
    """Show one run: its settings and what came of it. As CSV, a line for each round."""
    with _learning():
        from pacfl.errors import StoreError
        from pacfl.experiment.compare import alone, below_local, solo_runs
        from pacfl.experiment.export import as_csv as table_of
        from pacfl.experiment.store import all_folders
    folders = all_folders(runs)
    found = [folder for folder in folders if folder.path.name.startswith(prefix)]
    if len(found) != 1:
        raise StoreError(f"{len(found)} runs in {runs} begin with {prefix!r}; 'pacfl ls' lists them")
    folder = found[0]
    content, records, results = folder.content(), folder.records(), _told(found, runs, target or ())
    reference = alone(folder, solo_runs(folders))
    theirs = {} if reference is None else {record["round"]: record for record in reference.records()}
    for record in records:
        record["worse_than_alone"] = below_local(record, theirs.get(record["round"]))
    if as_json:
        print(json.dumps({"run": content, "result": results[0] if results else None, "rounds": records}))
    elif as_csv:
        print(table_of(records), end="")
    else:
        out.print_json(json.dumps(content))
        if results:
            _tell(results, str(folder.path))
        out.print(_rounds_table(records))


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
    table = Table("name", "what", "found", "how to get it", title=f"data sets in {where}")
    for entry in entries:
        found = f"{entry.n_train:,} + {entry.n_test:,} samples, {entry.format}" if entry.found else entry.problem or "-"
        table.add_row(*(escape(text) for text in (entry.name, entry.title, found, "" if entry.found else entry.how)))
    out.print(table)


def _finish(
    folder: "RunFolder",
    play: Callable[[], Iterator[dict[str, Any]]],
    shows: list[Callable[[Mapping[str, Any]], None]],
) -> str | None:
    """Play what is missing of a run, showing every record; if it diverges, what is to be said of it."""
    from pacfl.errors import DivergedError
    from pacfl.experiment.store import played

    try:
        for record in played(folder, play):
            for show in shows:
                show(record)
    except DivergedError as error:
        return str(error)
    return None


def _told(folders: "list[RunFolder]", runs: Path, targets: Any) -> list[dict[str, Any]]:
    from pacfl.experiment.compare import solo_runs, told
    from pacfl.experiment.store import all_folders

    solo = solo_runs(all_folders(runs))
    results = (told(folder, solo, targets) for folder in folders)
    return [result for result in results if result is not None]


def _warn_of_other_data(folders: "list[RunFolder]") -> None:
    """Runs that should have the same data may have been played before and after somebody changed the files."""
    from pacfl.experiment.store import data_digest

    played_on: dict[tuple[str, Any], dict[str | None, str]] = {}
    for folder in folders:
        content = folder.content() or {}
        key = (json.dumps(content.get("data"), sort_keys=True), content.get("seed"))
        played_on.setdefault(key, {}).setdefault(data_digest(folder), folder.path.name)
    for names in played_on.values():
        if len(names) > 1:
            listed = ", ".join(names.values())
            err.print(
                f"[bold yellow]warning:[/] runs {listed} were played on different data of one name; "
                "compare them only after running all on the same (--data), in a folder of their own (--runs)",
                soft_wrap=True,
            )


def _tell(results: list[dict[str, Any]], title: str, as_json: bool = False, as_csv: bool = False) -> None:
    if as_json:
        for result in results:
            print(json.dumps(result))
    elif as_csv:
        from pacfl.experiment.export import as_csv as table_of

        print(table_of(results), end="")
    elif results:
        out.print(results_table(results, title))
        if newcomers := [result for result in results if "newcomers" in result]:
            out.print(newcomers_table(newcomers))
        if "to_target" in results[0]:
            out.print(targets_table(results))


def _rounds_table(records: list[dict[str, Any]]) -> Table:
    from pacfl.experiment.summary import megabits_per_client

    table = Table(title=f"{len(records)} rounds")
    for heading in ("round", "clusters", "received", "last-trained", "personal", "Mb per client"):
        table.add_column(heading, justify="right")
    for i, record in enumerate(records):
        if "accuracy" in record:
            scores = (percent(record["accuracy"].get(p)) for p in ("received", "last_trained", "personal"))
            sent = f"{megabits_per_client(records[: i + 1]):.1f}"
            table.add_row(str(record["round"]), str(record["clusters"]), *scores, sent)
    return table


@contextmanager
def _learning() -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] == "torch":
            raise MissingLibraryError("training needs torch: pip install 'pacfl[learning]'") from None
        raise
