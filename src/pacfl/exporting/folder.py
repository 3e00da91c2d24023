"""The folder of an export: model files, export.json that describes and verifies them, and a model card."""

import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pacfl import __version__
from pacfl.data.preprocessing import Preprocessing
from pacfl.errors import DataError, StoreError
from pacfl.exporting.formats import FORMATS, FormatName, write_model
from pacfl.files import settle, write_atomically
from pacfl.settings import suggestion

if TYPE_CHECKING:
    from torch import nn

VERSION: Final = 1  # of export.json
MANIFEST: Final = "export.json"
CARD: Final = "MODEL_CARD.md"
PREPROCESS: Final = "preprocess.json"


@dataclass(frozen=True, eq=False)
class ModelOf:
    """A model to be written, and whose it is."""

    stem: str  # the name of its file without suffix
    module: "nn.Module"
    preprocessing: Preprocessing
    cluster: int | None
    client: str | None = None  # of a cluster, if None
    personal: bool = False
    source: str | None = None  # whose normalisation it has, if the data have several sources


@dataclass(frozen=True)
class ModelFile:
    """What export.json says of one file."""

    file: str
    sha256: str
    cluster: int | None
    client: str | None
    personal: bool
    source: str | None
    input: Mapping[str, Any]  # the content of its preprocessing


@dataclass(frozen=True)
class Manifest:
    """What export.json says."""

    format: FormatName
    run: str | None  # its hash
    algorithm: str
    data: str
    targets: str  # classes, labels or values
    outputs: tuple[str, ...]  # names of classes, labels or values
    model: Mapping[str, Any] | None  # how pacfl builds it, if it can
    clients: Mapping[str, Mapping[str, Any]]  # name: cluster, sources
    files: tuple[ModelFile, ...] = ()
    pacfl: str = __version__
    version: int = VERSION

    def content(self) -> dict[str, Any]:
        """Plain values."""
        return {**vars(self), "outputs": list(self.outputs), "files": [vars(file) for file in self.files]}


def write_folder(
    models: Iterable[ModelOf], manifest: Manifest, card: str, output: Path, force: bool = False
) -> Manifest:
    """Write an export into a new or empty folder, all of it or nothing; its manifest with the files.

    force: take the place of an earlier export.
    """
    check_output(output, force)
    with _replaced_folder(output) as folder:
        files = tuple(_write_file(folder, model, manifest.format) for model in models)
        manifest = replace(manifest, files=files)
        if not FORMATS[manifest.format].has_graph:
            write_atomically(folder / PREPROCESS, _json({file.file: file.input for file in files}))
        listed = "".join(f"| `{file.file}` | {_whose(file)} | `{file.sha256}` |\n" for file in files)
        text = f"{card}\n## Files\n\n| file | model | SHA-256 |\n|---|---|---|\n{listed}"
        write_atomically(folder / CARD, text.encode())
        write_atomically(folder / MANIFEST, _json(manifest.content()))
    return manifest


def read_manifest(folder: Path) -> Manifest:
    """The manifest of an export."""
    path = folder / MANIFEST
    try:
        content = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise StoreError(
            f"{folder}: has no {MANIFEST}; give a folder that 'pacfl export' wrote, or a file in it"
        ) from None
    except (ValueError, RecursionError):
        raise StoreError(f"{path}: is damaged; export the models again") from None
    if not isinstance(content, dict) or content.get("version") != VERSION:
        raise StoreError(f"{path}: is of another release of pacfl; export the models again")
    try:
        files = tuple(ModelFile(**file) for file in content.pop("files"))
        manifest = Manifest(**{**content, "outputs": tuple(content["outputs"]), "files": files})
    except (TypeError, KeyError):
        raise StoreError(f"{path}: is damaged; export the models again") from None
    if manifest.format not in FORMATS:
        raise StoreError(f"{path}: no format {manifest.format!r}{suggestion(str(manifest.format), FORMATS)}")
    return manifest


def read_model(folder: Path, file: ModelFile) -> bytes:
    """The content of a model file, verified."""
    path = folder / file.file
    if Path(file.file).name != file.file or not path.is_file():
        raise StoreError(f"{path}: is missing; export the models again")
    content = path.read_bytes()
    if hashlib.sha256(content).hexdigest() != file.sha256:
        raise StoreError(f"{path}: is not the file that was exported (its SHA-256 differs); export the models again")
    return content


def check_output(output: Path, force: bool) -> None:
    """Refuse a folder that has something in it, other than an export that may be replaced."""
    if output.exists() and not output.is_dir():
        raise DataError(f"{output}: is a file; an export is a folder")
    names = {path.name for path in output.iterdir()} if output.exists() else set()
    own = {file.file for file in read_manifest(output).files} if MANIFEST in names else set()
    foreign = sorted(names - own - {MANIFEST, CARD, PREPROCESS})
    if foreign or (names and MANIFEST not in names):
        listed = ", ".join((foreign or sorted(names))[:3])
        raise DataError(f"{output}: holds other files ({listed}); choose a new or empty folder")
    if names and not force:
        raise DataError(f"{output}: holds an export; choose another folder, or replace it with --force")


def _write_file(folder: Path, model: ModelOf, name: FormatName) -> ModelFile:
    content = write_model(model.module, model.preprocessing, name)
    file = f"{model.stem}{FORMATS[name].suffix}"
    if os.sep in file or (folder / file).exists():
        raise DataError(f"{file}: two models would have this name, or it is no name for a file; rename the client")
    write_atomically(folder / file, content)
    about = (model.cluster, model.client, model.personal, model.source)
    return ModelFile(file, hashlib.sha256(content).hexdigest(), *about, model.preprocessing.content())


def _whose(file: ModelFile) -> str:
    kind = "personal model of " if file.personal else ""
    whose = f"client {file.client}" if file.client is not None else f"cluster {file.cluster}"
    return f"{kind}{whose}{f', for samples of {file.source}' if file.source else ''}"


def _json(content: Any) -> bytes:
    return json.dumps(content, indent=2, allow_nan=False).encode() + b"\n"


@contextmanager
def _replaced_folder(path: Path) -> Iterator[Path]:
    """A folder that takes the place of `path` when the block ends without an error, and leaves no trace otherwise."""
    path = path.resolve()
    path.parent.mkdir(parents=True, exist_ok=True)
    part, former = (path.parent / f".{path.name}.{secrets.token_hex(8)}.{kind}" for kind in ("part", "former"))
    part.mkdir()
    try:
        yield part
        settle(part)
        if path.exists():
            path.replace(former)
        part.replace(path)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise
    shutil.rmtree(former, ignore_errors=True)
    settle(path.parent)
