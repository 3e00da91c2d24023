"""`pacfl export`: the models of a run, or of a deployed federation, into a folder of files."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

from pacfl.errors import ConfigError, DataError, StoreError
from pacfl.experiment.result import Result
from pacfl.experiment.store import RunFolder, all_folders
from pacfl.exporting.card import CardFacts, write_card
from pacfl.exporting.federations import federation_models
from pacfl.exporting.folder import Manifest, ModelOf, check_output, write_folder
from pacfl.exporting.formats import FORMATS, FormatName
from pacfl.exporting.runs import result_models, run_models
from pacfl.folders import WORDS, recognise, required
from pacfl.settings import suggestion


class Exportable(Protocol):
    """Where models come from."""

    def models(self, client: str | None, personal: bool) -> Iterator[ModelOf]:
        """The models of clusters, of one client, or the personal ones."""

    def manifest(self, name: FormatName) -> Manifest:
        """What export.json says, without files."""

    def facts(self) -> CardFacts:
        """What the card says."""


def export(  # one argument for each option of the command
    run: Path | str | Result,
    output: Path | str,
    *,
    format: FormatName = "torch",  # noqa: A002 - the word for it
    client: str | int | None = None,
    personal: bool = False,
    data: Path | str | None = None,
    runs: Path | str = "runs",
    task: str | None = None,
    input_shape: Sequence[int] | None = None,
    force: bool = False,
) -> Manifest:
    """Write the models of a finished run into a folder: one for each cluster, with what they take and a model card.

    run: a result, the folder of a run, the beginning of its hash in `runs`, or the folder of the server of a
    federation; for the latter also `input_shape`, of one input of the model, and `task`, its module with build_model
    if the folder does not say.
    client: the model of one client instead; personal: after the personalisation of the algorithm, for one client or
    for all, which is computed again from `data`.
    format: torch (.pt2) and onnx compute everything from samples to outputs; safetensors has the weights alone.
    force: replace an export that is in the folder.
    """
    if format not in FORMATS:
        raise ConfigError(f"no format {format!r}{suggestion(str(format), FORMATS)}")
    check_output(Path(output), force)
    shape = None if input_shape is None else tuple(input_shape)
    if isinstance(run, Result):
        if (data, task, shape) != (None, None, None):
            raise DataError("data, task and input_shape are for runs in folders; a result knows them")
        source: Exportable = result_models(run)
    else:
        source = find_models(str(run), Path(runs), None if data is None else Path(data), task, shape)
    models = source.models(None if client is None else str(client), personal)
    return write_folder(models, source.manifest(format), write_card(source.facts()), Path(output), force)


def find_models(
    name: str, runs: Path, data: Path | None, task: str | None = None, input_shape: tuple[int, ...] | None = None
) -> Exportable:
    """The models of a run, by its folder or the beginning of its hash, or of the folder of a server."""
    folder = recognise(Path(name))
    if folder is not None and folder.kind in ("server", "deployment"):
        if data is not None:
            raise DataError(f"{name}: is {WORDS[folder.kind]}, and a server has no data; leave out --data")
        return federation_models(folder, task, input_shape)
    if task is not None or input_shape is not None:
        raise DataError(f"{name}: --task and --input-shape are for the folder of a server; a run knows them")
    return run_models(find_run(name, runs), data)


def find_run(name: str, runs: Path) -> RunFolder:
    """The run of a folder, or of the beginning of a hash."""
    path = Path(name)
    if path.is_dir():
        required(path, "export", "run", "server", "deployment", why={"clusters": "'pacfl cluster' trains no models"})
        return RunFolder(path)
    found = [folder for folder in all_folders(runs) if folder.path.name.startswith(name)]
    if len(found) != 1:
        raise StoreError(f"{name}: is no folder, and {len(found)} runs in {runs} begin so; 'pacfl ls' lists them")
    return found[0]
