"""A file computes what the module computes of preprocessed samples, where nothing of pacfl is known."""

import json
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="models need torch")
from torch import Tensor, nn  # noqa: E402

from pacfl.data.preprocessing import Preprocessing  # noqa: E402
from pacfl.errors import DataError, ModelError, StoreError  # noqa: E402
from pacfl.exporting.folder import CARD, MANIFEST, Manifest, ModelOf, read_manifest, write_folder  # noqa: E402
from pacfl.exporting.formats import FormatName, write_model  # noqa: E402
from pacfl.exporting.portable import examples, portable  # noqa: E402
from pacfl.exporting.prediction import predict  # noqa: E402
from tests.exporting.plain import onnx_outputs, torch_outputs  # noqa: E402

COLOURS = Preprocessing((12, 10, 3), "uint8", "hwc", np.array([100.0, 120.0, 90.5]), 1 / np.array([60.0, 62.0, 55.0]))
YEARS = Preprocessing((2,), "float32", "input", np.array([2013.7, 1.0]), np.array([1 / 5.3, 0.0]))
TOKENS = Preprocessing((6,), "int64", "input")


class Own(nn.Module):
    """A class that nobody else has, with dropout that must be off."""

    def __init__(self, first: nn.Module, features: int, outputs: int) -> None:
        super().__init__()
        self.first, self.last = first, nn.Linear(features, outputs)

    def forward(self, x: Tensor) -> Tensor:
        hidden: Tensor = self.last(nn.functional.dropout(self.first(x), 0.5, self.training).flatten(1))
        return hidden


def convolution() -> nn.Module:
    torch.manual_seed(0)
    return Own(nn.Sequential(nn.Conv2d(3, 4, 5), nn.ReLU(), nn.MaxPool2d(2)), 4 * 4 * 3, 5)


def table() -> nn.Module:
    torch.manual_seed(1)
    return Own(nn.Sequential(nn.Linear(2, 8), nn.Tanh()), 8, 1)


def text() -> nn.Module:
    torch.manual_seed(2)
    return Own(nn.Embedding(9, 4), 6 * 4, 3)


CASES = ((convolution, COLOURS), (table, YEARS), (text, TOKENS))


def samples_of(preprocessing: Preprocessing) -> np.ndarray:
    return np.random.default_rng(5).integers(0, 9, (9, 6)) if preprocessing is TOKENS else examples(preprocessing, 9)


def expected(module: nn.Module, preprocessing: Preprocessing, samples: np.ndarray) -> np.ndarray:
    """The module on samples that numpy preprocesses in float64."""
    with torch.no_grad():
        return module.eval()(torch.from_numpy(preprocessing.apply(samples))).numpy()


def about(form: FormatName, targets: str = "classes", outputs: int = 5) -> Manifest:
    return Manifest(form, None, "fedavg", "own", targets, tuple(map(str, range(outputs))), None, {})


def test_files_of_torch_compute_the_same_where_there_is_no_pacfl(tmp_path: Path) -> None:
    pairs = []
    for i, (build, preprocessing) in enumerate(CASES):
        (tmp_path / f"{i}.pt2").write_bytes(write_model(build(), preprocessing, "torch"))
        pairs.append((tmp_path / f"{i}.pt2", samples_of(preprocessing)))
    for found, (build, preprocessing), (_, samples) in zip(torch_outputs(pairs, tmp_path), CASES, pairs, strict=True):
        np.testing.assert_allclose(found, expected(build(), preprocessing, samples), rtol=0, atol=1e-5)


def test_files_of_onnx_compute_the_same(tmp_path: Path) -> None:
    pytest.importorskip("onnxscript")
    pytest.importorskip("onnxruntime")
    for build, preprocessing in CASES[:1]:
        content = write_model(build(), preprocessing, "onnx")
        assert b".py" not in content  # paths of the machine that wrote it
        (tmp_path / "model.onnx").write_bytes(content)
        samples = samples_of(preprocessing)
        found = onnx_outputs(tmp_path / "model.onnx", samples)
        np.testing.assert_allclose(found, expected(build(), preprocessing, samples), rtol=0, atol=1e-5)


