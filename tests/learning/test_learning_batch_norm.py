"""Batch normalisation: running statistics are part of the model, and no gradient changes them."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from pacfl.errors import ModelError
from pacfl.learning.client_context import ClientContext, LocalTraining, Samples
from pacfl.learning.eager import Eager, check_outputs
from pacfl.learning.engines import build_engine
from pacfl.learning.model import Model, Vector, as_model
from pacfl.learning.randomness import batch_order, batches, count_steps, stream

RNG = np.random.default_rng(0)
X = (3 * RNG.normal(size=(21, 1, 4, 4)) + 1).astype(np.float32)
TRAIN = Samples(X, (X.mean(axis=(1, 2, 3)) > 1).astype(np.int64))


def images() -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten(), nn.Linear(12, 2))


def table() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(16, 5), nn.BatchNorm1d(5, affine=False), nn.ReLU(), nn.Linear(5, 2))


def instances() -> nn.Module:
    norm = nn.InstanceNorm2d(3, affine=True, track_running_stats=True)
    return nn.Sequential(nn.Conv2d(1, 3, 3), norm, nn.Flatten(), nn.Linear(12, 2))


class Twice(nn.Module):
    """One layer of normalisation that a sample passes twice."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(16, 5), nn.BatchNorm1d(5), nn.Linear(5, 2)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.last(self.norm(self.norm(self.first(x.flatten(1))).relu()))
        return logits


NETS: dict[str, Callable[[], nn.Module]] = {"images": images, "table": table, "instances": instances, "twice": Twice}


def context(model: Model, learning: LocalTraining, train: Samples = TRAIN) -> ClientContext:
    engine = build_engine("eager", model, train.x.shape[1:], learning=learning)
    return ClientContext(model, train, learning, engine, (0, 0, 0), train.x)


def by_torch(model: Model, learning: LocalTraining, train: Samples) -> nn.Module:
    """The module after torch's own training."""
    module = model.build().train()
    rates = {"lr": learning.lr, "weight_decay": learning.weight_decay}
    optimiser = (
        torch.optim.AdamW(module.parameters(), **rates)
        if learning.optimiser == "adamw"
        else torch.optim.SGD(module.parameters(), momentum=learning.momentum, **rates)
    )
    n = len(train.y)
    for epoch in torch.from_numpy(batch_order(n, learning.epochs, stream(0, "batches", 0, 0))):
        for batch in batches(n, learning.batch_size, model.least_batch):
            rows = epoch[batch]
            optimiser.zero_grad()
            cross_entropy(module(torch.from_numpy(train.x)[rows]), torch.from_numpy(train.y)[rows]).backward()
            optimiser.step()
    return module.eval()


@pytest.mark.parametrize("name", NETS)
@pytest.mark.parametrize(
    "learning",
    [LocalTraining(3, 8, 0.1, 0.9, 0.1), LocalTraining(3, 8, 0.01, weight_decay=0.1, optimiser="adamw")],
    ids=["sgd", "adamw"],
)
def test_training_is_that_of_the_module_statistics_included(name: str, learning: LocalTraining) -> None:
    model = as_model(NETS[name], 0)
    expected = by_torch(model, learning, TRAIN)
    given = context(model, learning)
    trained, _ = given.sgd(model.initial)
    state = model.module(trained).state_dict()
    for key, value in expected.state_dict().items():
        if "num_batches" not in key:
            torch.testing.assert_close(state[key], value, rtol=0, atol=1e-5)
    assert np.abs(trained - model.initial)[model.statistics].min() > 1e-4
    with torch.no_grad():
        outputs = expected(torch.from_numpy(X)).numpy()
    np.testing.assert_allclose(given.engine.evaluate(trained, TRAIN)[0], outputs, rtol=0, atol=1e-4)


@pytest.mark.parametrize("name", NETS)
def test_statistics_follow_the_weights_of_their_layer(name: str) -> None:
    """So that the last layers of a model have their own statistics and no others."""
    model = as_model(NETS[name], 0)
    ends = [0, *(layer.stop for layer in model.layers.values())]
    assert [layer.start for layer in model.layers.values()] == ends[:-1]
    assert ends[-1] == len(model.initial)
    assert not model.statistics[model.tail(1)].any()
    assert model.statistics.sum() == 2 * {"images": 3, "instances": 3}.get(name, 5)
    weights = sum(p.numel() for p in model.build().parameters())
    assert len(model.initial) == weights + model.statistics.sum()


def all_terms(model: Model) -> dict[str, Any]:
    anchor, correction = np.random.default_rng(1).normal(size=(2, len(model.initial))).astype(np.float32)
    return {"prox": (0.5, anchor), "gradient_correction": correction}


@pytest.mark.parametrize("name", NETS)
def test_no_term_and_no_weight_decay_moves_statistics(name: str) -> None:
    """After one step over all samples they are those of the first forward pass, whatever else the step is."""
    model = as_model(NETS[name], 0)
    plain, _ = context(model, LocalTraining(1, 21, 0.1, 0.0)).sgd(model.initial)
    changed, _ = context(model, LocalTraining(1, 21, 0.3, 0.9, 0.1)).sgd(model.initial, **all_terms(model))
    assert changed[model.statistics].tobytes() == plain[model.statistics].tobytes()
    assert np.abs(changed - plain)[~model.statistics].max() > 1e-3
    assert not context(model, LocalTraining()).gradient(model.initial)[model.statistics].any()


