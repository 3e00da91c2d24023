"""Predictions of exported models for data in files."""

import csv
import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pacfl.data.preprocessing import Preprocessing
from pacfl.errors import DataError, ModelError, StoreError
from pacfl.exporting.folder import MANIFEST, Manifest, ModelFile, read_manifest, read_model
from pacfl.exporting.formats import FORMATS, Outputs, load_graph, load_weights
from pacfl.exporting.site_key import check_site
from pacfl.features import Schema, read_table
from pacfl.features.reading import Reading, read
from pacfl.files import write_atomically

BATCH: Final = 500
Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Predictions:
    """What a model says of samples.

    targets classes: predicted (n,) is the index of the class with the highest of the probabilities (n, classes).
    labels: predicted (n, labels) is yes where the probability (n, labels) is above one half.
    values: predicted (n, values); there are no probabilities.
    """

    targets: Literal["classes", "labels", "values"]
    names: tuple[str, ...]  # of classes, labels or values
    outputs: NDArray[np.float32]  # (n, ...) as the model computes them: logits, or values
    file: str  # of the model

    @property
    def probabilities(self) -> Floats | None:
        """Of every class or label: (n, classes) or (n, labels)."""
        return _PROBABILITIES[self.targets](self.outputs.astype(np.float64))

    @property
    def predicted(self) -> NDArray[Any]:
        """The most likely class, the labels that are more likely than not, or the values."""
        probabilities = self.probabilities
        if probabilities is None:
            return self.outputs
        return self.outputs.argmax(axis=1) if self.targets == "classes" else probabilities > 0.5

    def about(self) -> dict[str, Any]:
        """Which model said it, of how many samples."""
        return {"model": self.file, "samples": len(self.outputs), "targets": self.targets, "names": list(self.names)}

    def content(self) -> dict[str, Any]:
        """For JSON: what `about` says; the class, labels or values of each sample; and all probabilities."""
        names, predicted, probabilities = np.array(self.names), self.predicted, self.probabilities
        if probabilities is None:
            return {**self.about(), "predicted": predicted.tolist(), "probabilities": None}
        named = [names[said].tolist() for said in predicted]  # an index, or flags
        return {**self.about(), "predicted": named, "probabilities": probabilities.tolist()}

    def as_csv(self) -> str:
        """A header and a line for each sample: the class by name and all probabilities, or the values."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        probabilities = self.probabilities
        if probabilities is None:
            writer.writerow(["sample", *self.names])
            writer.writerows([i, *row] for i, row in enumerate(self.outputs.tolist()))
            return text.getvalue()
        classes = self.targets == "classes"
        writer.writerow(["sample", *(["class"] if classes else []), *(f"p_{name}" for name in self.names)])
        chosen = [[self.names[k]] for k in self.predicted] if classes else [[] for _ in probabilities]
        for i, (words, row) in enumerate(zip(chosen, probabilities.tolist(), strict=True)):
            writer.writerow([i, *words, *(f"{p:.6g}" for p in row)])
        return text.getvalue()


def predict(
    model: Path | str,
    data: Path | str | ArrayLike,
    output: Path | str | None = None,
    *,
    cluster: int | None = None,
    client: str | int | None = None,
    source: str | None = None,
    reading: Reading | None = None,
) -> Predictions:
    """What an exported model predicts for samples; written as CSV to `output`, if one is given.

    model: a file that `export` wrote, or its folder; then the cluster or the client choose the file, and the source
    if there is one for each. data: samples as the data set of the run has them, or a file or folder of them.
    """
    folder, manifest, file = find_model(Path(model), cluster, None if client is None else str(client), source)
    check_site(folder, file.client, manifest.clients)
    preprocessing = Preprocessing.from_content(file.input)
    if isinstance(data, str | Path):
        try:
            samples = preprocessing.checked(_read(Path(data), reading or Reading()))
        except DataError as error:
            raise DataError(f"{data}: {str(error).removeprefix(f'{data}: ')}") from None
    else:
        if reading is not None:
            raise DataError("reading is for data in files; the samples are given as an array")
        samples = preprocessing.checked(data)
    if not len(samples):
        raise DataError("there are no samples to predict")
    computed = load_model(folder, manifest, file)
    outputs = np.concatenate([computed(samples[i : i + BATCH]) for i in range(0, len(samples), BATCH)])
    outputs = outputs.reshape(len(outputs), -1)
    targets: Any = manifest.targets
    unnamed = map(str, range(len(manifest.outputs), outputs.shape[1]))
    predictions = Predictions(targets, (*manifest.outputs, *unnamed), outputs, file.file)
    if reading is not None and reading.schema is not None:
        predictions = _named_by(predictions, reading.schema)
    if output is not None:
        write_atomically(Path(output), predictions.as_csv().encode())
    return predictions


def _read(path: Path, reading: Reading) -> NDArray[Any]:
    """Samples of a file; tables with a schema as they are trained on."""
    if reading.schema is None:
        return read(path, reading)[0]
    return reading.schema.encode(read_table(path, reading.header)).x


def _named_by(predictions: Predictions, schema: Schema) -> Predictions:
    """Predictions with the names of the schema's classes, or in the unit of its values."""
    labels = schema.labels
    if labels is None:
        return predictions
    if labels.centre is not None and labels.scale is not None and labels.kind == "value":
        values = predictions.outputs * np.float32(labels.scale) + np.float32(labels.centre)
        return replace(predictions, outputs=values, names=(labels.name, *predictions.names[1:]))
    if len(labels.classes) != predictions.outputs.shape[1]:
        raise DataError(
            f"the model has {predictions.outputs.shape[1]} outputs, the schema {len(labels.classes)} classes; give the "
            "schema that it was trained with"
        )
    return replace(predictions, names=labels.classes)


