"""Who is alike: sign, inspect, cluster, join, demo."""

import json
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray
from rich.markup import escape

from pacfl.cli.console import AsJson, app, err, out, progress_bar
from pacfl.cli.signature_display import print_contents, print_federation
from pacfl.cli.signature_options import (
    ArrayName,
    Drop,
    Grey,
    PerClass,
    Prepare,
    Rank,
    Resize,
    degrees_of,
    reading,
    reading_as,
)
from pacfl.errors import DataError, MissingLibraryError
from pacfl.files import locked
from pacfl.signatures import demo as digits
from pacfl.signatures import federation as federations
from pacfl.signatures import figures, sigfile, signing
from pacfl.signatures.federation import Federation
from pacfl.signatures.reading import Reading
from pacfl.signatures.sigfile import SignatureFile
from pacfl.subspace import Linkage, Measure, MergeSuggestion, proximity
from pacfl.subspace import cluster as cluster_proximity


@app.command()
def sign(
    data: Annotated[Path, typer.Argument(help=".npy, .npz, .csv, .parquet, or a folder of images.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="The signature file to write, NAME.sig.")],
    rank: Rank = 3,
    per_class: PerClass = None,
    preprocess: Prepare = "raw",
    array: ArrayName = None,
    drop: Drop = None,
    resize: Resize = None,
    grey: Grey = False,
    epsilon: Annotated[
        float | None, typer.Option(help="Hide every single sample, with this epsilon of differential privacy.")
    ] = None,
    delta: Annotated[
        float | None, typer.Option(help="Far below 1 / number of samples. [default: 1e-05]", show_default=False)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Make the signature of your data, at home: the one small file that you share."""
    how = reading(array, per_class, drop, resize, grey, preprocess)
    if output.suffix != ".sig":
        raise DataError(f"{output}: a signature file is named NAME.sig, and NAME is what others will know you by")
    if epsilon is None and delta is not None:
        raise DataError("--delta belongs to a guarantee of privacy; give --epsilon too")
    if epsilon is None:
        signature = signing.sign(data, rank, how)
    else:
        signature = signing.sign_privately(data, rank, how, epsilon, 1e-5 if delta is None else delta)
    size = sigfile.write(output, signature)
    if as_json:
        out.print_json(json.dumps({"file": str(output), "bytes": size, **signature.contents()}))
        return
    print_contents(signature, f"{output} ({size:,} bytes)")
    if signature.basis.shape[1] < rank:
        err.print(f"note: {rank} directions were asked for, the data have {signature.basis.shape[1]}")


@app.command()
def inspect(file: Annotated[Path, typer.Argument(help="A signature file.")], as_json: AsJson = False) -> None:
    """Say what is in a signature file."""
    signature = sigfile.read(file)
    if as_json:
        out.print_json(json.dumps({"file": str(file), **signature.contents()}))
    else:
        print_contents(signature, str(file))


@app.command()
def cluster(
    files: Annotated[list[Path], typer.Argument(help="Signature files, or data files, one for each client.")],
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Folder to keep the federation in.")] = None,
    threshold: Annotated[str, typer.Option(metavar="auto|DEGREES", help="Where to cut.")] = "auto",
    clusters: Annotated[int | None, typer.Option(min=1, metavar="K", help="Cut into K clusters instead.")] = None,
    measure: Annotated[
        Measure | None,
        typer.Option(help="Of the angles between two signatures. Default: smallest, or sum where that cannot differ."),
    ] = None,
    linkage: Annotated[Linkage, typer.Option(help="Between clusters.")] = "average",
    pictures: Annotated[figures.Picture, typer.Option(help="Format of the pictures.")] = "svg",
    rank: Rank = 3,
    per_class: PerClass = None,
    preprocess: Prepare = "raw",
    array: ArrayName = None,
    drop: Drop = None,
    resize: Resize = None,
    grey: Grey = False,
    as_json: AsJson = False,
) -> None:
    """Find out who is alike, and why one may think so."""
    how = reading(array, per_class, drop, resize, grey, preprocess)
    degrees = degrees_of(threshold)
    if degrees is not None and clusters is not None:
        raise DataError("give either --threshold or --clusters, not both")
    clients = _open_clients(files, rank, how)
    if clusters is not None and clusters > len(clients):
        raise DataError(f"--clusters {clusters} is more than there are clients, {len(clients)}")
    measure = measure or _usual_measure(clients)
    own = federations.own_angles(clients, measure)
    bases = [client.basis for client in clients.values()]
    clustering = cluster_proximity(
        _compared(clients, measure), own, measure, linkage, degrees, clusters, signatures=bases
    )
    federation = federations.found(clients, clustering)
    if output is not None:
        _check_output_folder(output)
        output.mkdir(parents=True, exist_ok=True)
        with locked(output):
            federations.save(federation, output)
            _draw(federation, output, pictures)
    print_federation(federation, output, as_json)


@app.command()
def join(
    folder: Annotated[Path, typer.Argument(help="Folder of a federation, made by 'pacfl cluster'.")],
    files: Annotated[list[Path], typer.Argument(help="Signature or data files of newcomers.")],
    pictures: Annotated[figures.Picture, typer.Option(help="Format of the pictures.")] = "svg",
    array: ArrayName = None,
    drop: Drop = None,
    as_json: AsJson = False,
) -> None:
    """Give newcomers a cluster. Nobody else moves."""
    if not folder.is_dir():
        raise DataError(f"{folder}: there is no such folder; make one with 'pacfl cluster ... -o {folder}'")
    with locked(folder):
        before = federations.load(folder)
        newcomers = _open_clients(files, before.how["rank"], reading_as(before, array, drop))
        _check_made_as(before, newcomers)
        after, bridges = federations.joined(before, newcomers)
        federations.save(after, folder)
        _draw(after, folder, pictures)
    labels = dict(zip(after.names, after.clustering.labels.tolist(), strict=True))
    opened = [k for k in sorted({labels[name] for name in newcomers}) if k > int(before.clustering.labels.max())]
    if as_json:
        placed = {name: labels[name] for name in newcomers}
        suggestions = [_suggestion(bridge, list(newcomers)) for bridge in bridges]
        print(json.dumps({"placed": placed, "opened": opened, "bridges": suggestions, **after.summary()}))
        return
    for name in newcomers:
        news = "opens cluster" if labels[name] in opened else "joins cluster"
        out.print(f"{escape(name)} {news} {labels[name]}", highlight=False)
    for bridge in bridges:
        a, b = bridge.clusters
        name = list(newcomers)[bridge.newcomer]
        out.print(f"suggestion: {escape(name)} is close to clusters {a} and {b}; merge them?", highlight=False)
    out.print(
        f"{len(after.names)} clients in {len(after.clusters())} clusters, kept in {escape(str(folder))}",
        highlight=False,
    )


@app.command()
def demo(
    folder: Annotated[Path, typer.Argument(help="Folder to put the demonstration in.")] = Path("pacfl-demo"),
) -> None:
    """Twenty clients with handwritten digits, written in four ways, and a newcomer."""
    clients, sites = folder / "data", folder / "signatures"
    for part in (clients, sites):
        part.mkdir(parents=True, exist_ok=True)
    paths, newcomer = digits.write_clients(clients)
    out.print(f"20 clients sign their data at home, {sites}/*.sig is all they share:", highlight=False)
    files = []
    for path in [*paths, newcomer]:
        files.append(sites / f"{path.stem}.sig")
        sigfile.write(files[-1], signing.sign(path, 3, Reading()))
    cluster(files[:-1], output=folder / "federation")
    out.print("\nA newcomer sends its signature and gets a cluster at once:", highlight=False)
    join(folder / "federation", files[-1:])


def _open_clients(files: list[Path], rank: int, how: Reading) -> dict[str, SignatureFile]:
    names = signing.client_names(files)
    with progress_bar("reading", len(files)) as advance:
        clients = {}
        for name, path in zip(names, files, strict=True):
            clients[name] = signing.open_client(path, rank, how)
            advance(1)
    signing.check_comparable(clients)
    return clients


def _compared(clients: dict[str, SignatureFile], measure: Measure) -> NDArray[np.float64]:
    with progress_bar("comparing", len(clients)) as advance:
        return proximity([client.basis for client in clients.values()], measure, on_rows=advance)


def _usual_measure(clients: dict[str, SignatureFile]) -> Measure:
    """`smallest`, but for spaces so small that any two signatures share a direction."""
    features = next(iter(clients.values())).basis.shape[0]
    directions = max(client.basis.shape[1] for client in clients.values())
    return "sum" if 2 * directions > features else "smallest"


def _draw(federation: Federation, folder: Path, kind: figures.Picture) -> None:
    try:
        figures.draw(federation, folder, kind)
    except MissingLibraryError as error:
        err.print(f"note: {escape(str(error))}")


def _check_made_as(federation: Federation, newcomers: dict[str, SignatureFile]) -> None:
    for name, client in newcomers.items():
        made = {"preprocess": client.preprocess, "per_class": client.per_class, "protection": client.protection}
        for key, value in made.items():
            if value != federation.how[key]:
                raise DataError(
                    f"{name}: was signed with {key} = {value}, the federation with {federation.how[key]}; "
                    "sign again with the same options"
                )


def _check_output_folder(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise DataError(f"{folder}: is a file; name a folder")
    ours = {
        federations.STATE,
        federations.SUMMARY,
        *(f"{p}.{k}" for p in ("dendrogram", "heatmap") for k in figures.PICTURES),
    }
    foreign = sorted(p.name for p in folder.iterdir() if p.name not in ours) if folder.exists() else []
    if foreign:
        raise DataError(f"{folder}: holds other files ({', '.join(foreign[:3])}); name a new folder")


def _suggestion(bridge: MergeSuggestion, names: list[str]) -> dict[str, Any]:
    return {"client": names[bridge.newcomer], "clusters": bridge.clusters, "distances": bridge.distances}
