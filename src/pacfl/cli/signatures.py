"""Signatures and federations of files: sign, inspect, cluster, join, explain, demo."""

import json
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.markup import escape

from pacfl.cli.console import AsJson, app, note, out
from pacfl.cli.federation_display import print_federation, print_joined, print_left, print_replaced
from pacfl.cli.shared_options import sharing
from pacfl.cli.signature_display import print_explanation, print_signature, progress_bars
from pacfl.cli.signature_options import (
    AS_OTHERS_HAVE,
    OF_ONE_CLIENT,
    Classes,
    DataOptions,
    Key,
    Pictures,
    class_list,
    data_options,
    degrees_of,
)
from pacfl.cli.store import cluster_in_store, join_to_store
from pacfl.errors import DataError, MissingLibraryError
from pacfl.features.images import SkippedWarning
from pacfl.folders import Kind, is_store, required
from pacfl.signatures import (
    cluster_files,
    figures,
    join_files,
    leave_federation,
    replace_file,
    sigfile,
    sign_file,
    write_key,
)
from pacfl.signatures import demo as digits
from pacfl.signatures.keying import unkeyed_federation
from pacfl.signatures.keys import read_key
from pacfl.subspace import Compare, Linkage, Measure, Method

NO_SIGNATURES: Final[Mapping[Kind, str]] = dict.fromkeys(("run", "runs"), "runs store no signatures")


@app.command()
@sharing(data_options, "how")
def sign(
    data: Annotated[
        Path, typer.Argument(help=".npy, .npz, .csv, .parquet, .txt, .jsonl, or a folder of images or texts.")
    ],
    output: Annotated[Path, typer.Option("-o", "--output", help="The signature file to write, NAME.sig.")],
    how: DataOptions,
    epsilon: Annotated[
        float | None, typer.Option(help="Hide every single sample, with this epsilon of differential privacy.")
    ] = None,
    delta: Annotated[
        float | None, typer.Option(help="Far below 1 / number of samples. [default: 1e-05]", show_default=False)
    ] = None,
    classes: Classes = None,
    key: Key = None,
    as_json: AsJson = False,
) -> None:
    """Write the signature of your data: the one small file that you share."""
    with warnings.catch_warnings(record=True) as caught, progress_bars() as advance:
        warnings.simplefilter("always", UserWarning)
        signature = sign_file(
            data,
            output,
            rank=how.rank,
            reading=how.reading,
            epsilon=epsilon,
            delta=delta,
            classes=class_list(classes),
            key=key,
            on_progress=advance,
        )
    size = output.stat().st_size
    if as_json:
        out.print_json(json.dumps({"file": str(output), "bytes": size, **_left_out(caught), **signature.contents()}))
    else:
        print_signature(signature, f"{output} ({size:,} bytes)")
    if signature.basis.shape[1] < signature.rank:
        note(f"{signature.rank} directions were asked for, the data have {signature.basis.shape[1]}")
    _notes(caught)


@app.command()
def key(
    file: Annotated[Path, typer.Argument(help="The file to make.")],
    as_json: AsJson = False,
) -> None:
    """Make a key that all clients share and the server does not have, for `pacfl sign --key` and `--hash-labels`."""
    made = write_key(file)
    if as_json:
        out.print_json(json.dumps({"file": str(file), "key": made}))
        return
    out.print(f"{escape(str(file))}: key {made}, readable by you only.", highlight=False, soft_wrap=True)
    out.print(
        "Give it to all clients over a channel that the server cannot read. Whoever has it sees directions, and can "
        "test guesses of hashed names.",
        highlight=False,
    )


@app.command()
def inspect(file: Annotated[Path, typer.Argument(help="A signature file.")], as_json: AsJson = False) -> None:
    """Show what is in a signature file."""
    signature = sigfile.read(file)
    if as_json:
        out.print_json(json.dumps({"file": str(file), **signature.contents()}))
    else:
        print_signature(signature, str(file))


@app.command()
@sharing(data_options, "how", without=OF_ONE_CLIENT)
def cluster(
    files: Annotated[
        list[Path], typer.Argument(help="Signature files, or data files, one for each client; or a store.")
    ],
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Folder to store the federation in.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the federation that is in the folder.")] = False,
    threshold: Annotated[str, typer.Option(metavar="auto|DEGREES", help="Where to cut the dendrogram.")] = "auto",
    clusters: Annotated[int | None, typer.Option(min=1, metavar="K", help="Cut into K clusters instead.")] = None,
    compare: Annotated[
        Compare,
        typer.Option(help="The same classes, all inputs, or classes where clients share labelled ones (auto)."),
    ] = "auto",
    measure: Annotated[
        Measure | None,
        typer.Option(help="Of the angles between two signatures. Default: smallest, or sum where that is always 0."),
    ] = None,
    linkage: Annotated[Linkage, typer.Option(help="Between clusters.")] = "average",
    method: Annotated[
        Method, typer.Option(help="Of a store: all pairs, landmarks, or landmarks beyond 5,000 clients (auto).")
    ] = "auto",
    pictures: Pictures = None,
    *,
    how: DataOptions,
    as_json: AsJson = False,
) -> None:
    """Cluster clients by their data, and show the evidence for the clusters."""
    if len(files) == 1 and is_store(files[0]):
        cluster_in_store(files[0], measure, method, as_json)
        return
    if method != "auto":
        raise DataError("--method: is for a store of signatures, which 'pacfl store add' makes; leave it out")
    with warnings.catch_warnings(record=True) as caught, progress_bars() as advance:
        warnings.simplefilter("always", UserWarning)
        federation = cluster_files(
            files,
            rank=how.rank,
            reading=how.reading,
            compare=compare,
            measure=measure,
            linkage=linkage,
            threshold=degrees_of(threshold),
            clusters=clusters,
            output=output,
            force=force,
            pictures=pictures if output is None else _drawable(pictures),
            on_progress=advance,
        )
    print_federation(federation, output, as_json, _left_out(caught))
    _notes(caught)


