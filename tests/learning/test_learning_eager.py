from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from pacfl.errors import DivergedError
from pacfl.learning.client_context import ClientContext, LocalTraining, Samples
from pacfl.learning.eager import Eager
from pacfl.learning.model import Model, Vector, as_model
from pacfl.learning.randomness import batch_order, stream

Gradient = Callable[[Tensor], Tensor]  # at a vector


def net() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3))


def dropping() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(6, 3))


@pytest.fixture
def train() -> Samples:
    """21 samples: with a batch of 8 the last one of an epoch has 5."""
    rng = np.random.default_rng(1)
    return Samples(rng.normal(size=(21, 1, 2, 3)).astype(np.float32), rng.integers(0, 3, 21))


def context(
    train: Samples,
    learning: LocalTraining,
    build: Callable[[], nn.Module] = net,
    key: tuple[int, int, int] = (5, 2, 7),
) -> ClientContext:
    model = as_model(build, 0)
    return ClientContext(model, train, learning, Eager(model), key, train.x)


def orders(given: ClientContext, purpose: str = "batches") -> Iterator[Tensor]:
    """The batches of a context: by seed, purpose, round and client."""
    seed, t, client = given.key
    order = batch_order(given.n_samples, given.learning.epochs, stream(seed, purpose, t, client))
    for epoch in torch.from_numpy(order):
        yield from epoch.split(given.learning.batch_size)


def gradient_at(model: Model, samples: Samples, rows: Tensor) -> Gradient:
    """Gradient of the mean loss of some samples, as a function of the vector, by torch alone."""
    module = model.build()
    x, y = torch.from_numpy(samples.x)[rows], torch.from_numpy(samples.y)[rows]

    def gradient(w: Tensor) -> Tensor:
        vector_to_parameters(w, module.parameters())
        loss = cross_entropy(module(x), y)
        return parameters_to_vector(torch.autograd.grad(loss, list(module.parameters())))

    return gradient


def descended(given: ClientContext, step: Callable[[Tensor, Tensor], Tensor]) -> Vector:
    """The plain loop of SGD with momentum, the gradient of a batch being step(w, rows)."""
    w = torch.from_numpy(given.model.initial.copy())
    v = torch.zeros_like(w)
    for rows in orders(given):
        v = given.learning.momentum * v + step(w, rows)
        w = w - given.learning.lr * v
    return w.numpy()


@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.9])
@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
@pytest.mark.parametrize("batch", [1, 8, 50])
def test_training_is_torchs_own_sgd(train: Samples, momentum: float, weight_decay: float, batch: int) -> None:
    learning = LocalTraining(epochs=3, batch_size=batch, lr=0.1, momentum=momentum, weight_decay=weight_decay)
    given = context(train, learning)
    module = net()
    vector_to_parameters(torch.from_numpy(given.model.initial.copy()), module.parameters())
    optimiser = torch.optim.SGD(module.parameters(), lr=0.1, momentum=momentum, weight_decay=weight_decay)
    n_steps = 0
    for rows in orders(given):
        optimiser.zero_grad()
        cross_entropy(module(torch.from_numpy(train.x)[rows]), torch.from_numpy(train.y)[rows]).backward()
        optimiser.step()
        n_steps += 1
    expected = parameters_to_vector(module.parameters()).detach().numpy()
    trained, steps = given.sgd(given.model.initial)
    assert steps == n_steps
    np.testing.assert_allclose(trained, expected, rtol=0, atol=1e-6)
    assert np.abs(trained - given.model.initial).max() > 0.01


LEARNING = LocalTraining(epochs=2, batch_size=8, lr=0.1, momentum=0.5)


def test_prox_adds_mu_times_the_distance_from_the_anchor(train: Samples) -> None:
    given = context(train, LEARNING)
    anchor = np.random.default_rng(2).normal(size=given.model.initial.shape).astype(np.float32)
    expected = descended(
        given,
        lambda w, rows: gradient_at(given.model, train, rows)(w) + 0.7 * (w - torch.from_numpy(anchor)),
    )
    trained, _ = given.sgd(given.model.initial, prox=(0.7, anchor))
    np.testing.assert_allclose(trained, expected, rtol=0, atol=1e-6)
    assert np.abs(trained - given.sgd(given.model.initial)[0]).max() > 0.01


