"""Experiments: run, ls, show, data."""

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich import box
from rich.markup import escape
from rich.table import Table

from pacfl.cli.backends import BackendName, backend_of
from pacfl.cli.console import AsCsv, AsJson, app, err, out
from pacfl.cli.display import count, display, run_names
from pacfl.cli.federation_display import print_federation, print_server
from pacfl.cli.result_tables import (
    cell,
    metrics_table,
    newcomers_table,
    results_table,
    settings_cells,
    settings_headings,
    targets_table,
)
from pacfl.cli.signature_display import progress_bars
from pacfl.cli.tensorboard import curves
from pacfl.errors import DataError, DivergedError, StoreError, lacking
from pacfl.experiment.compare import below_local, load_result, local_baseline, solo_runs
from pacfl.experiment.csv_tables import as_csv as table_of
from pacfl.experiment.store import RunFolder, all_folders, data_digest, folder_of
from pacfl.experiment.summary import label, megabits_per_client, metric_of, scores
from pacfl.experiment.swept import beside_label, swept_settings
from pacfl.experiment.tested_on import choose, kinds, on_test
from pacfl.folders import WORDS, Folder, Kind, recognise, required
from pacfl.signatures import load_federation

if TYPE_CHECKING:
    pass

FEDERATIONS: Final[tuple[Kind, ...]] = ("clusters", "server", "deployment")
Runs = Annotated[Path, typer.Option("--runs", help="Folder in which runs are stored.")]
DataFolder = Annotated[
    Path | None, typer.Option("--data", help="Folder with data sets. Default: $PACFL_DATA, or ./data.")
]


@app.command()
def run(
    file: Annotated[Path, typer.Argument(help="An experiment in TOML.")],
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override a setting, as data.clients=20.")
    ] = None,
    workers: Annotated[
        int, typer.Option(min=1, help="Threads or processes that train clients. Results do not depend on it.")
    ] = os.cpu_count() or 1,
    engine: Annotated[
        str | None, typer.Option(help="How they train: native (compiled), eager (torch), auto (native if it can).")
    ] = None,
    backend: Annotated[
        BackendName,
        typer.Option(help="Where clients run: here, or on Flower's simulation. Results do not depend on it."),
    ] = BackendName.LOCAL,
    device: Annotated[
        str | None, typer.Option(help="Where clients train: cpu, cuda, ... Only the CPU was tried.")
    ] = None,
    runs: Runs = Path("runs"),
    data: DataFolder = None,
    rerun: Annotated[bool, typer.Option("--rerun", help="Run again, and replace stored results.")] = False,
    no_models: Annotated[
        bool, typer.Option("--no-models", help="Store results only, not the models that were trained.")
    ] = False,
    tensorboard: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Also write what TensorBoard reads, into FOLDER/HASH.")
    ] = None,
    dashboard: Annotated[
        bool, typer.Option("--dashboard", help="Serve a page on 127.0.0.1 that shows rounds and results so far.")
    ] = False,
    as_json: AsJson = False,
    as_csv: AsCsv = False,
) -> None:
    """Run an experiment: finished runs are not run again, interrupted ones are resumed."""
    with needs_torch():
        from pacfl.experiment.config import evaluation, expand, read_table
        from pacfl.experiment.run import resume
    chosen = [f"{key}={json.dumps(word)}" for key, word in (("engine", engine), ("device", device)) if word]
    table = read_table(file, (*(settings or ()), *chosen))
    experiment, targets = expand(table), evaluation(table).targets
    folders = [folder_of(one, runs) for one in experiment]
    pairs = list(zip(experiment, folders, strict=True))
    unfinished = [one for one, folder in pairs if rerun or folder.result() is None]
    diverged = []
    served = _dashboard(folders, file.stem) if dashboard else nullcontext()
    with (
        served,
        backend_of(backend, unfinished, workers) as where,
        display(experiment, quiet=as_json or as_csv) as show,
    ):
        for one, folder in pairs:
            with ExitStack() as open_files:
                shows: list[Callable[[Mapping[str, Any]], None]] = [partial(show, one)]
                if tensorboard:
                    shows.append(open_files.enter_context(curves(folder, tensorboard / one.hash)))
                try:
                    for record in resume(one, folder, data, where, rerun=rerun, models=not no_models):
                        for show_record in shows:
                            show_record(record)
                except DivergedError as error:
                    diverged.append(f"{run_names(experiment)[one.hash]} seed {one.seed}: {error}")
    _print_results(_results(folders, runs, targets), f"{count(len(folders), 'run')} of {file}", as_json, as_csv)
    _warn_of_other_data(folders)
    for message in diverged:
        err.print(f"[bold red]error:[/] {escape(message)}", soft_wrap=True)
    if diverged:
        raise typer.Exit(1)


