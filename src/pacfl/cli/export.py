"""Models as files: export, predict."""

import json
from pathlib import Path
from typing import Annotated

import typer

from pacfl.cli.console import AsJson, app, out
from pacfl.cli.display import count
from pacfl.cli.experiments import DataFolder, Runs, needs_torch
from pacfl.cli.shared_options import sharing
from pacfl.cli.signature_display import progress_bars
from pacfl.cli.signature_options import OF_SIGNATURES, DataOptions, data_options
from pacfl.errors import DataError
from pacfl.exporting.formats import FormatName
from pacfl.folders import recognise

Output = Annotated[Path, typer.Option("-o", "--output", help="The folder to write, new or empty.")]


@app.command()
def export(
    run: Annotated[
        str, typer.Argument(help="Folder of a run, of a server or of a deployment, or the beginning of a run's hash.")
    ],
    output: Output,
    format: Annotated[  # noqa: A002 - the name of the option
        FormatName,
        typer.Option(
            help="torch: .pt2 for PyTorch. onnx: for onnxruntime. Both take raw samples. safetensors: weights."
        ),
    ] = "torch",
    client: Annotated[str | None, typer.Option(help="The model of this client only.")] = None,
    personal: Annotated[
        bool, typer.Option("--personal", help="Personal models, of all clients or of --client. Needs the data.")
    ] = False,
    runs: Runs = Path("runs"),
    data: DataFolder = None,
    task: Annotated[
        str | None, typer.Option(help="Of a federation: the module with build_model, if it was not recorded.")
    ] = None,
    input_shape: Annotated[
        str | None, typer.Option(metavar="SHAPE", help="Of a federation: the shape of one input, such as 1x28x28.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the export that is in the folder.")] = False,
    as_json: AsJson = False,
) -> None:
    """Write models of a run or a federation as files that other programs load, one for each cluster, and a card."""
    with needs_torch():
        from pacfl.exporting.export import export as export_models
    with progress_bars():
        manifest = export_models(
            run,
            output,
            format=format,
            client=client,
            personal=personal,
            data=data,
            runs=runs,
            task=task,
            input_shape=None if input_shape is None else _shape(input_shape),
            force=force,
        )
    if as_json:
        found = recognise(Path(run))
        print(json.dumps({"kind": found.kind if found else "run", "folder": str(output), **manifest.content()}))
        return
    for file in manifest.files:
        size = (output / file.file).stat().st_size
        out.print(f"{output / file.file}: {size / 1e6:.2f} MB", soft_wrap=True, markup=False, highlight=False)
    what = f"run {manifest.run}" if manifest.run else f"the federation {manifest.data} ({recognise(Path(run))})"
    out.print(
        f"{output}: {count(len(manifest.files), 'model')} of {what}", soft_wrap=True, markup=False, highlight=False
    )


def _shape(text: str) -> tuple[int, ...]:
    words = text.lower().split("x")
    if not all(word.isdecimal() and int(word) for word in words):
        raise DataError(f"--input-shape must be sizes such as 1x28x28, got {text!r}")
    return tuple(map(int, words))


@app.command()
@sharing(data_options, "how", without=OF_SIGNATURES)
def predict(
    model: Annotated[Path, typer.Argument(help="A file that pacfl export wrote, or its folder.")],
    data: Annotated[Path, typer.Argument(help=".npy, .npz, .csv, .parquet, or a folder of images.")],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="The CSV file to write. Default: print.")
    ] = None,
    cluster: Annotated[int | None, typer.Option(help="Use the model of this cluster.")] = None,
    client: Annotated[str | None, typer.Option(help="Use the model of this client, or of its cluster.")] = None,
    source: Annotated[str | None, typer.Option(help="Use the model for samples of this data set of a mixture.")] = None,
    *,
    how: DataOptions,
    as_json: AsJson = False,
) -> None:
    """Predict with an exported model: a line for each sample, with its class and probabilities, or its values."""
    from pacfl.exporting.prediction import predict as predict_with

    with needs_torch(), progress_bars():
        found = predict_with(model, data, output, cluster=cluster, client=client, source=source, reading=how.reading)
    if as_json:
        print(json.dumps(found.content() if output is None else {"file": str(output), **found.about()}))
    elif output is None:
        print(found.as_csv(), end="")
    else:
        out.print(f"{output}: {len(found.outputs)} samples, by {found.file}", markup=False, highlight=False)