def test_weights_have_the_names_of_the_module_and_its_bits() -> None:
    safetensors = pytest.importorskip("safetensors.torch")
    tied = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    tied[1].weight = tied[0].weight
    for module in (convolution(), tied):
        weights = safetensors.load(write_model(module, COLOURS, "safetensors"))
        assert weights.keys() == module.state_dict().keys()
        assert all(torch.equal(weights[name], value) for name, value in module.state_dict().items())


def test_preprocessing_in_float32_loses_nothing_far_from_zero() -> None:
    """Years: 2013.7 has an error of 6e-5 in float32, which a spread of 1e-3 would show 60 times enlarged."""
    close = Preprocessing((1,), "float32", "input", np.array([2013.7]), np.array([1e3]))
    samples = np.array([[2013.7], [2013.701], [2014.0]], dtype=np.float32)
    found = portable(nn.Identity(), close)(torch.from_numpy(samples)).numpy()
    np.testing.assert_allclose(found, close.apply(samples), rtol=1e-6)


def test_a_constant_column_becomes_zero() -> None:
    assert YEARS.apply(np.array([[2013.7, 5.0]]))[0, 1] == 0


def test_a_model_that_depends_on_the_number_of_samples_is_refused() -> None:
    class Pairs(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.reshape(2, -1)

    with pytest.raises(ModelError, match=r"cannot be exported as torch.*safetensors"):
        write_model(Pairs(), YEARS, "torch")


def test_a_file_says_nothing_of_the_machine_that_wrote_it() -> None:
    content = write_model(table(), YEARS, "torch")
    assert b"test_exporting_formats" not in content
    assert b".py" not in content


def test_a_folder_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    class Broken(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            raise RuntimeError(f"broken by {len(x)}")

    models = [ModelOf("cluster-0", table(), YEARS, 0), ModelOf("cluster-1", Broken(), YEARS, 1)]
    with pytest.raises(ModelError, match="broken"):
        write_folder(models, about("torch"), "# Card\n", tmp_path / "export")
    assert list(tmp_path.iterdir()) == []


def test_other_files_are_never_replaced_and_exports_if_forced(tmp_path: Path) -> None:
    (tmp_path / "diary.txt").write_text("dear diary")
    models = [ModelOf("cluster-0", table(), YEARS, 0)]
    with pytest.raises(DataError, match=r"holds other files .diary\.txt"):
        write_folder(models, about("safetensors"), "# Card\n", tmp_path, force=True)
    output = tmp_path / "new" / "export"
    write_folder(models, about("safetensors"), "# Card\n", output)
    with pytest.raises(DataError, match="--force"):
        write_folder(models, about("safetensors"), "# Card\n", output)
    write_folder([ModelOf("cluster-7", table(), YEARS, 7)], about("safetensors"), "# Card\n", output, force=True)
    assert {p.name for p in output.iterdir()} == {"cluster-7.safetensors", "preprocess.json", MANIFEST, CARD}
    assert [p.name for p in output.parent.iterdir()] == ["export"]
    (output / "notes.txt").write_text("mine")
    with pytest.raises(DataError, match=r"notes\.txt"):
        write_folder(models, about("safetensors"), "# Card\n", output, force=True)


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("exports") / "export"
    write_folder([ModelOf("cluster-0", convolution(), COLOURS, 0)], about("torch"), "# Card\n", output)
    return output


def test_probabilities_are_the_softmax_of_the_outputs(exported: Path, tmp_path: Path) -> None:
    samples = samples_of(COLOURS).astype(np.uint8)
    np.save(tmp_path / "x.npy", samples)
    found = predict(exported, tmp_path / "x.npy", tmp_path / "out.csv")
    logits = expected(convolution(), COLOURS, samples)
    np.testing.assert_allclose(found.outputs, logits, rtol=0, atol=1e-5)
    shares = torch.softmax(torch.from_numpy(logits), 1).numpy()
    lines = [line.split(",") for line in (tmp_path / "out.csv").read_text().splitlines()]
    assert lines[0] == ["sample", "class", "p_0", "p_1", "p_2", "p_3", "p_4"]
    assert [line[:2] for line in lines[1:]] == [[str(i), str(k)] for i, k in enumerate(logits.argmax(axis=1))]
    np.testing.assert_allclose(np.array([line[2:] for line in lines[1:]], dtype=float), shares, atol=2e-6)


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        (np.zeros((4, 12, 10), np.uint8), r"takes samples of shape \(n, 12, 10, 3\), uint8, got shape \(4, 12, 10\)"),
        (np.zeros((4, 3, 12, 10), np.uint8), r"got shape \(4, 3, 12, 10\) of uint8"),
        (np.full((1, 12, 10, 3), 0.5), "integers from 0 to 255; got float64 from 0.5 to 0.5"),
        (np.full((1, 12, 10, 3), np.nan), "must be finite"),
        (np.zeros((0, 12, 10, 3), np.uint8), "no samples"),
    ],
)
def test_samples_that_the_model_does_not_take_are_refused(exported: Path, samples: np.ndarray, message: str) -> None:
    with pytest.raises(DataError, match=message):
        predict(exported, samples)


