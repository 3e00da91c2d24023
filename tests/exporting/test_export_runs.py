"""Models of runs leave: files predict what the run evaluated, from samples as the data set has them."""

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="models need torch")
pytest.importorskip("sklearn", reason="the embedded digits need scikit-learn")

from pacfl.errors import DataError, StoreError
from pacfl.experiment.config import expand
from pacfl.experiment.run import load_models, resume
from pacfl.experiment.store import RunFolder, folder_of
from pacfl.exporting.export import export
from pacfl.exporting.prediction import predict
from tests.conftest import Run
from tests.exporting.plain import onnx_outputs, torch_outputs

DIGITS: dict[str, Any] = {
    "data": {"name": "digits", "clients": 6, "scheme": {"kind": "by-set", "counts": [3, 0, 3, 0], "size": 40}},
    "model": {"name": "mlp", "hidden": 16},
    "learning": {"epochs": 1, "lr": 0.05},
    "schedule": {"rounds": 2, "participation": 0.7},
    "algorithm": {"name": "pacfl", "clusters": 2, "compare": "inputs", "label-prior": False},
}
IMAGES = {**DIGITS, "model": {"name": "lenet5"}, "data": {"name": "images", "clients": 4}}
TOLERANCE = 1e-5


def finished(table: dict[str, Any], runs: Path, where: Path | None = None, **sections: Any) -> RunFolder:
    (run,) = expand({**table, **sections})
    folder = folder_of(run, runs)
    list(resume(run, folder, where))
    return folder


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Generated images 28 × 28 with three colours: a class is where the bright square is."""
    folder = tmp_path_factory.mktemp("data")
    rng = np.random.default_rng(0)
    y = rng.integers(0, 4, 160)
    x = rng.integers(0, 150, (160, 28, 28, 3))
    for image, label in zip(x, y, strict=True):
        image[14 * (label // 2) :][:10, 14 * (label % 2) :][:, :10] += 100
    x = x.astype(np.uint8)
    np.savez(folder / "images.npz", x_train=x[:120], y_train=y[:120], x_test=x[120:], y_test=y[120:])
    return folder


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    return finished(DIGITS, tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory, data: Path) -> RunFolder:
    return finished(IMAGES, tmp_path_factory.mktemp("runs"), data)


def raw_and_inside(folder: RunFolder, client: int, data: Path | None = None, personal: bool = False) -> Any:
    """The test samples of a client as the data set has them, and the outputs inside of the model it received."""
    experiment, models = load_models(folder, data)
    rows = experiment.partition.test_indices[client]
    side = models._side
    w = models.personal(client) if personal else models.received(client)
    outputs, _ = side.engine.evaluate(w, type(side.pool.test)(side.pool.test.x[rows], side.pool.test.y[rows]))
    return experiment.dataset.x_test[rows], outputs, side.pool.test.y[rows]


def test_exports_predict_in_plain_pytorch_what_the_run_evaluated(
    digits: RunFolder, images: RunFolder, data: Path, tmp_path: Path
) -> None:
    """Two nets, raw samples, batches of several sizes; accuracies are those that the run reported."""
    pairs, inside = [], []
    for folder, where in ((digits, None), (images, data)):
        manifest = export(folder.path, tmp_path / folder.path.name)
        for client in (0, len(manifest.clients) - 1):
            raw, outputs, y = raw_and_inside(folder, client, where)
            cluster = manifest.clients[str(client)]["cluster"]
            (file,) = [file for file in manifest.files if file.cluster == cluster]
            pairs.append((tmp_path / folder.path.name / file.file, raw.astype(np.float32)))
            accuracy = folder.records()[-1]["by_client"]["received"][str(client)][0]
            inside.append((outputs, y, accuracy))
    for found, (outputs, y, accuracy) in zip(torch_outputs(pairs, tmp_path), inside, strict=True):
        np.testing.assert_allclose(found, outputs, rtol=0, atol=TOLERANCE)
        assert (found.argmax(axis=1) == y).mean() == pytest.approx(accuracy)


def test_exports_predict_in_onnxruntime_what_the_run_evaluated(
    digits: RunFolder, images: RunFolder, data: Path, tmp_path: Path
) -> None:
    pytest.importorskip("onnxscript")
    pytest.importorskip("onnxruntime")
    for folder, where in ((digits, None), (images, data)):
        output = tmp_path / folder.path.name
        (file,) = export(folder.path, output, format="onnx", client=0).files
        raw, outputs, _ = raw_and_inside(folder, 0, where)
        found = onnx_outputs(output / file.file, raw.astype(np.float32))
        np.testing.assert_allclose(found, outputs, rtol=0, atol=TOLERANCE)
        np.testing.assert_allclose(predict(output, raw).outputs, outputs, rtol=0, atol=TOLERANCE)


def test_a_personal_export_scores_what_the_evaluation_reported(digits: RunFolder, tmp_path: Path) -> None:
    manifest = export(digits.path, tmp_path / "all", personal=True, format="safetensors")
    assert [file.file for file in manifest.files] == [f"client-{c}-personal.safetensors" for c in range(6)]
    scores = digits.records()[-1]["by_client"]
    assert scores["personal"] != scores["received"]
    for client in range(6):
        raw, outputs, y = raw_and_inside(digits, client, personal=True)
        found = predict(tmp_path / "all", raw, client=client)
        np.testing.assert_allclose(found.outputs, outputs, rtol=0, atol=TOLERANCE)
        assert (found.predicted == y).mean() == pytest.approx(scores["personal"][str(client)][0])
    (file,) = export(digits.path, tmp_path / "one", personal=True, client=2, format="safetensors").files
    assert file.sha256 == manifest.files[2].sha256


def test_the_manifest_says_what_the_files_are(digits: RunFolder, tmp_path: Path) -> None:
    export(digits.path, tmp_path / "export", format="safetensors")
    content = json.loads((tmp_path / "export" / "export.json").read_text())
    assert content["run"] == digits.path.name
    assert {c: entry["cluster"] for c, entry in content["clients"].items()} == digits.records()[-1]["cluster_of"]
    assert content["targets"] == "classes"
    assert content["outputs"] == [str(k) for k in range(10)]
    assert sorted(file["file"] for file in content["files"]) == ["cluster-0.safetensors", "cluster-1.safetensors"]
    for file in content["files"]:
        assert hashlib.sha256((tmp_path / "export" / file["file"]).read_bytes()).hexdigest() == file["sha256"]
        assert file["input"]["shape"] == [8, 8]
    steps = json.loads((tmp_path / "export" / "preprocess.json").read_text())
    assert steps == {file["file"]: file["input"] for file in content["files"]}


def test_preprocessing_is_by_hand_what_the_data_set_was_normalised_with(digits: RunFolder, tmp_path: Path) -> None:
    manifest = export(digits.path, tmp_path / "export", format="safetensors")
    experiment, _ = load_models(digits)
    for file in manifest.files:
        source = experiment.dataset.source_names.index(file.source)
        pixels = experiment.dataset.x_train[experiment.dataset.source_train == source].astype(np.float64)
        assert file.input["mean"] == pytest.approx(pixels.mean())
        assert file.input["factor"] == pytest.approx(1 / pixels.std())


def test_a_cluster_of_several_sources_has_a_file_for_each(tmp_path: Path) -> None:
    """One model, normalised for its clients as they were in training."""
    folder = finished(DIGITS, tmp_path, algorithm={"name": "fedavg"})
    manifest = export(folder.path, tmp_path / "export", format="safetensors")
    assert [file.file for file in manifest.files] == ["cluster-0-upright.safetensors", "cluster-0-negative.safetensors"]
    assert manifest.files[0].sha256 == manifest.files[1].sha256
    for client in (0, 5):
        raw, outputs, _ = raw_and_inside(folder, client)
        found = predict(tmp_path / "export", raw, client=client)
        np.testing.assert_allclose(found.outputs, outputs, rtol=0, atol=TOLERANCE)
    with pytest.raises(DataError, match="2 models are of this choice"):
        predict(tmp_path / "export", raw, cluster=0)
    other = predict(tmp_path / "export", raw, cluster=0, source="upright").outputs
    assert np.abs(other - outputs).max() > 0.1


def test_sources_that_are_not_normalised_share_a_file(tmp_path: Path) -> None:
    data = {**DIGITS["data"], "normalise": "none"}
    folder = finished(DIGITS, tmp_path, algorithm={"name": "fedavg"}, data=data)
    (file,) = export(folder.path, tmp_path / "export", format="safetensors").files
    assert (file.file, file.source) == ("cluster-0.safetensors", None)
    raw, outputs, _ = raw_and_inside(folder, 5)
    np.testing.assert_allclose(predict(tmp_path / "export", raw, client=5).outputs, outputs, rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("algorithm", [{"name": "solo"}, {"name": "lg-fedavg", "shared-layers": 1}])
def test_clients_that_share_no_whole_model_have_a_file_each(algorithm: dict[str, Any], tmp_path: Path) -> None:
    folder = finished(DIGITS, tmp_path, algorithm=algorithm)
    manifest = export(folder.path, tmp_path / "export", format="safetensors")
    assert [file.file for file in manifest.files] == [f"client-{c}.safetensors" for c in range(6)]
    assert {entry["cluster"] for entry in manifest.clients.values()} == {None}
    raw, outputs, _ = raw_and_inside(folder, 4)
    np.testing.assert_allclose(predict(tmp_path / "export", raw, client=4).outputs, outputs, rtol=0, atol=TOLERANCE)


def test_clients_that_choose_a_model_are_of_the_cluster_that_they_chose_last(tmp_path: Path) -> None:
    folder = finished(DIGITS, tmp_path, algorithm={"name": "ifca"})
    manifest = export(folder.path, tmp_path / "export", format="safetensors")
    _, models = load_models(folder)
    for client, entry in manifest.clients.items():
        assert np.array_equal(models.stored.models[entry["cluster"]], models.received(int(client)))


def test_values_are_exported_as_values(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(50.0, 9.0, (60, 3)).astype(np.float32)
    y = (x @ np.array([0.1, -0.2, 0.05])).astype(np.float32)
    np.savez(tmp_path / "prices.npz", x_train=x[:40], y_train=y[:40], x_test=x[40:], y_test=y[40:])
    learning = {**DIGITS["learning"], "loss": "squared-error"}
    sections = {"data": {"name": "prices", "clients": 2}, "algorithm": {"name": "fedavg"}, "learning": learning}
    folder = finished(DIGITS, tmp_path / "runs", tmp_path, **sections)
    manifest = export(folder.path, tmp_path / "export", format="safetensors")
    assert (manifest.targets, manifest.outputs) == ("values", ("0",))
    raw, outputs, _ = raw_and_inside(folder, 0, tmp_path)
    np.testing.assert_allclose(predict(tmp_path / "export", raw).predicted, outputs, rtol=0, atol=TOLERANCE)


def test_what_cannot_be_exported_is_refused(digits: RunFolder, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="without client '9'; there are 0, 1"):
        export(digits.path, tmp_path / "export", client=9)
    with pytest.raises(StoreError, match="is no folder, and 0 runs in"):
        export("0123", tmp_path / "export", runs=tmp_path)
    with pytest.raises(StoreError, match="'pacfl export' needs the folder of a run"):
        export(tmp_path, tmp_path / "export")
    (tmp_path / "proximity.npz").touch()
    with pytest.raises(StoreError, match="trains no models"):
        export(tmp_path, tmp_path / "export")
    with pytest.raises(DataError, match="a run knows them"):
        export(digits.path, tmp_path / "export", input_shape=(1, 8, 8))
    assert not (tmp_path / "export").exists()


def test_a_run_without_models_is_refused(tmp_path: Path) -> None:
    (run,) = expand(DIGITS)
    folder = folder_of(run, tmp_path)
    list(resume(run, folder, models=False))
    with pytest.raises(StoreError, match="has no models"):
        export(folder.path, tmp_path / "export")


def test_the_card_says_what_was_done(digits: RunFolder, tmp_path: Path) -> None:
    export(digits.path, tmp_path / "export", format="safetensors")
    card = (tmp_path / "export" / "MODEL_CARD.md").read_text()
    received = digits.result()["accuracy"]["received"]["mean"]  # type: ignore[index]  # it is finished
    for fact in (
        "digits",
        "pacfl(clusters=2, compare=inputs, label_prior=False)",
        digits.path.name,
        f"{received:.4f}",
        "No differential privacy",
    ):
        assert fact in card
    for heading in ("Intended use", "Data", "Training", "Clusters", "Scores", "Privacy", "Files"):
        assert f"\n## {heading}\n" in card


def test_commands_export_and_predict(run: Run, digits: RunFolder, tmp_path: Path) -> None:
    runs, output = digits.path.parent, tmp_path / "models"
    code, said, _ = run("export", digits.path.name[:6], "--runs", runs, "-o", output, "--format", "safetensors")
    assert code == 0
    assert f"2 models of run {digits.path.name}" in " ".join(said.split())
    raw, outputs, _ = raw_and_inside(digits, 0)
    np.save(tmp_path / "x.npy", raw)
    code, said, _ = run("predict", output, tmp_path / "x.npy", "--client", 0)
    assert code == 0
    assert [line.split(",")[1] for line in said.splitlines()[1:]] == [str(k) for k in outputs.argmax(axis=1)]
    code, listed, _ = run("predict", output, tmp_path / "x.npy", "--client", 0, "--json")
    found = json.loads(listed)
    assert found["predicted"] == [line.split(",")[1] for line in said.splitlines()[1:]]
    assert np.array(found["probabilities"]).argmax(axis=1).tolist() == outputs.argmax(axis=1).tolist()
    csv = tmp_path / "predicted.csv"
    code, listed, _ = run("predict", output, tmp_path / "x.npy", "--client", 0, "-o", csv, "--json")
    assert csv.read_text() == said
    del found["predicted"], found["probabilities"]
    assert json.loads(listed) == {"file": str(csv), **found}
    code, _, said = run("predict", output, tmp_path / "x.npy")
    assert code == 1
    assert "--cluster, --client or --source" in " ".join(said.split())
    code, _, said = run("export", digits.path, "-o", output)
    assert code == 1
    assert "--force" in said