@pytest.mark.parametrize("name", NETS)
def test_a_mask_also_excludes_statistics(name: str) -> None:
    model = as_model(NETS[name], 0)
    head = np.zeros(len(model.initial), dtype=bool)
    head[model.tail(1)] = True
    trained, _ = context(model, LocalTraining(2, 8, 0.1, 0.9, 0.1)).sgd(model.initial, mask=head, **all_terms(model))
    assert trained[~head].tobytes() == model.initial[~head].tobytes()
    body, _ = context(model, LocalTraining(2, 8, 0.1)).sgd(model.initial, mask=~head)
    assert np.abs(body - model.initial)[model.statistics].min() > 0


@pytest.mark.parametrize("name", NETS)
def test_an_inner_step_sees_both_halves_and_trains(name: str) -> None:
    model = as_model(NETS[name], 0)
    given = context(model, LocalTraining(10, 8, 0.05))
    trained, _ = given.sgd(model.initial, inner_step=0.01)
    assert given.loss(trained) < given.loss(model.initial)
    assert np.abs(trained - model.initial)[model.statistics].min() > 0
    small = context(model, LocalTraining(1, 3, 0.1), Samples(X[:3], TRAIN.y[:3]))  # half of it is one sample
    assert np.isfinite(small.sgd(model.initial, inner_step=0.01)[0]).all()


def test_an_engine_has_no_state() -> None:
    model = as_model(images, 0)
    given = context(model, LocalTraining(2, 8, 0.1))
    first = given.sgd(model.initial)[0].tobytes(), given.loss(model.initial)
    given.gradient(model.initial)
    assert (given.sgd(model.initial)[0].tobytes(), given.loss(model.initial)) == first


# Batches of one sample


@pytest.mark.parametrize(
    ("n", "size", "least", "lengths"),
    [
        (11, 10, 1, [10, 1]),
        (11, 10, 2, [11]),
        (12, 10, 2, [10, 2]),
        (21, 10, 2, [10, 11]),
        (1, 10, 2, []),
        (2, 10, 2, [2]),
        (0, 10, 1, []),
    ],
)
def test_a_last_batch_that_is_too_small_joins_the_one_before(n: int, size: int, least: int, lengths: list[int]) -> None:
    made = batches(n, size, least)
    assert [batch.stop - batch.start for batch in made] == lengths
    assert [i for batch in made for i in range(n)[batch]] == (list(range(n)) if lengths else [])
    assert count_steps(n, 3, size, least) == 3 * len(lengths)


@pytest.mark.parametrize("name", ["images", "table"])
@pytest.mark.parametrize("n", [11, 501])
def test_eleven_samples_train_in_batches_of_ten(name: str, n: int) -> None:
    model = as_model(NETS[name], 0)
    x = np.resize(X, (n, *X.shape[1:]))
    train = Samples(x, np.resize(TRAIN.y, n))
    learning = LocalTraining(2, 10, 0.01)
    trained, steps = context(model, learning, train).sgd(model.initial)
    assert steps == 2 * (n // 10)
    expected = by_torch(model, learning, train).state_dict()
    for key, value in model.module(trained).state_dict().items():
        if "num_batches" not in key:
            torch.testing.assert_close(value, expected[key], rtol=0, atol=1e-5)
    assert np.isfinite(context(model, learning, train).gradient(model.initial)).all()


def test_a_client_with_one_sample_takes_no_step() -> None:
    model = as_model(table, 0)
    given = context(model, LocalTraining(2, 10, 0.01), Samples(X[:1], TRAIN.y[:1]))
    trained, steps = given.sgd(model.initial)
    assert (steps, trained.tobytes()) == (0, model.initial.tobytes())
    assert not given.gradient(model.initial).any()


def test_a_batch_size_of_one_is_refused() -> None:
    with pytest.raises(ModelError, match="batch-size = 1 leaves batch normalisation without statistics; use 2 at"):
        build_engine("auto", as_model(table, 0), (1, 4, 4), learning=LocalTraining(batch_size=1))
    build_engine("eager", as_model(instances, 0), (1, 4, 4), learning=LocalTraining(batch_size=1))


# What is known before training


@pytest.mark.parametrize("name", NETS)
def test_such_models_pass_the_check_of_outputs_and_train_eagerly(name: str, caplog: pytest.LogCaptureFixture) -> None:
    model = as_model(NETS[name], 0)
    assert check_outputs(model.build(), TRAIN, 2) == 2
    assert isinstance(build_engine("auto", model, (1, 4, 4)), Eager)
    assert "native one does not support" in caplog.text


def test_cumulative_statistics_are_refused() -> None:
    with pytest.raises(ModelError, match=r"layer '0' .BatchNorm1d. has momentum=None: .* give it a momentum"):
        as_model(lambda: nn.Sequential(nn.BatchNorm1d(4, momentum=None), nn.Linear(4, 2)), 0)


def test_the_module_of_a_vector_has_its_statistics() -> None:
    model = as_model(images, 0)
    w: Vector = np.abs(RNG.normal(size=model.initial.shape)).astype(np.float32)
    module = model.module(w)
    norm = module.get_submodule("1")
    assert w[model.statistics].tolist() == [*norm.get_buffer("running_mean"), *norm.get_buffer("running_var")]
    assert w[~model.statistics].tolist() == [v for p in module.parameters() for v in p.detach().flatten().tolist()]


def test_local_is_for_models_that_have_statistics() -> None:
    model = as_model(images, 0, "local")
    assert model.local.sum() == 4 * 3  # weights, biases, means and variances
    assert not as_model(images, 0).local.any()
    with pytest.raises(ModelError, match="batch-norm = local is for models with normalisation layers"):
        as_model(lambda: nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.Linear(4, 2)), 0, "local")