def test_the_gradient_correction_is_added_to_every_gradient(train: Samples) -> None:
    given = context(train, LEARNING)
    gradient_correction = np.random.default_rng(3).normal(size=given.model.initial.shape).astype(np.float32)
    expected = descended(
        given, lambda w, rows: gradient_at(given.model, train, rows)(w) + torch.from_numpy(gradient_correction)
    )
    trained, _ = given.sgd(given.model.initial, gradient_correction=gradient_correction)
    np.testing.assert_allclose(trained, expected, rtol=0, atol=1e-6)
    assert np.abs(trained - given.sgd(given.model.initial)[0]).max() > 0.01


@pytest.mark.parametrize("batch", [8, 5])
def test_the_inner_step_takes_the_gradient_of_one_half_after_a_step_with_the_other(train: Samples, batch: int) -> None:
    """With a batch of 5 the last one has a single sample, which is both halves."""
    given = context(train, LocalTraining(epochs=2, batch_size=batch, lr=0.1, momentum=0.5))

    def step(w: Tensor, rows: Tensor) -> Tensor:
        half = len(rows) // 2
        first, second = (rows[:half], rows[half:]) if half else (rows, rows)
        ahead = w - 0.3 * gradient_at(given.model, train, first)(w)
        return gradient_at(given.model, train, second)(ahead)

    trained, _ = given.sgd(given.model.initial, inner_step=0.3)
    np.testing.assert_allclose(trained, descended(given, step), rtol=0, atol=1e-6)
    assert np.abs(trained - given.sgd(given.model.initial)[0]).max() > 0.001


def test_all_three_options_together(train: Samples) -> None:
    given = context(train, LEARNING)
    anchor, gradient_correction = (
        np.random.default_rng(4).normal(size=(2, *given.model.initial.shape)).astype(np.float32)
    )

    def step(w: Tensor, rows: Tensor) -> Tensor:
        half = len(rows) // 2
        ahead = w - 0.3 * gradient_at(given.model, train, rows[:half])(w)
        g = gradient_at(given.model, train, rows[half:])(ahead)
        return g + 0.7 * (w - torch.from_numpy(anchor)) + torch.from_numpy(gradient_correction)

    trained, _ = given.sgd(
        given.model.initial, prox=(0.7, anchor), gradient_correction=gradient_correction, inner_step=0.3
    )
    np.testing.assert_allclose(trained, descended(given, step), rtol=0, atol=1e-6)


