"""Losses and kinds of samples: what is minimised, and what models may be trained on."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from pacfl.errors import ConfigError, ModelError
from pacfl.learning.client_context import ClientContext, LocalTraining, Samples
from pacfl.learning.eager import Eager, check_outputs
from pacfl.learning.engines import build_engine
from pacfl.learning.losses import LOSSES, Loss, find_loss
from pacfl.learning.model import as_model
from pacfl.learning.settings import LOSS_NAMES
from pacfl.settings import content

RNG = np.random.default_rng(0)
X = RNG.normal(size=(21, 4)).astype(np.float32)
TARGETS = {
    "cross-entropy": (X[:, 0] > 0).astype(np.int64),
    "binary-cross-entropy": (X[:, :2] > 0).astype(np.float32),
    "squared-error": X[:, :2] ** 2,
    "absolute-error": X[:, :2] ** 2,
}


def net() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))


def context(samples: Samples, learning: LocalTraining, build: Callable[[], nn.Module] = net) -> ClientContext:
    model = as_model(build, 0)
    engine = build_engine("eager", model, samples.x.shape[1:], learning=learning)
    return ClientContext(model, samples, learning, engine, (0, 0, 0), samples.x)


def numbers(name: str, outputs: Tensor, y: np.ndarray) -> np.ndarray:
    """The loss of every sample, written out."""
    o = outputs.detach().numpy().astype(np.float64)
    if name == "cross-entropy":
        return np.asarray(np.log(np.exp(o).sum(axis=1)) - o[np.arange(len(y)), y])
    if name == "binary-cross-entropy":
        p = 1 / (1 + np.exp(-o))
        return np.asarray(-(y * np.log(p) + (1 - y) * np.log(1 - p)).mean(axis=1))
    error = o - y
    return np.asarray((error**2 if name == "squared-error" else np.abs(error)).mean(axis=1))


@pytest.mark.parametrize("name", LOSS_NAMES)
def test_losses_are_their_formulas(name: str) -> None:
    samples = Samples(X, TARGETS[name])
    given = context(samples, LocalTraining(loss=name))
    with torch.no_grad():
        expected = numbers(name, given.model.build()(torch.from_numpy(X)), samples.y)
    outputs, losses = given.engine.evaluate(given.model.initial, samples)
    assert outputs.shape == (21, 2)
    np.testing.assert_allclose(losses, expected, atol=1e-6)
    assert given.loss(given.model.initial) == pytest.approx(expected.mean(), abs=1e-6)


@pytest.mark.parametrize("name", LOSS_NAMES)
def test_training_and_gradient_minimise_the_loss(name: str) -> None:
    """One step of plain SGD over all samples is the gradient, which is that of the mean of the losses."""
    given = context(Samples(X, TARGETS[name]), LocalTraining(1, 21, 0.5, 0.0, loss=name))
    w = given.model.initial
    rises = []
    for i in range(5):
        ahead, behind = (w + np.float32(s * 1e-2) * np.eye(len(w), dtype=np.float32)[i] for s in (1, -1))
        rises.append((given.loss(ahead) - given.loss(behind)) / 2e-2)
    np.testing.assert_allclose(given.gradient(w)[:5], rises, atol=1e-3)
    np.testing.assert_allclose(given.sgd(w)[0], w - 0.5 * given.gradient(w), atol=1e-6)
    assert given.loss(given.sgd(w, epochs=30)[0]) < given.loss(w) * 0.9


def test_cross_entropy_is_torchs_own_mean_to_the_bit() -> None:
    outputs = torch.randn(13, 5, generator=torch.Generator().manual_seed(0)).requires_grad_()
    y = torch.arange(13) % 5
    gradients = []
    for loss in (LOSSES["cross-entropy"].mean(outputs, y), cross_entropy(outputs, y)):
        (gradient,) = torch.autograd.grad(loss, outputs)
        gradients.append((loss.item(), gradient.numpy().tobytes()))
    assert gradients[0] == gradients[1]


@pytest.mark.parametrize("name", ["binary-cross-entropy", "squared-error", "absolute-error"])
@pytest.mark.parametrize("shape", [(5,), (5, 1)])
def test_one_target_and_one_output_may_each_have_an_axis_or_none(name: str, shape: tuple[int, ...]) -> None:
    y = torch.tensor([0.0, 1.0, 1.0, 0.0, 1.0])
    outputs = torch.linspace(-1, 1, 5)
    expected = LOSSES[name].per_sample(outputs, y)
    assert expected.shape == (5,)
    assert torch.equal(LOSSES[name].per_sample(outputs.reshape(shape), y.reshape(5, 1)), expected)
    assert torch.equal(LOSSES[name].per_sample(outputs.reshape(shape), y), expected)


def test_the_names_of_losses_are_those_that_can_be_found() -> None:
    assert tuple(LOSSES) == LOSS_NAMES


def test_the_usual_loss_leaves_the_content_of_a_run_as_it_was() -> None:
    assert "loss" not in content(LocalTraining())
    assert content(LocalTraining(loss="squared-error"))["loss"] == "squared-error"


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module with losses of a user's own."""
    (tmp_path / "own_losses.py").write_text(
        "from torch.nn.functional import cross_entropy\n"
        "from pacfl.learning.losses import Loss\n"
        "def smooth(outputs, y):\n"
        "    return cross_entropy(outputs, y, reduction='none', label_smoothing=0.1)\n"
        "def cubic(outputs, y):\n"
        "    return (outputs - y).abs().pow(3).mean(dim=1)\n"
        "cubic.targets = 'values'\n"
        "same = Loss(cubic, 'values')\n"
        "number = 3\n"
        "def scalar(outputs, y):\n"
        "    return smooth(outputs, y).mean()\n"
        "def vague(outputs, y):\n"
        "    return outputs\n"
        "vague.targets = 'words'\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    return "own_losses"


def test_a_loss_may_be_a_plugin(plugin: str) -> None:
    assert find_loss(f"{plugin}:smooth").targets == "classes"
    assert find_loss(f"{plugin}:cubic") == find_loss(f"{plugin}:same")
    given = context(Samples(X, TARGETS["squared-error"]), LocalTraining(30, 7, 0.1, loss=f"{plugin}:cubic"))
    assert given.loss(given.sgd(given.model.initial)[0]) < given.loss(given.model.initial) * 0.9


@pytest.mark.parametrize(
    ("name", "message"), [("number", "must be a function"), ("vague", "targets of loss"), ("absent", "cannot be impo")]
)
def test_what_is_no_loss_is_refused(plugin: str, name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        find_loss(f"{plugin}:{name}")


def test_a_loss_that_is_not_one_for_each_sample_is_refused(plugin: str) -> None:
    with pytest.raises(ModelError, match=r"one number for each sample, shape \(n,\); for n = 1 it gave shape \(\)"):
        check_outputs(net(), Samples(X, TARGETS["cross-entropy"]), 2, find_loss(f"{plugin}:scalar"))


def test_an_unknown_loss_is_refused_when_settings_are_read() -> None:
    with pytest.raises(ConfigError, match=r"no loss 'squared' \(did you mean 'squared-error'"):
        LocalTraining(loss="squared")


def test_another_loss_trains_with_the_eager_engine(caplog: pytest.LogCaptureFixture) -> None:
    model = as_model(lambda: nn.Sequential(nn.Linear(4, 2)), 0)
    learning = LocalTraining(loss="squared-error")
    assert isinstance(build_engine("auto", model, (4,), learning=learning), Eager)
    assert "its loss is squared-error, not cross-entropy" in caplog.text
    with pytest.raises(ModelError, match="its loss is squared-error"):
        build_engine("native", model, (4,), learning=learning)


@pytest.mark.parametrize(
    ("name", "y", "outputs", "message"),
    [
        ("squared-error", X[:, :3], 2, r"shape \(1, 2\).*, a target has 3 values; .* values of shape \(n, 3\)"),
        ("squared-error", X[:, 0], 2, r"a target has 1 values; .* values of shape \(n, 1\)"),
        ("binary-cross-entropy", X[:, :2], 2, "labels that are 0 or 1, the targets have .* set loss to"),
        ("cross-entropy", X[:, 0], 2, "for classes, integers .*; the targets are float32 of shape .* squared-error"),
        ("cross-entropy", TARGETS["cross-entropy"][:, None], 2, r"int64 of shape \(21, 1\)"),
        ("cross-entropy", TARGETS["cross-entropy"], 1, "the data have 2 classes"),
    ],
)  # fmt: skip
def test_outputs_that_do_not_fit_the_targets_are_refused(name: str, y: np.ndarray, outputs: int, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        check_outputs(nn.Linear(4, outputs), Samples(X, y), 2, LOSSES[name])


@pytest.mark.parametrize("name", LOSS_NAMES)
def test_outputs_that_fit_are_accepted(name: str) -> None:
    check_outputs(net(), Samples(X, TARGETS[name]), 2, LOSSES[name])


def test_a_model_needs_an_output_for_every_class_or_value() -> None:
    per_class, per_value = LOSSES["cross-entropy"], Loss(LOSSES["squared-error"].per_sample, "values")
    assert (per_class.n_outputs((), 10), per_value.n_outputs((), 10), per_value.n_outputs((3,), 10)) == (10, 1, 3)


# Integer samples

WORDS = RNG.integers(0, 12, (40, 6))
TEXT = Samples(WORDS, (np.isin(WORDS, (3, 4)).sum(axis=1) > 0).astype(np.int64))


class Pooled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.last = nn.Embedding(12, 8), nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.last(self.words(x).mean(dim=1))
        return logits


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.cell, self.last = nn.Embedding(12, 8), nn.LSTM(8, 8, batch_first=True), nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.last(self.cell(self.words(x))[0][:, -1])
        return logits


class Transformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.last = nn.Embedding(12, 8), nn.Linear(8, 2)
        self.place = nn.Parameter(torch.zeros(6, 8))
        self.block = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.last(self.block(self.words(x) + self.place).mean(dim=1))
        return logits


@pytest.mark.parametrize("build", [Pooled, Recurrent, Transformer])
def test_models_of_tokens_train(build: Callable[[], nn.Module]) -> None:
    check_outputs(build(), TEXT, 2)
    given = context(TEXT, LocalTraining(epochs=20, batch_size=10, lr=0.1, momentum=0.9), build)
    trained, _ = given.sgd(given.model.initial)
    assert given.loss(trained) < 0.8 * given.loss(given.model.initial)
    assert np.abs(given.gradient(trained)).max() > 0


def test_integer_samples_train_with_the_eager_engine(caplog: pytest.LogCaptureFixture) -> None:
    model = as_model(Pooled, 0)
    assert isinstance(build_engine("auto", model, (6,), integers=True), Eager)
    assert "its samples are integers" in caplog.text


@pytest.mark.parametrize(
    ("samples", "build", "advice"),
    [
        (
            Samples(WORDS.astype(np.float32), TEXT.y),
            Pooled,
            "take one float32 .* give integer samples, and normalise = none",
        ),
        (Samples(WORDS + 7, TEXT.y), Pooled, "a row for every token id; the largest one is 18"),
        (TEXT, lambda: nn.Linear(6, 2), "take one int64 tensor .* begin with nn.Embedding; .* give float32"),
    ],
)
def test_models_that_do_not_take_the_samples_get_advice(
    samples: Samples, build: Callable[[], nn.Module], advice: str
) -> None:
    with pytest.raises(ModelError, match=advice):
        check_outputs(build(), samples, 2)
