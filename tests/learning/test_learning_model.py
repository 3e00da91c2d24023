from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from pacfl.errors import ModelError
from pacfl.learning.client_context import Samples
from pacfl.learning.eager import Eager, check_outputs
from pacfl.learning.model import Model, as_model
from pacfl.learning.nets import NETS, ResNet9, lenet5, logistic, mlp

RNG = np.random.default_rng(0)


def samples(n: int, *shape: int, classes: int = 10) -> Samples:
    return Samples(RNG.normal(size=(n, *shape)).astype(np.float32), RNG.integers(0, classes, n))


def modules() -> dict[str, nn.Module]:
    """Modules of many kinds that take 2 × 8 × 8 and give 5 outputs."""
    return {
        "convolutions": nn.Sequential(nn.Conv2d(2, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 5)),
        "group norm": nn.Sequential(nn.Conv2d(2, 4, 3), nn.GroupNorm(2, 4), nn.Flatten(), nn.Linear(144, 5)),
        "layer norm": nn.Sequential(nn.Flatten(), nn.LayerNorm(128), nn.Linear(128, 5)),
        "dropout": nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(128, 5)),
        "running statistics": nn.Sequential(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(144, 5)),
        "batch statistics": nn.Sequential(
            nn.BatchNorm2d(2, track_running_stats=False), nn.Flatten(), nn.Linear(128, 5)
        ),
        "no bias": nn.Sequential(nn.Flatten(), nn.Linear(128, 5, bias=False)),
        "own parameter": Scaled(),
        "tied": Tied(),
    }