def find_model(
    path: Path, cluster: int | None = None, client: str | None = None, source: str | None = None
) -> tuple[Path, Manifest, ModelFile]:
    """The folder of an export, its manifest, and the one of its files that is meant."""
    if path.is_file():
        given = {"--cluster": cluster, "--client": client, "--source": source}
        if extra := [option for option, value in given.items() if value is not None]:
            raise DataError(f"{path}: is one model; leave out {', '.join(extra)}")
        if not (path.parent / MANIFEST).exists():
            raise StoreError(f"{path}: has no {MANIFEST} beside it, which says what its input is; keep them together")
        manifest = read_manifest(path.parent)
        named = [file for file in manifest.files if file.file == path.name]
        if not named:
            raise StoreError(f"{path}: is not a model that {MANIFEST} beside it lists")
        return path.parent, manifest, named[0]
    if not path.is_dir():
        raise StoreError(f"{path}: there is no such file or folder")
    manifest = read_manifest(path)
    return path, manifest, _chosen(path, manifest, cluster, client, source)


def load_model(folder: Path, manifest: Manifest, file: ModelFile) -> Outputs:
    """The function that a model file computes, its content verified."""
    content = read_model(folder, file)
    if FORMATS[manifest.format].has_graph:
        return load_graph(content, manifest.format)
    if manifest.model is None:
        raise ModelError(
            f"{file.file}: has weights only, and pacfl does not know how to build their model; load them in your own "
            "code, or export the model as torch or onnx"
        )
    from pacfl.exporting.architecture import build_architecture

    return load_weights(content, build_architecture(manifest.model), Preprocessing.from_content(file.input))


def _chosen(path: Path, manifest: Manifest, cluster: int | None, client: str | None, source: str | None) -> ModelFile:
    """The only file of the cluster, or of the client, and of the source."""
    if cluster is not None and client is not None:
        raise DataError("give --cluster or --client, not both")
    files = [file for file in manifest.files if source in (None, file.source)]
    if cluster is not None:
        files = [file for file in files if file.cluster == cluster and file.client is None]
    elif client is not None:
        own = manifest.clients.get(client)
        if own is None:
            raise DataError(f"{path}: knows no client {client!r}; there are {_listed(manifest.clients)}")
        of_client = [file for file in files if file.client == client]
        of_cluster = [file for file in files if file.client is None and file.cluster == own.get("cluster")]
        if not of_client and own.get("label_prior"):
            raise DataError(
                f"{path}: has models of clusters, and that of client {client!r} was corrected for its class shares "
                f"(label-prior); export it with --client {client}, or choose --cluster {own.get('cluster')}"
            )
        files = of_client or [file for file in of_cluster if file.source is None or file.source in own["sources"]]
    if len(files) != 1:
        names = ", ".join(file.file for file in manifest.files)
        raise DataError(
            f"{path}: {len(files) or 'no'} models are of this choice; give one of the files {names}, or choose with "
            "--cluster, --client or --source"
        )
    return files[0]


def _listed(names: Mapping[str, Any]) -> str:
    return ", ".join(list(names)[:20]) + (", ..." if len(names) > 20 else "")


def _softmax(logits: Floats) -> Floats:
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=1, keepdims=True))


def _sigmoid(logits: Floats) -> Floats:
    from scipy.special import expit

    return np.asarray(expit(logits))


_PROBABILITIES: Final[Mapping[str, Callable[[Floats], Floats | None]]] = {
    "classes": _softmax,
    "labels": _sigmoid,
    "values": lambda _: None,
}