@pytest.mark.parametrize("n", [1, 21, 1203])
def test_the_gradient_is_that_of_the_mean_loss(n: int) -> None:
    """1,203 samples take three blocks, the last a small one."""
    rng = np.random.default_rng(n)
    train = Samples(rng.normal(size=(n, 1, 2, 3)).astype(np.float32), rng.integers(0, 3, n))
    given = context(train, LEARNING)
    w = rng.normal(size=given.model.initial.shape).astype(np.float32)
    expected = gradient_at(given.model, train, torch.arange(n))(torch.from_numpy(w)).numpy()
    np.testing.assert_allclose(given.gradient(w), expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("n", [1, 21, 1203])
def test_losses_and_outputs_are_those_of_the_module(n: int) -> None:
    rng = np.random.default_rng(n)
    test = Samples(rng.normal(size=(n, 1, 2, 3)).astype(np.float32), rng.integers(0, 3, n))
    model = as_model(net, 0)
    w = rng.normal(size=model.initial.shape).astype(np.float32)
    module = net()
    vector_to_parameters(torch.from_numpy(w), module.parameters())
    with torch.no_grad():
        logits = module(torch.from_numpy(test.x))
        expected = cross_entropy(logits, torch.from_numpy(test.y), reduction="none").numpy()
    outputs, losses = Eager(model).evaluate(w, test)
    np.testing.assert_allclose(outputs, logits.detach().numpy(), rtol=0, atol=1e-6)
    np.testing.assert_allclose(losses, expected, rtol=0, atol=1e-6)
    given = context(test, LEARNING)
    assert given.loss(w) == pytest.approx(expected.mean(dtype=np.float64), abs=1e-6)


def test_training_is_a_function_of_its_key(train: Samples) -> None:
    w = context(train, LEARNING).model.initial
    trained = {
        key: context(train, LEARNING, key=key).sgd(w)[0].tobytes()
        for key in ((0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1))
    }
    assert len(set(trained.values())) == 4
    for key, expected in trained.items():
        assert context(train, LEARNING, key=key).sgd(w)[0].tobytes() == expected


def test_an_engine_has_no_state(train: Samples) -> None:
    given = context(train, LEARNING)
    w = given.model.initial
    fresh = given.sgd(w)[0].tobytes(), given.gradient(w).tobytes(), given.loss(w)
    gradient_correction = np.ones_like(w)
    given.sgd(
        w + 1,
        prox=(2.0, gradient_correction),
        gradient_correction=gradient_correction,
        inner_step=0.5,
        purpose="personal",
    )
    given.gradient(w - 1)
    assert (given.sgd(w)[0].tobytes(), given.gradient(w).tobytes(), given.loss(w)) == fresh


def test_purpose_and_epochs_are_used(train: Samples) -> None:
    given = context(train, LEARNING)
    w = given.model.initial
    assert given.sgd(w, purpose="personal")[0].tobytes() != given.sgd(w)[0].tobytes()
    assert given.sgd(w, epochs=5)[1] == 15
    trained, steps = given.sgd(w, epochs=0)
    assert steps == 0
    assert trained.tobytes() == w.tobytes()


def test_training_does_not_change_its_arguments(train: Samples) -> None:
    given = context(train, LEARNING)
    w, anchor, gradient_correction = (
        np.random.default_rng(0).normal(size=(3, *given.model.initial.shape)).astype(np.float32)
    )
    for array in (w, anchor, gradient_correction, train.x, train.y):
        array.flags.writeable = False
    before = w.tobytes(), train.x.tobytes()
    trained, _ = given.sgd(w, prox=(0.1, anchor), gradient_correction=gradient_correction, inner_step=0.1)
    assert (w.tobytes(), train.x.tobytes()) == before
    before = trained.tobytes()
    given.sgd(w)
    assert trained.tobytes() == before, "what was returned belongs to the caller"


def test_the_key_decides_dropout(train: Samples) -> None:
    w = as_model(dropping, 0).initial
    torch.manual_seed(1)
    first = context(train, LEARNING, dropping).sgd(w)[0]
    given = context(train, LEARNING, dropping)
    torch.manual_seed(2)
    state = torch.random.get_rng_state()
    again = given.sgd(w)[0]
    assert torch.equal(torch.random.get_rng_state(), state), "the caller's own random stream is unchanged"
    assert first.tobytes() == again.tobytes()
    other = context(train, LEARNING, dropping, key=(5, 3, 7)).sgd(w)[0]
    assert first.tobytes() != other.tobytes()


def test_random_layers_draw_what_torch_draws_from_the_seed(train: Samples) -> None:
    model, lr = as_model(dropping, 0), 0.1
    order = np.arange(len(train.y))[None]
    one_step = LocalTraining(batch_size=len(train.y), lr=lr)
    trained = Eager(model).sgd(model.initial, train, order, one_step, seed=7)
    module = model.build().train()
    torch.manual_seed(7)
    cross_entropy(module(torch.tensor(train.x)), torch.tensor(train.y)).backward()
    gradient = np.concatenate([p.grad.numpy().ravel() for p in module.parameters() if p.grad is not None])
    expected = torch.tensor(model.initial).sub(torch.tensor(gradient), alpha=lr)
    assert trained.tobytes() == expected.numpy().tobytes()


def test_dropout_is_active_in_training_only(train: Samples) -> None:
    given = context(train, LEARNING, dropping)
    without = context(train, LEARNING, lambda: nn.Sequential(nn.Flatten(), nn.Linear(6, 3)))
    w = given.model.initial
    assert given.sgd(w)[0].tobytes() != without.sgd(w)[0].tobytes()
    assert given.loss(w) == without.loss(w)


def test_the_gradient_of_a_random_module_is_a_function_of_its_arguments(train: Samples) -> None:
    given = context(train, LEARNING, dropping)
    torch.manual_seed(1)
    first = given.gradient(given.model.initial)
    state = torch.random.get_rng_state()
    again = given.gradient(given.model.initial)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert first.tobytes() == again.tobytes()


def test_batch_statistics_are_allowed_and_leave_no_state(train: Samples) -> None:
    def build() -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.BatchNorm1d(6, track_running_stats=False), nn.Linear(6, 3))

    given = context(train, LEARNING, build)
    w = given.model.initial
    loss = given.loss(w)
    trained, _ = given.sgd(w)
    assert given.loss(w) == loss
    assert given.loss(trained) < loss


def test_a_training_that_diverges_names_client_and_round(train: Samples) -> None:
    given = context(train, LocalTraining(epochs=20, batch_size=8, lr=1e6, momentum=0.9, weight_decay=1.0))
    with pytest.raises(DivergedError, match=r"client 7 .* round 3 .* learning rate \(now 1000000\.0\)"):
        given.sgd(given.model.initial)
