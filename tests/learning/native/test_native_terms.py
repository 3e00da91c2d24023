"""Masks, weights of samples and frozen parameters, against a loop written for them in float64."""

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - its usual name
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from pacfl.errors import ModelError
from pacfl.learning.client_context import GradientTerms, LocalTraining, Samples
from pacfl.learning.eager import Eager
from pacfl.learning.model import Vector, as_model
from pacfl.learning.native.engine import Native
from pacfl.learning.native.reading import read_plan
from tests.learning.native.test_native_engine import NETS, engine, model, samples, somewhere, terms

N = 18
LEARNING = LocalTraining(batch_size=4, lr=0.01, momentum=0.5, weight_decay=0.01)
ORDER = np.stack([np.random.default_rng(i).permutation(N) for i in range(6)])
WHAT = ["plain", "prox", "gradient_correction", "inner_step", "all"]


def mask(name: str) -> np.ndarray:
    return somewhere(name, 5, 1.0) > 0


def weights() -> np.ndarray:
    """Some of them zero."""
    return np.random.default_rng(6).choice([0, 0.5, 1.5, 3], N).astype(np.float32)


def loop(module: nn.Module, w: Vector, given: Samples, changed: GradientTerms) -> Vector:
    """Steps as `ClientContext.sgd` defines them, with autograd in float64."""
    module = module.double()
    x, y = torch.tensor(given.x).double(), torch.tensor(given.y)
    weight = torch.ones(N) if changed.sample_weight is None else torch.tensor(changed.sample_weight)
    trained = torch.ones(len(w)) if changed.mask is None else torch.tensor(changed.mask).float()

    def gradient(at: Tensor, rows: np.ndarray) -> Tensor:
        vector_to_parameters(at, module.parameters())
        loss = (weight[rows] * F.cross_entropy(module(x[rows]), y[rows], reduction="none")).sum() / len(rows)
        return parameters_to_vector(torch.autograd.grad(loss, list(module.parameters()))).detach() * trained

    now, v = torch.tensor(w).double(), torch.zeros(len(w))
    for epoch in ORDER:
        for rows in (epoch[i : i + LEARNING.batch_size] for i in range(0, N, LEARNING.batch_size)):
            half = len(rows) // 2
            if changed.inner_step is None:
                g = gradient(now, rows)
            else:
                g = gradient(now - changed.inner_step * gradient(now, rows[:half]), rows[half:])
            g = g + LEARNING.weight_decay * now
            if changed.prox is not None:
                g = g + changed.prox[0] * (now - torch.tensor(changed.prox[1]))
            if changed.gradient_correction is not None:
                g = g + torch.tensor(changed.gradient_correction)
            v = LEARNING.momentum * v + g * trained
            now = now - LEARNING.lr * v
    return now.numpy()


@pytest.mark.parametrize("what", WHAT)
@pytest.mark.parametrize("name", ["lenet5-grey", "padded", "alone", "flat"])
def test_weights_outside_a_mask_stay_to_the_bit_and_the_others_train(name: str, what: str) -> None:
    """Also with weight decay and momentum, and with NaN for what is added to their gradient."""
    w, only = model(name).initial, mask(name)
    changed = replace(terms(name)[what], mask=only)
    trained = engine(name).sgd(w, samples(name, N), ORDER, LEARNING, changed)
    assert trained[~only].tobytes() == w[~only].tobytes()
    assert np.abs(trained - w)[only].max() > 1e-3
    np.testing.assert_allclose(trained, loop(model(name).build(), w, samples(name, N), changed), rtol=0, atol=1e-5)
    if changed.gradient_correction is not None:
        wild = np.where(only, changed.gradient_correction, np.float32(np.nan))
        again = engine(name).sgd(w, samples(name, N), ORDER, LEARNING, replace(changed, gradient_correction=wild))
        assert again.tobytes() == trained.tobytes()


@pytest.mark.parametrize("what", WHAT)
@pytest.mark.parametrize("name", ["lenet5-grey", "padded", "alone", "flat"])
def test_the_loss_of_a_batch_is_the_mean_of_weight_times_loss(name: str, what: str) -> None:
    w, changed = model(name).initial, replace(terms(name)[what], sample_weight=weights())
    trained = engine(name).sgd(w, samples(name, N), ORDER, LEARNING, changed)
    np.testing.assert_allclose(trained, loop(model(name).build(), w, samples(name, N), changed), rtol=0, atol=1e-5)
    unweighted = engine(name).sgd(w, samples(name, N), ORDER, LEARNING, terms(name)[what])
    assert np.abs(trained - unweighted).max() > 1e-4


