from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - its usual name
from torch import Tensor, nn

from pacfl.learning.model import UnsupportedModelError
from pacfl.learning.native.packing import layers, packing
from pacfl.learning.native.plan import (
    NO_POOLING,
    AvgPool,
    Convolve,
    Dense,
    Map,
    MaxPool,
    Plan,
    Rectify,
    Weights,
    Window,
)
from pacfl.learning.native.reading import read_plan
from pacfl.learning.nets import NETS, lenet5
from tests.learning.native.alone import AVX2, SSE

SHAPE = (3, 20, 20)
HALVES = Window((2, 2), (2, 2))


def stack() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 4, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(256, 9), nn.ReLU(), nn.Linear(9, 5)
    )


class Written(nn.Module):
    """The same stack, its forward function written in one of the usual ways."""

    def __init__(self, forward: Callable[["Written", Tensor], Tensor]) -> None:
        super().__init__()
        self.conv, self.pool, self.relu = nn.Conv2d(3, 4, 5), nn.MaxPool2d(2), nn.ReLU()
        self.fc1, self.fc2 = nn.Linear(256, 9), nn.Linear(9, 5)
        self._forward = forward

    def forward(self, x: Tensor) -> Tensor:
        return self._forward(self, x)


def with_functions(m: Written, x: Tensor) -> Tensor:
    x = F.max_pool2d(F.relu(m.conv(x)), 2)
    return m.fc2(F.relu(m.fc1(torch.flatten(x, 1))))


def with_view(m: Written, x: Tensor) -> Tensor:
    x = m.pool(torch.relu(m.conv(x)))
    return m.fc2(m.fc1(x.view(-1, 4 * 8 * 8)).relu())


def with_size(m: Written, x: Tensor) -> Tensor:
    x = F.relu(m.pool(m.conv(x)))
    return m.fc2(m.relu(m.fc1(x.view(x.size(0), -1))))


def with_shape(m: Written, x: Tensor) -> Tensor:
    x = F.max_pool2d(input=m.conv(x).relu_(), kernel_size=(2, 2), stride=2)
    return m.fc2(F.relu(m.fc1(x.reshape(x.shape[0], x.shape[1] * x.shape[2] * x.shape[3])), inplace=True))


def with_flatten(m: Written, x: Tensor) -> Tensor:
    return m.fc2(m.relu(m.fc1(m.pool(m.relu(m.conv(x))).flatten(start_dim=1))))


WAYS = [with_functions, with_view, with_size, with_shape, with_flatten]


@pytest.mark.parametrize("forward", WAYS, ids=lambda f: f.__name__)
def test_every_way_to_write_a_stack_gives_the_same_plan(
    forward: Callable[[Written, Tensor], Tensor],
) -> None:
    assert read_plan(Written(forward), SHAPE) == read_plan(stack(), SHAPE)


def test_the_plan_of_a_module() -> None:
    module = nn.Sequential(
        nn.AvgPool2d(2), nn.Conv2d(3, 4, (3, 5), stride=(1, 2), padding=(1, 2)), nn.MaxPool2d((2, 1)),
        nn.MaxPool2d(3, 1), nn.ReLU(), nn.Conv2d(4, 6, 2, bias=False), nn.ReLU(), nn.Flatten(), nn.Linear(6 * 2 * 2, 5),
    )  # fmt: skip
    first = Map(3, 20, 20)
    second = Map(3, 10, 10, border=(1, 2))
    plan = read_plan(module, SHAPE)
    assert plan == Plan(
        SHAPE,
        (
            AvgPool(first, second, HALVES),
            Convolve(second, Map(4, 5, 5), (3, 5), (1, 2), False, Window((2, 1), (2, 1)), Weights(0, 180)),
            MaxPool(Map(4, 5, 5), Map(4, 3, 3), Window((3, 3), (1, 1))),
            Rectify(Map(4, 3, 3), Map(4, 3, 3)),
            Convolve(Map(4, 3, 3), Map(6, 2, 2), (2, 2), (1, 1), True, NO_POOLING, Weights(184, None)),
        ),
        (Dense(Map(6, 2, 2), 5, False, Weights(280, 400)),),
        405,
    )


def test_weights_are_found_in_the_order_of_the_vector_not_of_the_calls() -> None:
    class Reversed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.last, self.first = nn.Linear(6, 3), nn.Linear(4, 6)

        def forward(self, x: Tensor) -> Tensor:
            return self.last(self.first(x))

    assert [s.weights for s in read_plan(Reversed(), (4,)).dense] == [Weights(21, 45), Weights(0, 18)]


@pytest.mark.parametrize("name", ["lenet5", "mlp", "logistic"])
def test_the_small_nets_of_the_paper_are_supported(name: str) -> None:
    plan = read_plan(NETS[name]((3, 32, 32), 10), (3, 32, 32))
    assert plan.n_outputs == 10


