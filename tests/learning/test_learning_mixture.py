"""A mixture predicts the weighted sum of what its models predict, wherever it is evaluated or exported."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from scipy.special import expit, softmax
from torch import nn

import pacfl
from pacfl.data.preprocessing import Preprocessing
from pacfl.errors import ModelError
from pacfl.exporting.formats import load_graph, write_model
from pacfl.federation.algorithm import Algorithm
from pacfl.federation.client_side import ClientSide
from pacfl.federation.message import Message
from pacfl.federation.schedule import Schedule
from pacfl.learning.client_context import ClientContext, Samples
from pacfl.learning.eager import Eager
from pacfl.learning.losses import find_loss
from pacfl.learning.mixture import Mixture, Weights, each, evaluate, mixed, mixture, module
from pacfl.learning.model import as_model
from tests.small_federation import model, pool, run_rounds, same, side

WEIGHTS = np.array([0.7, 0.0, 0.3], dtype=np.float32)
MEANT = {"classes": lambda o: softmax(o, axis=-1), "labels": expit, "values": lambda o: o}
LOSS_OF = {"classes": "cross-entropy", "labels": "binary-cross-entropy", "values": "squared-error"}


def three(seed: int = 0) -> np.ndarray:
    """Models that differ."""
    return np.stack([model().fresh(seed + i) for i in range(3)])


@pytest.mark.parametrize("targets", list(MEANT))
def test_predictions_are_summed_with_the_weights(targets: Any) -> None:
    """Probabilities of classes and labels, values as they are; a model without weight has no part."""
    outputs = np.random.default_rng(0).normal(scale=5, size=(3, 40, 4)).astype(np.float32)
    expected = sum(
        weight * MEANT[targets](own.astype(np.float64)) for weight, own in zip(WEIGHTS, outputs, strict=True)
    )
    np.testing.assert_allclose(MEANT[targets](mixed(list(outputs), WEIGHTS, targets)), expected, atol=1e-6)


@pytest.mark.parametrize("targets", ["classes", "labels"])
def test_certain_models_that_disagree_are_mixed_without_overflow(targets: Any) -> None:
    """Logits of ±1000: one model is sure of the first, with weight 0.7, the other of the second."""
    sure = np.array([[[1000, -1000]], [[-1000, 1000]]], dtype=np.float32)
    logits = mixed(list(sure), np.float32([0.7, 0.3]), targets)
    np.testing.assert_allclose(MEANT[targets](logits), [[0.7, 0.3]], atol=1e-6)


@pytest.mark.parametrize("targets", list(MEANT))
def test_a_mixture_as_one_module_computes_what_is_evaluated(targets: Any) -> None:
    x = pool().test.x[:20]
    y: Any = pool().test.y[:20] if targets == "classes" else (pool().test.x[:20, 0, :2, :5] > 0).reshape(20, 10)
    samples = Samples(x, y if targets == "classes" else y.astype(np.float32))
    loss, w = find_loss(LOSS_OF[targets]), Mixture(three(), WEIGHTS)
    outputs, losses = evaluate(Eager(model(), loss=loss), w, samples, loss)
    with torch.no_grad():
        found = module(model(), w, targets)(torch.from_numpy(x))
        expected = loss.per_sample(found, torch.from_numpy(samples.y))
    np.testing.assert_allclose(found.numpy(), outputs, atol=1e-5)
    np.testing.assert_allclose(losses, expected.numpy(), atol=1e-5)


def test_a_single_model_is_no_mixture() -> None:
    models = three()[:1]
    assert mixture(models, np.ones(1)) is not models
    assert same(mixture(models, np.ones(1)), models[0])
    assert same(each(lambda w: 2 * w, models[0]), 2 * models[0])
    both = mixture(three()[:2], np.array([3, 1]))
    assert isinstance(both, Mixture)
    assert both.weights.tolist() == [0.75, 0.25]
    doubled = each(lambda w: 2 * w, both)
    assert isinstance(doubled, Mixture)
    assert same(doubled.models, 2 * both.models)
    assert same(doubled.weights, both.weights)


@pytest.mark.parametrize("format", ["torch", "onnx"])
def test_a_mixture_is_exported_as_one_graph(format: Any) -> None:  # noqa: A002 - the word for it
    if format == "onnx":
        pytest.importorskip("onnxruntime")
        pytest.importorskip("onnxscript")
    inputs = Preprocessing((1, 8, 8), "float32", "input")
    own, x = module(model(), Mixture(three(), WEIGHTS), "classes"), pool().test.x[:5]
    with torch.no_grad():
        expected = own(torch.from_numpy(x)).numpy()
    np.testing.assert_allclose(load_graph(write_model(own, inputs, format), format)(x), expected, atol=1e-5)


def test_weights_alone_do_not_make_a_mixture() -> None:
    inputs = Preprocessing((1, 8, 8), "float32", "input")
    own = module(model(), Mixture(three(), WEIGHTS), "classes")
    with pytest.raises(ModelError, match="this is a mixture of 2; export it as torch or onnx"):
        write_model(own, inputs, "safetensors")


# In a federation


@dataclass(frozen=True)
class Half(Algorithm):
    """A method of somebody else: the shared model and the initial one have a vote each."""

    mixes: ClassVar[bool] = True

    def receive(self, context: ClientContext, down: Message, memory: Message) -> Weights:  # noqa: ARG002
        return mixture(np.stack([down["w"], context.model.initial]), np.ones(2))


def test_all_protocols_score_the_mixture() -> None:
    """The loss of what halves of both models predict; fine-tuning trains each of them, and the weights stay."""
    schedule = Schedule(rounds=2, participation=0.5, newcomers=2, fine_tune=1)
    *_, end, after = run_rounds(Half(), schedule)
    assert set(after.scores) == {"received", "last_trained", "personal", "fine_tuned"}
    clients: ClientSide = side(Half())
    for c, score in end.scores["received"].items():
        rows = clients.pool.client_indices[c].test
        test = Samples(pool().test.x[rows], pool().test.y[rows])
        pair = [Eager(model()).evaluate(w, test)[0] for w in (end.state.models[0], model().initial)]
        probabilities = np.mean([softmax(own.astype(np.float64), axis=1) for own in pair], axis=0)
        assert score.loss == pytest.approx(-np.log(probabilities[np.arange(len(rows)), test.y]).mean(), abs=1e-5)
    assert after.scores["fine_tuned"] != after.scores["received"]
    assert after.scores["fine_tuned"] == after.scores["personal"], "an epoch of plain training is the default for both"


def net() -> nn.Module:
    return nn.Linear(4, 3)


def test_a_result_has_and_stores_the_mixture_of_a_client(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(30, 4)), rng.integers(0, 3, 30)
    result = pacfl.federate({"a": (x, y, x, y), "b": (-x, y, -x, y)}, net, Half(), rounds=2)
    own = result.module("a")
    sent, initial = result._loaded.stored.models[0], as_model(net, 0).initial
    inside = torch.from_numpy(result.preprocess(x, "a"))
    with torch.no_grad():
        pair = [as_model(net, 0).module(w)(inside).softmax(dim=1) for w in (sent, initial)]
        np.testing.assert_allclose(own(inside).softmax(dim=1), (pair[0] + pair[1]) / 2, atol=1e-6)
        result.save(tmp_path / "result")
        loaded = pacfl.load(tmp_path / "result", module=net)
        assert torch.equal(loaded.module("a")(inside), own(inside))
    manifest = pacfl.export(result, tmp_path / "export")
    assert [file.file for file in manifest.files] == ["client-a.pt2", "client-b.pt2"]
    found = pacfl.predict(tmp_path / "export", x, client="a")
    np.testing.assert_allclose(found.probabilities, own(inside).softmax(dim=1).detach().numpy(), atol=1e-5)
    with pytest.raises(ModelError, match="a mixture of 2"):
        pacfl.export(result, tmp_path / "weights", format="safetensors")