@pytest.mark.parametrize("what", WHAT)
@pytest.mark.parametrize("name", NETS)
def test_all_weights_in_the_mask_and_samples_of_weight_one_change_no_bit(name: str, what: str) -> None:
    w, given = model(name).initial, samples(name, N)
    all_of_it = replace(terms(name)[what], mask=np.ones(len(w), dtype=bool), sample_weight=np.ones(N, np.float32))
    trained = [engine(name).sgd(w, given, ORDER, LEARNING, t).tobytes() for t in (terms(name)[what], all_of_it)]
    assert trained[0] == trained[1]


@pytest.mark.parametrize("name", ["lenet5-grey", "padded", "alone", "flat"])
def test_masks_and_weights_are_those_of_the_eager_engine(name: str) -> None:
    w, given = model(name).initial, samples(name, N)
    changed = replace(terms(name)["all"], mask=mask(name), sample_weight=weights())
    ours, theirs = (e.sgd(w, given, ORDER, LEARNING, changed) for e in (engine(name), Eager(model(name))))
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-5)


def test_samples_of_weight_zero_do_not_count() -> None:
    name = "padded"
    w, weight, given = model(name).initial, weights(), samples(name, N)
    others = Samples(np.where((weight == 0)[:, None, None, None], np.float32(9), given.x), given.y)
    trained = [engine(name).sgd(w, s, ORDER, LEARNING, GradientTerms(sample_weight=weight)) for s in (given, others)]
    assert trained[0].tobytes() == trained[1].tobytes()


def half_frozen() -> nn.Module:
    """A convolution's weights and a bias of a dense layer are frozen."""
    module = NETS["padded"][0]()
    frozen = dict(module.named_parameters())
    for name in ("0.weight", "9.bias"):
        frozen[name].requires_grad_(requires_grad=False)
    return module


def test_frozen_parameters_do_not_move() -> None:
    """Whether or not a mask includes them; their gradient is zero."""
    name = "padded"
    w, given = model(name).initial, samples(name, N)
    frozen = np.concatenate([np.full(p.numel(), not p.requires_grad) for p in half_frozen().parameters()])
    native = Native(read_plan(half_frozen(), NETS[name][1]))
    for changed in terms(name).values():
        trained = native.sgd(w, given, ORDER, LEARNING, changed)
        assert trained[frozen].tobytes() == w[frozen].tobytes()
        masked = engine(name).sgd(w, given, ORDER, LEARNING, replace(changed, mask=~frozen))
        assert trained.tobytes() == masked.tobytes()
        assert np.abs(trained - w)[~frozen].max() > 1e-3
    both = native.sgd(w, given, ORDER, LEARNING, GradientTerms(mask=mask(name)))
    expected = engine(name).sgd(w, given, ORDER, LEARNING, GradientTerms(mask=mask(name) & ~frozen))
    assert both.tobytes() == expected.tobytes()
    gradient = native.gradient(w, given)
    assert not gradient[frozen].any()
    assert gradient[~frozen].tobytes() == engine(name).gradient(w, given)[~frozen].tobytes()


def test_wrong_masks_and_weights_are_refused() -> None:
    w, given = model("flat").initial, samples("flat", N)

    def train(changed: GradientTerms) -> None:
        engine("flat").sgd(w, given, ORDER, LEARNING, changed)

    with pytest.raises(ValueError, match=rf"mask must be {len(w)} booleans, got bool of shape \({len(w) - 1},\)"):
        train(GradientTerms(mask=mask("flat")[1:]))
    with pytest.raises(ValueError, match="booleans, got float32"):
        train(GradientTerms(mask=mask("flat").astype(np.float32)))  # type: ignore[arg-type]  # refused
    with pytest.raises(ValueError, match=r"one weight for each of 18 samples, got shape \(17,\)"):
        train(GradientTerms(sample_weight=weights()[1:]))
    with pytest.raises(ModelError, match=r"local_step.*engine = eager or auto"):
        train(GradientTerms(local_step=lambda module, x, y: module(x).sum() + y.sum()))
    for other in (replace(LEARNING, loss="squared-error"), replace(LEARNING, optimiser="adam", momentum=0.0)):
        with pytest.raises(ModelError, match=f"got {other.optimiser} on {other.loss}; use engine = eager or auto"):
            engine("flat").sgd(w, given, ORDER, other)


def test_no_weight_may_be_in_the_mask() -> None:
    w = as_model(NETS["flat"][0], 3).initial
    nothing = GradientTerms(mask=np.zeros(len(w), dtype=bool))
    assert engine("flat").sgd(w, samples("flat", N), ORDER, LEARNING, nothing).tobytes() == w.tobytes()