def test_a_damaged_file_is_refused(exported: Path, tmp_path: Path) -> None:
    for file in exported.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    content = bytearray((tmp_path / "cluster-0.pt2").read_bytes())
    content[len(content) // 2] ^= 1
    (tmp_path / "cluster-0.pt2").write_bytes(content)
    with pytest.raises(StoreError, match="SHA-256"):
        predict(tmp_path, samples_of(COLOURS))
    (tmp_path / "cluster-0.pt2").unlink()
    with pytest.raises(StoreError, match="missing"):
        predict(tmp_path, samples_of(COLOURS))


def test_a_manifest_that_is_damaged_is_refused(exported: Path, tmp_path: Path) -> None:
    content = json.loads((exported / MANIFEST).read_text())
    for damaged in (
        "{",
        "[]",
        json.dumps({**content, "version": 2}),
        json.dumps({**content, "files": [{"file": "a"}]}),
    ):
        (tmp_path / MANIFEST).write_text(damaged)
        with pytest.raises(StoreError, match="export the models again"):
            read_manifest(tmp_path)
    (tmp_path / MANIFEST).write_text(json.dumps({**content, "files": [{**content["files"][0], "file": "../a"}]}))
    with pytest.raises(StoreError, match="missing"):
        predict(tmp_path, samples_of(COLOURS))


def test_values_and_labels_are_predicted_as_such(tmp_path: Path) -> None:
    manifest = about("torch", "values", 1)
    write_folder([ModelOf("client-a", table(), YEARS, None, "a")], manifest, "# Card\n", tmp_path / "values")
    samples = samples_of(YEARS)
    (tmp_path / "x.csv").write_text("\n".join(f"{a},{b}" for a, b in samples.tolist()))
    found = predict(tmp_path / "values" / "client-a.pt2", tmp_path / "x.csv")
    np.testing.assert_allclose(found.predicted, expected(table(), YEARS, samples), rtol=0, atol=1e-5)
    assert found.probabilities is None
    assert found.as_csv().splitlines()[0] == "sample,0"
    assert found.content()["predicted"] == found.outputs.tolist()
    write_folder(
        [ModelOf("cluster-0", text(), TOKENS, 0)], about("torch", "labels", 3), "# Card\n", tmp_path / "labels"
    )
    tokens = samples_of(TOKENS)
    labels = predict(tmp_path / "labels", tokens)
    chances = torch.sigmoid(torch.from_numpy(expected(text(), TOKENS, tokens))).numpy()
    np.testing.assert_allclose(labels.probabilities, chances, atol=1e-5)
    assert (labels.predicted == (chances > 0.5)).all()
    assert [len(said) for said in labels.content()["predicted"]] == (chances > 0.5).sum(axis=1).tolist()


def test_weights_alone_are_refused_if_their_model_is_not_known(tmp_path: Path) -> None:
    write_folder([ModelOf("cluster-0", table(), YEARS, 0)], about("safetensors"), "# Card\n", tmp_path / "export")
    with pytest.raises(ModelError, match=r"weights only.*torch or onnx"):
        predict(tmp_path / "export", samples_of(YEARS))