@app.command("ls")
def list_runs(runs: Runs = Path("runs"), as_json: AsJson = False) -> None:
    """List the stored runs."""
    if recognise(runs) is not None:  # or nothing has run yet
        required(runs, "ls", "runs")
    rows = []
    folders = all_folders(runs)
    contents = [folder.content() or {} for folder in folders]
    for folder, content, settings in zip(folders, contents, swept_settings(contents), strict=True):
        rows.append(
            {
                "hash": folder.path.name,
                "algorithm": label(content["algorithm"], content.get("aggregation", {})),
                "data": content["data"]["name"],
                "clients": content["data"]["clients"],
                "seed": content["seed"],
                "state": "finished" if folder.result() else f"{len(folder.records())} rounds",
                "settings": settings,
            }
        )
    if as_json:
        for row in rows:
            print(json.dumps(row))
        return
    first, last = ("hash", "algorithm", "data", "clients"), ("seed", "state")
    paths = beside_label([row["settings"] for row in rows], besides=("data.name", "data.clients"))
    table = Table(title=f"{count(len(rows), 'run')} in {runs}", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for heading in (*first, *settings_headings(paths), *last):
        table.add_column(escape(heading), no_wrap=heading in ("hash", "state"), overflow="fold")
    for row in rows:
        named, then = ([escape(str(row[key])) for key in keys] for keys in (first, last))
        table.add_row(*named, *settings_cells(row["settings"], paths), *then)
    out.print(table)


@app.command()
def show(
    prefix: Annotated[
        str,
        typer.Argument(
            metavar="HASH|FOLDER",
            help="Hash of a run, or its beginning; or the folder of a run, of clusters, of a server, of a deployment.",
        ),
    ],
    runs: Runs = Path("runs"),
    target: Annotated[
        list[float] | None,
        typer.Option(min=0, help="A mean of the primary metric, as 0.8: when was it reached? May be repeated."),
    ] = None,
    test: Annotated[
        str | None,
        typer.Option(help="Show scores on this kind of test samples, as proportional, if the run has several."),
    ] = None,
    as_json: AsJson = False,
    as_csv: AsCsv = False,
) -> None:
    """Show a run: its settings, results and versions (as CSV, a line for each round), or a federation: its clusters."""
    known = recognise(Path(prefix))
    if known is not None and known.kind in FEDERATIONS:
        given = [name for name, value in (("--target", target), ("--test", test), ("--csv", as_csv)) if value]
        if given:
            raise DataError(f"{given[0]}: is for runs, and {prefix} is {WORDS[known.kind]}; leave it out")
        _show_federation(known, as_json)
        return
    runs = runs if known is None else required(Path(prefix), "show", "run", *FEDERATIONS).path.absolute().parent
    folders = all_folders(runs)
    name = prefix if known is None else Path(prefix).resolve().name
    found = [folder for folder in folders if folder.path.name.startswith(name)]
    if len(found) != 1:
        here = f"{prefix}: is no folder of a federation or of a run, and " if not found else ""
        raise StoreError(f"{here}{count(len(found), 'run')} in {runs} match {prefix!r}; 'pacfl ls' lists all")
    folder = found[0]
    content = folder.content() or {}
    kind = choose(content, test)
    records = [on_test(record, kind) for record in folder.records()]
    results = [on_test(result, kind) for result in _results(found, runs, target or (), among_all=True)]
    environment = folder.description("environment")
    baseline = local_baseline(folder, solo_runs(folders))
    theirs = {} if baseline is None else {record["round"]: record for record in baseline.records()}
    for record in records:
        base = theirs.get(record["round"])
        record["worse_than_alone"] = below_local(record, None if base is None else on_test(base, kind))
        for other, scored in record.get("tests", {}).items():
            scored["worse_than_alone"] = below_local(record, base, other)
    if as_json:
        result = results[0] if results else None
        print(
            json.dumps({"kind": "run", "run": content, "environment": environment, "result": result, "rounds": records})
        )
    elif as_csv:
        print(table_of(records), end="")
    else:
        out.print_json(json.dumps(content))
        if environment:
            out.print("run with " + ", ".join(f"{name} {version}" for name, version in environment.items()))
        if results:
            several = len(kinds(content)) > 1
            _print_results(results, f"{folder.path}, {test} test samples" if several and test else str(folder.path))
        out.print(_rounds_table(records))


def _show_federation(folder: Folder, as_json: bool) -> None:
    if folder.kind == "clusters":
        with progress_bars():
            found = load_federation(folder.path)
        print_federation(found, None, as_json)
        if not as_json:
            out.print(f"In {folder}", soft_wrap=True, markup=False, highlight=False)
        return
    from pacfl.experiment.federations import server_federation

    print_server(server_federation(folder), as_json)


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
    with progress_bars():
        entries = catalogue(where)
    if as_json:
        print(json.dumps([{**asdict(entry), "found": entry.found} for entry in entries], default=str))
        return
    table = Table("name", "what", "found", title=f"data sets in {where}")
    table.add_column("how to get it", overflow="fold")  # commands and addresses are copied: no letter may be cut
    for entry in entries:
        found = f"{entry.n_train:,} + {entry.n_test:,} samples, {entry.format}" if entry.found else entry.problem or "-"
        natural = f"{entry.kind}, {entry.clients}: " if entry.clients else ""
        what = natural + entry.title + (f" ({entry.licence})" if entry.licence else "")
        table.add_row(*(escape(text) for text in (entry.name, what, found, "" if entry.found else entry.how)))
    out.print(table)


@contextmanager
def _dashboard(folders: list[RunFolder], name: str) -> Iterator[None]:
    """A page about runs, for as long as they are computed."""
    from pacfl.report.watching import serving_runs

    with serving_runs([folder.path for folder in folders], name) as url:
        err.print(f"dashboard: {url}", highlight=False)
        yield


def _results(folders: list[RunFolder], runs: Path, targets: Any, *, among_all: bool = False) -> list[dict[str, Any]]:
    """Results of runs, each with its values of the settings in which these runs differ, or all in the folder."""
    everything = all_folders(runs)
    solo, listed = solo_runs(everything), everything if among_all else folders
    swept = swept_settings([folder.content() or {} for folder in listed])
    settings = {folder.path.name: own for folder, own in zip(listed, swept, strict=True)}
    results = ((load_result(folder, solo, targets), settings[folder.path.name]) for folder in folders)
    return [{**result, "settings": own} for result, own in results if result is not None]


def _warn_of_other_data(folders: list[RunFolder]) -> None:
    """Runs that should have the same data may have been run before and after somebody changed the files."""
    used: dict[tuple[str, Any], dict[str | None, str]] = {}
    for folder in folders:
        content = folder.content() or {}
        key = (json.dumps(content.get("data"), sort_keys=True), content.get("seed"))
        used.setdefault(key, {}).setdefault(data_digest(folder), folder.path.name)
    for names in used.values():
        if len(names) > 1:
            listed = ", ".join(names.values())
            err.print(
                f"[bold yellow]warning:[/] runs {listed} were run on different data of one name; "
                "compare them only after running all on the same (--data), in a folder of their own (--runs)",
                soft_wrap=True,
            )


def _print_results(results: list[dict[str, Any]], title: str, as_json: bool = False, as_csv: bool = False) -> None:
    if as_json:
        for result in results:
            print(json.dumps(result))
    elif as_csv:
        print(table_of(results), end="")
    else:
        for metric in dict.fromkeys(map(metric_of, results)):
            of_metric = [result for result in results if metric_of(result) == metric]
            primary = sorted({result["test"] for result in of_metric if "tests" in result})
            _print_tables(of_metric, f"{title}, {' or '.join(primary)} test samples" if primary else title)
            for kind in dict.fromkeys(kind for result in of_metric for kind in result.get("tests", {})):
                of_kind = [on_test(result, kind) for result in of_metric if kind in result.get("tests", {})]
                _print_tables(of_kind, f"{title}, {kind} test samples")


def _print_tables(results: list[dict[str, Any]], title: str) -> None:
    """Of results with one primary metric."""
    out.print(results_table(results, title, out.width))
    if any("metrics" in result for result in results):
        out.print(metrics_table(results))
    if newcomers := [result for result in results if "newcomers" in result]:
        out.print(newcomers_table(newcomers))
    if "to_target" in results[0]:
        out.print(targets_table(results))


def _rounds_table(records: list[dict[str, Any]]) -> Table:
    norms = any("update_norms" in record for record in records)
    table = Table(
        title=count(sum(bool(record["sampled"]) for record in records), "round"),
        caption="norms: of the mean update and of the largest, by cluster; CFL compares them with eps1 and eps2"
        if norms
        else None,
    )
    headings = ("round", "clusters", "received", "last-trained", "personal", "Mb per client")
    for heading in (*headings, *(["norms"] if norms else [])):
        table.add_column(heading, justify="right")
    for i, record in enumerate(records):
        if scores(record):
            metric = metric_of(record)
            cells = (cell(scores(record).get(p), metric) for p in ("received", "last_trained", "personal"))
            sent = f"{megabits_per_client(records[: i + 1]):.1f}"
            when = str(record["round"]) if record["sampled"] else "end"
            row = (when, _or_dash(record["clusters"]), *cells, sent)
            table.add_row(*row, *([_norms(record.get("update_norms", {}))] if norms else []))
    return table


def _norms(norms: Mapping[str, Mapping[str, float]]) -> str:
    return "; ".join(f"{k}: {of['mean']:.3g}, {of['largest']:.3g}" for k, of in norms.items())


def _or_dash(value: object) -> str:
    return "-" if value is None else str(value)


@contextmanager
def needs_torch() -> Iterator[None]:
    """A clear error where torch is not installed."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise lacking(error, "training", "learning") from None