def test_a_layer_alone_is_a_stack_of_one() -> None:
    alone = Plan((20,), (), (Dense(Map(20, 1, 1), 4, False, Weights(0, 80)),), 84)
    assert read_plan(nn.Linear(20, 4), (20,)) == read_plan(nn.Sequential(nn.Linear(20, 4)), (20,)) == alone


def test_layers_that_change_nothing_are_left_out() -> None:
    idle = nn.Sequential(nn.Flatten(), nn.Identity(), nn.Dropout(0.0), nn.Linear(12, 4), nn.Dropout1d(0.0))
    assert read_plan(idle, (3, 2, 2)).dense == read_plan(nn.Sequential(nn.Flatten(), nn.Linear(12, 4)), (3, 2, 2)).dense


class Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(torch.relu(self.layer(x)))


class Skips(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.layer(x)


class Branches(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) if x.sum() > 0 else x


class Idle(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.other = nn.Linear(6, 6), nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)


class Early(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.other = nn.Linear(6, 6), nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        x = self.layer(x)
        self.other(x)
        return x


class Broken(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x[:, [10]])


class Mixes(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(9, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x.view(-1, 9))


REFUSED: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], str]] = {
    "tanh": (lambda: nn.Sequential(nn.Linear(6, 3), nn.Tanh()), (6,), "Tanh"),
    "dropout": (lambda: nn.Sequential(nn.Dropout(0.5), nn.Linear(6, 3)), (6,), "Dropout"),
    "normalisation": (lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.GroupNorm(2, 4)), SHAPE, "GroupNorm"),
    "a layer alone": (nn.PReLU, (6,), "PReLU"),
    "groups": (lambda: nn.Sequential(nn.Conv2d(4, 4, 3, groups=2)), (4, 9, 9), "groups"),
    "dilation": (lambda: nn.Sequential(nn.Conv2d(3, 4, 3, dilation=2)), SHAPE, "dilation"),
    "reflection": (lambda: nn.Sequential(nn.Conv2d(3, 4, 3, padding=1, padding_mode="reflect")), SHAPE, "padding"),
    "one side padded more": (lambda: nn.Sequential(nn.Conv2d(3, 4, 4, padding="same")), SHAPE, "one side"),
    "padded pool": (lambda: nn.Sequential(nn.MaxPool2d(3, padding=1), nn.Conv2d(3, 1, 7)), SHAPE, "pooling"),
    "incomplete windows": (
        lambda: nn.Sequential(nn.AvgPool2d(3, ceil_mode=True), nn.Conv2d(3, 1, 7)),
        SHAPE,
        "pooling",
    ),
    "other divisor": (lambda: nn.Sequential(nn.AvgPool2d(2, divisor_override=3), nn.Conv2d(3, 1, 9)), SHAPE, "divisor"),
    "dilated pool": (lambda: nn.Sequential(nn.MaxPool2d(2, dilation=2), nn.Conv2d(3, 1, 9)), SHAPE, "dilation"),
    "shared weights": (Twice, (6,), "shares"),
    "a sum": (Skips, (6,), "add"),
    "a branch": (Branches, (6,), "traced"),
    "idle weights": (Idle, (6,), "are not used"),
    "an early end": (Early, (6,), "does not return"),
    "samples mixed": (Mixes, (6,), "mixes samples"),
    "a wrong shape": (stack, (3, 24, 24), "does not take samples of shape"),
    "a wrong index": (Broken, (6,), "does not take samples of shape .*IndexError"),
    "a map at the end": (lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten()), SHAPE, "not a vector"),
    "the large net": (lambda: NETS["resnet9"]((3, 32, 32), 10), (3, 32, 32), "GroupNorm"),
}


@pytest.mark.filterwarnings("ignore:Using padding='same':UserWarning")
@pytest.mark.parametrize("what", REFUSED)
def test_unsupported_modules_are_refused_with_the_reason(what: str) -> None:
    build, shape, reason = REFUSED[what]
    with pytest.raises(UnsupportedModelError, match=reason):
        read_plan(build(), shape)


@pytest.mark.parametrize("target", [SSE, AVX2], ids=["sse", "avx2"])
def test_every_weight_has_a_place_of_its_own(target: object) -> None:
    plan = read_plan(lenet5((3, 32, 32), 10), (3, 32, 32))
    packed = packing(plan, target)  # type: ignore[arg-type]  # a target
    assert len(set(packed.positions.tolist())) == plan.n_weights == 62_006
    assert packed.positions.min() >= 0
    assert packed.positions.max() < packed.size
    assert len(packed.places) == len(layers(plan)) == 5