@app.command()
@sharing(data_options, "how", without=AS_OTHERS_HAVE)
def join(
    folder: Annotated[Path, typer.Argument(help="Folder of a federation, made by 'pacfl cluster', or a store.")],
    files: Annotated[list[Path], typer.Argument(help="Signature or data files of newcomers.")],
    pictures: Pictures = None,
    *,
    how: DataOptions,
    as_json: AsJson = False,
) -> None:
    """Assign newcomers to clusters. No other client moves."""
    if is_store(folder):
        join_to_store(folder, files, as_json)
        return
    with warnings.catch_warnings(record=True) as caught, progress_bars() as advance:
        warnings.simplefilter("always", UserWarning)
        joined = join_files(folder, files, reading=how.reading, pictures=_drawable(pictures), on_progress=advance)
    print_joined(joined, folder, as_json, _left_out(caught))
    _notes(caught)


@app.command()
def leave(
    folder: Annotated[Path, typer.Argument(metavar="FEDERATION", help="Folder made by 'pacfl cluster'.")],
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="Clients that leave, by their names.")],
    pictures: Pictures = None,
    as_json: AsJson = False,
) -> None:
    """Remove clients. No other client moves, and clusters have the same numbers."""
    leaving = list(dict.fromkeys(names))
    with progress_bars():
        found = leave_federation(folder, leaving, pictures=_drawable(pictures))
    print_left(found, leaving, folder, as_json)


@app.command()
def replace(
    folder: Annotated[Path, typer.Argument(metavar="FEDERATION", help="Folder made by 'pacfl cluster'.")],
    file: Annotated[Path, typer.Argument(metavar="NAME.sig", help="The new signature of the client NAME.")],
    move: Annotated[bool, typer.Option("--move", help="If it drifted, move it to the cluster that fits now.")] = False,
    pictures: Pictures = None,
    as_json: AsJson = False,
) -> None:
    """Replace the signature of a client, and say whether its data drifted. No other client moves."""
    with progress_bars():
        found = replace_file(folder, file, move=move, pictures=_drawable(pictures))
    print_replaced(found, folder, as_json)


@app.command()
def explain(
    folder: Annotated[
        Path, typer.Argument(metavar="FEDERATION", help="Folder of clusters, of a server, or of a deployment.")
    ],
    a: Annotated[str, typer.Argument(help="A client, by its name; with --clusters, a cluster, by its number.")],
    b: Annotated[str, typer.Argument(help="Another one.")],
    clusters: Annotated[bool, typer.Option("--clusters", help="A and B are numbers of clusters.")] = False,
    key: Annotated[
        Path | None, typer.Option("--key", metavar="KEYFILE", help="Where directions are keyed: the clients' key.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Say why two clients, or two clusters, differ: which features and classes, and how far above noise."""
    known = required(folder, "explain", "clusters", "server", "deployment", why=NO_SIGNATURES)
    with progress_bars():
        from pacfl.experiment.federations import federation_in

        federation = federation_in(known) if key is None else unkeyed_federation(federation_in(known), read_key(key))
        found = federation.explain(a, b, "clusters" if clusters else "clients")
    print_explanation(found, known, as_json)


@app.command()
def demo(
    folder: Annotated[Path, typer.Argument(help="Folder to put the demonstration in.")] = Path("pacfl-demo"),
    as_json: AsJson = False,
) -> None:
    """Twenty clients with handwritten digits in four styles, and a newcomer."""
    data, signatures, stored = folder / "data", folder / "signatures", folder / "federation"
    for part in (data, signatures):
        part.mkdir(parents=True, exist_ok=True)
    paths, newcomer = digits.write_clients(data)
    files = [signatures / f"{path.stem}.sig" for path in (*paths, newcomer)]
    for path, file in zip((*paths, newcomer), files, strict=True):
        sign_file(path, file)
    pictures = _drawable(None)
    with progress_bars() as advance:
        federation = cluster_files(files[:-1], output=stored, force=True, pictures=pictures, on_progress=advance)
        joined = join_files(stored, files[-1:], pictures=pictures)
    if not as_json:
        out.print(f"20 clients sign their data; {signatures}/*.sig is all they share:", highlight=False)
        print_federation(federation, stored, as_json)
        out.print("\nA newcomer sends its signature and is assigned to a cluster:", highlight=False)
    print_joined(joined, stored, as_json)


def _drawable(pictures: figures.Picture | None) -> figures.Picture | None:
    """The format to draw in, or None, with a note, where matplotlib is missing."""
    try:
        figures.check_library()
    except MissingLibraryError as error:
        note(str(error))
        return None
    return pictures or "svg"


def _left_out(caught: Sequence[warnings.WarningMessage]) -> dict[str, list[str]]:
    """Files that could not be read, for JSON; nothing where there are none."""
    messages = [warning.message for warning in caught]
    files = [file for message in messages if isinstance(message, SkippedWarning) for file in message.files]
    return {"left_out": files} if files else {}


def _notes(caught: Sequence[warnings.WarningMessage]) -> None:
    for warning in caught:
        note(str(warning.message))