class Scaled(nn.Module):
    """A module with a parameter of its own, before those of its part."""

    def __init__(self) -> None:
        super().__init__()
        self.part = nn.Linear(128, 5)
        self.scale = nn.Parameter(torch.tensor([2.0]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.part(x.flatten(1)) * self.scale
        return logits


class Tied(nn.Module):
    """Two layers that share one matrix."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(128, 128)
        self.second = nn.Linear(128, 128)
        self.second.weight = self.first.weight
        self.last = nn.Linear(128, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.last(self.second(self.first(x.flatten(1)).relu()).relu())
        return logits


KINDS = tuple(modules())


def model_of(kind: str, seed: int = 0) -> Model:
    return as_model(lambda: modules()[kind], seed)


@pytest.mark.parametrize(
    ("name", "shape", "n_classes", "n_weights", "n_layers"),
    [
        ("lenet5", (3, 32, 32), 10, 62_006, 5),
        ("lenet5", (1, 28, 28), 10, 44_426, 5),
        ("resnet9", (3, 32, 32), 100, 6_621_540, 9),
        ("mlp", (1, 8, 8), 10, 64 * 200 + 200 + 200 * 10 + 10, 2),
        ("logistic", (3, 4, 5), 7, 60 * 7 + 7, 1),
    ],
)
def test_nets_have_the_weights_of_the_papers_tables(
    name: str, shape: tuple[int, int, int], n_classes: int, n_weights: int, n_layers: int
) -> None:
    """LeNet-5: 6·(3·25) + 6, 16·(6·25) + 16, 400·120 + 120, 120·84 + 84, 84·10 + 10: 62,006 together."""
    model = as_model(lambda: NETS[name](shape, n_classes), 0)
    assert model.initial.shape == (n_weights,)
    assert model.initial.dtype == np.float32
    assert len(model.layers) == n_layers


def test_the_tail_of_lenet5_is_its_last_linear_layers() -> None:
    model = as_model(lambda: lenet5((3, 32, 32), 10), 0)
    linear = [layer for layer in model.build() if isinstance(layer, nn.Linear)]
    sizes = [sum(p.numel() for p in layer.parameters()) for layer in linear]
    assert model.tail(2) == slice(62_006 - sizes[-1] - sizes[-2], 62_006)
    assert model.tail(1) == slice(62_006 - sizes[-1], 62_006)
    assert model.tail(5) == slice(0, 62_006)


@pytest.mark.parametrize("n", [0, -1, 6])
def test_a_tail_longer_than_the_model_or_empty_is_refused(n: int) -> None:
    with pytest.raises(ValueError, match="5 layers"):
        as_model(lambda: lenet5((3, 32, 32), 10), 0).tail(n)


@pytest.mark.parametrize("kind", KINDS)
def test_layers_cover_the_vector_without_gap_or_overlap(kind: str) -> None:
    model = model_of(kind)
    ends = [0, *(layer.stop for layer in model.layers.values())]
    assert [layer.start for layer in model.layers.values()] == ends[:-1]
    assert ends[-1] == len(model.initial)


def test_normalisation_belongs_to_the_layer_before_it() -> None:
    assert list(model_of("group norm").layers) == ["0", "3"]
    assert list(model_of("layer norm").layers) == ["1", "2"]
    model = as_model(lambda: ResNet9((3, 32, 32), 10), 0)
    module = model.build()
    assert isinstance(module, ResNet9)
    classifier = sum(p.numel() for p in module.classifier.parameters())
    last_block = sum(p.numel() for p in module.block6[1].parameters())
    assert model.tail(2).start == len(model.initial) - classifier - last_block


@pytest.mark.parametrize("kind", KINDS)
def test_the_initial_vector_is_that_of_the_module_in_torchs_own_order(kind: str) -> None:
    torch.manual_seed(11)
    expected = parameters_to_vector(modules()[kind].parameters()).detach().numpy()
    model = model_of(kind, seed=11)
    assert model.initial[~model.statistics].tobytes() == expected.tobytes()


@pytest.mark.parametrize("kind", KINDS)
def test_an_engine_with_a_vector_is_the_module_with_those_weights(kind: str) -> None:
    model = model_of(kind)
    w = RNG.normal(size=model.initial.shape).astype(np.float32)
    test = samples(40, 2, 8, 8, classes=5)
    w[model.statistics] = np.abs(w[model.statistics])  # variances are
    module = model.build().eval()
    vector_to_parameters(torch.from_numpy(w[~model.statistics]), module.parameters())
    state = model.module(w).state_dict()
    module.load_state_dict({name: state[name] for name in state if "running" in name}, strict=False)
    with torch.no_grad():
        logits = module(torch.from_numpy(test.x))
        expected = nn.functional.cross_entropy(logits, torch.from_numpy(test.y), reduction="none").numpy()
    outputs, losses = Eager(model).evaluate(w, test)
    np.testing.assert_allclose(outputs, logits.detach().numpy(), rtol=0, atol=1e-6)
    assert losses.tobytes() == expected.tobytes()


def test_the_seed_decides_the_initial_weights_and_other_streams_are_unchanged() -> None:
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    model, again, other = (as_model(lambda: mlp((1, 8, 8), 10), seed) for seed in (1, 1, 2))
    assert model.initial.tobytes() == again.initial.tobytes()
    assert model.initial.tobytes() != other.initial.tobytes()
    assert model.fresh(2).tobytes() == other.initial.tobytes()
    assert torch.equal(torch.random.get_rng_state(), before)


class Projected(nn.Module):
    """A module that draws a part that is not trained."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("projection", torch.randn(6, 4))
        self.last = nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.last(x @ self.projection)
        return logits


def test_random_buffers_of_a_module_are_the_same_in_every_engine() -> None:
    model = as_model(Projected, 0)
    test = samples(9, 6, classes=3)
    one, other = (Eager(model).evaluate(model.initial, test)[1] for _ in range(2))
    assert one.tobytes() == other.tobytes()


def test_layers_without_sizes_are_refused() -> None:
    with pytest.raises(ModelError, match=r"layer '1' .LazyLinear. has no size yet"):
        as_model(lambda: nn.Sequential(nn.Flatten(), nn.LazyLinear(3)), 0)


def test_a_module_without_weights_is_refused() -> None:
    with pytest.raises(ValueError, match="weights"):
        as_model(nn.Flatten, 0)


@pytest.mark.parametrize(
    ("build", "shape"),
    [(lenet5, (1, 15, 15)), (lenet5, (3, 8, 32)), (lenet5, (1, 8, 8)), (ResNet9, (3, 28, 28))],
)
def test_images_that_a_net_cannot_take_are_refused_with_their_size(build: type, shape: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match=rf"got {shape[1]}\D+{shape[2]}"):
        build(shape, 10)


def test_the_smallest_images_of_lenet5_are_sixteen_pixels_wide() -> None:
    """16 -> 12 -> 6 -> 2 -> 1 pixel, 15 -> 11 -> 5 -> 1 -> none."""
    assert lenet5((1, 16, 16), 10)(torch.zeros(2, 1, 16, 16)).shape == (2, 10)


def test_fewer_outputs_than_classes_are_refused() -> None:
    module = mlp((1, 4, 4), 9, hidden=3)
    with pytest.raises(ModelError, match=r"returns a tensor of shape \(1, 9\).*\(n, 10\)"):
        check_outputs(module, samples(3, 1, 4, 4), 10)
    check_outputs(module, samples(3, 1, 4, 4, classes=9), 9)
    check_outputs(module, samples(3, 1, 4, 4, classes=2), 2)


class TwoInputs(nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a + b


class TwoOutputs(nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x, x


class OnlyInTraining(nn.Module):
    """As nets with auxiliary classifiers do."""

    def forward(self, x: torch.Tensor) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
        return (x, x) if self.training else x


class Broken(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x[:, [10, 20]]


@pytest.mark.parametrize(
    ("build", "shape", "reason"),
    [
        (lambda: nn.Linear(4, 10), (2, 4), r"returns a tensor of shape \(1, 2, 10\) for one sample"),
        (lambda: nn.Flatten(0), (10,), r"returns a tensor of shape \(10,\)"),
        (lambda: nn.Unflatten(1, (2, 5)), (10,), r"returns a tensor of shape \(1, 2, 5\)"),
        (TwoOutputs, (10,), "returns a tuple"),
        (OnlyInTraining, (10,), "returns a tuple"),
        (TwoInputs, (10,), "TypeError.*'b'.*concatenate the inputs"),
        (lambda: nn.Embedding(5, 10), (3,), "RuntimeError.*give integer samples"),
        (lambda: mlp((1, 4, 4), 10), (1, 5, 5), r"of shape \(1, 5, 5\): RuntimeError"),
        (Broken, (5,), "IndexError"),
        (lambda: nn.BatchNorm1d(10, track_running_stats=False), (10,), "ValueError.*GroupNorm"),
    ],
)
def test_a_model_that_does_not_turn_samples_into_logits_is_refused(
    build: Callable[[], nn.Module], shape: tuple[int, ...], reason: str
) -> None:
    """What it did, and what is expected: every message says both."""
    size = ", ".join(map(str, shape))
    with pytest.raises(ModelError, match=reason) as error:
        check_outputs(build(), samples(3, *shape), 10)
    assert f"take one float32 tensor of shape (n, {size}) and return logits of shape (n, 10)" in str(error.value)
    assert "\n" not in str(error.value)


def test_checking_a_model_draws_none_of_the_callers_random_numbers() -> None:
    module = nn.Sequential(nn.Dropout(), nn.Linear(6, 3))
    before = torch.random.get_rng_state()
    check_outputs(module, samples(3, 6, classes=3), 3)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_read_only_samples_give_no_warning() -> None:
    """As those of a memory-mapped file."""
    given = samples(3, 1, 4, 4)
    given.x.flags.writeable = False
    check_outputs(mlp((1, 4, 4), 10, hidden=3), given, 10)


def test_logistic_regression_is_linear() -> None:
    module = logistic((1, 2, 3), 4)
    a, b = torch.randn(1, 1, 2, 3), torch.randn(1, 1, 2, 3)
    zero = module(torch.zeros(1, 1, 2, 3))
    torch.testing.assert_close(module(a + b) - zero, (module(a) - zero) + (module(b) - zero))


@pytest.mark.parametrize("name", modules())
def test_the_module_of_a_vector_computes_what_engines_evaluate(name: str) -> None:
    model = as_model(lambda: modules()[name], 0)
    w = model.initial + RNG.normal(scale=0.1, size=model.initial.shape).astype(np.float32)
    batch = samples(7, 2, 8, 8, classes=5)
    module = model.module(w)
    assert np.array_equal(parameters_to_vector(module.parameters()).detach().numpy(), w[~model.statistics])
    with torch.no_grad():
        outputs = module(torch.from_numpy(batch.x)).numpy()
    np.testing.assert_array_equal(outputs, Eager(model).evaluate(w, batch)[0])


def test_a_vector_of_another_model_is_refused() -> None:
    with pytest.raises(ModelError, match="has 650 weights, got an array of shape \\(649,\\)"):
        as_model(lambda: logistic((1, 8, 8), 10), 0).module(np.zeros(649, np.float32))
