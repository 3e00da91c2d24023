"""Kernels of a convolution and what is done with its result, for every width of vectors, against torch."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - its usual name

from pacfl.learning.native.geometry import (
    frame_of,
    plane_size,
    route_size,
    route_strides,
    size_before_pooling,
)
from pacfl.learning.native.kernels.channels import write_convolution, write_pooling, write_turn
from pacfl.learning.native.kernels.gradients import write_framing, write_source_gradient, write_weight_gradient
from pacfl.learning.native.kernels.intake import write_planes
from pacfl.learning.native.kernels.rows import write_row_convolution, write_row_pooling
from pacfl.learning.native.packing import row_length
from pacfl.learning.native.plan import NO_POOLING, Convolve, Map, Weights, Window
from pacfl.learning.native.target import Target
from tests.learning.native.alone import TARGETS, Array, call, drawn, laid_out, room, taken_out, targets, tensor

HALVES = Window((2, 2), (2, 2))


def convolution(
    channels: int = 3,
    size: tuple[int, int] = (12, 13),
    outputs: int = 6,
    kernel: tuple[int, int] = (3, 3),
    stride: tuple[int, int] = (1, 1),
    padding: tuple[int, int] = (0, 0),
    pool: Window = HALVES,
    relu: bool = True,
) -> Convolve:
    """A stage whose result has a border too, as if a convolution with padding came next."""
    source = Map(channels, *size, border=padding)
    rows, columns = source.windows(kernel, stride)
    pooled = Map(outputs, rows, columns).windows(pool.kernel, pool.stride)
    return Convolve(source, Map(outputs, *pooled, border=(1, 2)), kernel, stride, relu, pool, Weights(0, 0))


STAGES = {
    "plain": convolution(),
    "grey": convolution(channels=1, outputs=2, kernel=(5, 5), size=(17, 20)),
    "wide": convolution(channels=18, outputs=21, kernel=(2, 4), size=(8, 9)),
    "padded": convolution(padding=(1, 2), kernel=(3, 5)),
    "strided": convolution(stride=(2, 3), kernel=(4, 3), size=(16, 20)),
    "without pooling": convolution(pool=NO_POOLING),
    "without relu": convolution(relu=False),
    "pools that overlap": convolution(pool=Window((3, 2), (2, 1))),
    "pools with gaps": convolution(pool=Window((2, 1), (3, 2)), size=(15, 15)),
    "one pixel": convolution(size=(4, 4)),
}
stages = pytest.mark.parametrize("stage", STAGES.values(), ids=STAGES)
BY_ROWS = {key: stage for key, stage in STAGES.items() if stage.stride[1] == 1}
POOLED_BY_ROWS = {key: stage for key, stage in BY_ROWS.items() if stage.pool.stride[1] <= 2}
FORMS = {f"{key} by channels": (stage, False) for key, stage in STAGES.items()} | {
    f"{key} by rows": (stage, True) for key, stage in POOLED_BY_ROWS.items()
}
forms = pytest.mark.parametrize(("stage", "by_rows"), FORMS.values(), ids=FORMS)


class Layer:
    """A convolution with drawn inputs and weights, by torch, and what kernels are given for it."""

    def __init__(self, stage: Convolve, target: Target) -> None:
        self.stage, self.target = stage, target
        self.x = drawn(stage.source.channels, stage.source.height, stage.source.width, seed=1)
        self.w = drawn(stage.result.channels, stage.source.channels, *stage.kernel, seed=2)
        self.b = drawn(stage.result.channels, seed=3)
        self.source = laid_out(self.x, stage.source)
        row = row_length(stage, target)
        packed = np.zeros((stage.result.channels, stage.kernel[0], row))
        packed[:, :, : stage.taps] = self.w.transpose(0, 2, 3, 1).reshape(*packed.shape[:2], stage.taps)
        self.weights = room(packed)
        self.bias = room(np.pad(self.b, (0, target.padded(len(self.b)) - len(self.b))))

    def convolved(self, x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return F.conv2d(x[None], w, b, self.stage.stride, self.stage.source.border)

    def pooled(self, before: torch.Tensor) -> torch.Tensor:
        y = F.max_pool2d(before, self.stage.pool.kernel, self.stage.pool.stride)
        return F.relu(y) if self.stage.relu else y

    def by_channels(self, before: Array) -> Array:
        """(outputs, rows, columns) as the convolution by channels leaves it."""
        rows, columns = self.stage.before_pooling
        padded = np.zeros((rows, columns, self.target.padded(self.stage.result.channels)))
        padded[:, :, : self.stage.result.channels] = before.transpose(1, 2, 0)
        return room(padded)

    def by_rows(self, before: Array) -> Array:
        rows, columns = self.stage.before_pooling
        padded = np.zeros((self.stage.result.channels, rows, self.target.padded(columns)))
        padded[:, :, :columns] = before
        return room(padded)

    def before(self) -> Array:
        with torch.no_grad():
            return self.convolved(tensor(self.x), tensor(self.w), tensor(self.b))[0].numpy()


@targets
@stages
def test_convolution_by_channels(stage: Convolve, target: Target) -> None:
    layer = Layer(stage, target)
    channels = target.padded(stage.result.channels)
    turned = room(stage.kernel[0] * stage.taps * channels)
    call(target, lambda m: write_turn(m, "kernel", stage), layer.weights, turned)
    rows, columns = stage.before_pooling
    result = room(rows * columns * channels)
    call(target, lambda m: write_convolution(m, "kernel", stage), layer.source, turned, layer.bias, result)
    padded = result.reshape(rows, columns, channels)
    np.testing.assert_allclose(padded[:, :, : stage.result.channels].transpose(2, 0, 1), layer.before(), atol=2e-5)
    assert not padded[:, :, stage.result.channels :].any()


@targets
@pytest.mark.parametrize("stage", BY_ROWS.values(), ids=BY_ROWS)
def test_convolution_by_rows(stage: Convolve, target: Target) -> None:
    layer = Layer(stage, target)
    planes = room(stage.source.channels * plane_size(stage.source))
    call(target, lambda m: write_planes(m, "kernel", stage.source), room(layer.x), planes)
    (above, beside) = stage.source.border
    assert np.array_equal(
        planes.reshape(stage.source.channels, -1),
        np.pad(layer.x, ((0, 0), (above, above), (beside, beside))).reshape(stage.source.channels, -1),
    )
    rows, columns = stage.before_pooling
    result = room(stage.result.channels * rows * target.padded(columns))
    call(target, lambda m: write_row_convolution(m, "kernel", stage), planes, layer.weights, layer.bias, result)
    padded = result.reshape(stage.result.channels, rows, -1)[:, :, :columns]
    np.testing.assert_allclose(padded, layer.before(), atol=2e-5)


def routes_of(layer: Layer, by_rows: bool) -> tuple[Array, Array]:
    """Result and routes by the pooling kernel."""
    stage, target = layer.stage, layer.target
    before = layer.before()
    result, routes = room(stage.result.size), room(route_size(stage, target), np.int32)
    if by_rows:
        call(target, lambda m: write_row_pooling(m, "kernel", stage), layer.by_rows(before), result, routes)
    else:
        call(target, lambda m: write_pooling(m, "kernel", stage), layer.by_channels(before), result, routes)
    return result, routes


def ordered(routes: Array, stage: Convolve, target: Target, by_rows: bool) -> Array:
    """Routes (outputs, rows, columns), whichever way they lie."""
    strides = route_strides(stage, target, by_rows)
    o, y, x = np.ogrid[: stage.result.channels, : stage.result.height, : stage.result.width]
    ordered: Array = routes[o * strides.output + (y * stage.result.width + x) * strides.pixel]
    return ordered


@targets
@forms
def test_pooling_and_its_routes(stage: Convolve, target: Target, by_rows: bool) -> None:
    """A route is where the window begins in the source that gave the largest: torch returns which that was."""
    layer = Layer(stage, target)
    before = torch.tensor(layer.before())[None]
    result, routes = routes_of(layer, by_rows)
    expected = layer.pooled(before)[0].numpy()
    assert np.array_equal(taken_out(result, stage.result), expected)
    places = result.copy()
    inside = taken_out(places, stage.result)
    inside[:] = 0
    assert not places.any(), "the border stays zero"
    _, which = F.max_pool2d(before, stage.pool.kernel, stage.pool.stride, return_indices=True)
    y, x = np.divmod(which[0].numpy(), stage.before_pooling[1])
    place = y * stage.stride[0] * stage.source.row + x * stage.step
    shut = (expected <= 0) & stage.relu
    assert np.array_equal(ordered(routes, stage, target, by_rows), np.where(shut, -1, place))


@targets
@pytest.mark.parametrize("by_rows", [False, True], ids=["by channels", "by rows"])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_pooling_does_not_hide_nan(target: Target, by_rows: bool, bad: float) -> None:
    """As torch: NaN wins over all, and its route stays open."""
    layer = Layer(STAGES["plain"], target)
    before = layer.before().copy()
    before[2, 5, 6] = before[0, 0, 0] = before[3, 3, 3] = bad
    layer.before = lambda: before  # type: ignore[method-assign]  # what the kernel is given
    result, routes = routes_of(layer, by_rows)
    expected = layer.pooled(torch.tensor(before)[None])[0].numpy()
    np.testing.assert_array_equal(taken_out(result, layer.stage.result), expected)
    assert (ordered(routes, layer.stage, target, by_rows)[np.isnan(expected)] >= 0).all()


def gradients(layer: Layer, given: Array) -> tuple[Array, Array, Array]:
    """Of weights, bias and source, by torch."""
    x, w, b = tensor(layer.x, grad=True), tensor(layer.w, grad=True), tensor(layer.b, grad=True)
    layer.pooled(layer.convolved(x, w, b)).backward(tensor(given)[None])
    of_x, of_w, of_b = (t.grad.numpy() for t in (x, w, b) if t.grad is not None)
    return of_x, of_w, of_b


@targets
@forms
def test_gradients_of_a_convolution(stage: Convolve, target: Target, by_rows: bool) -> None:
    layer = Layer(stage, target)
    _, routes = routes_of(layer, by_rows)
    given = drawn(stage.result.channels, stage.result.height, stage.result.width, seed=4)
    of_x, of_w, of_b = gradients(layer, given)
    strides, n = route_strides(stage, target, by_rows), route_size(stage, target)
    gradient = laid_out(given, stage.result)
    values, places, counts = room(n), room(n, np.int32), room(n, np.int32)

    start = drawn(*layer.weights.shape, seed=5)
    start.reshape(-1, row_length(stage, target))[:, stage.taps :] = 0
    of_weights, of_bias = room(start), room(np.ones(target.padded(stage.result.channels)))
    arrays = layer.source, gradient, of_weights, of_bias, values, routes, places, counts
    call(target, lambda m: write_weight_gradient(m, "kernel", stage, strides), *arrays)
    added = (of_weights - start).reshape(stage.result.channels, stage.kernel[0], -1)
    assert not added[:, :, stage.taps :].any(), "what fills up a row stays zero"
    expected = of_w.transpose(0, 2, 3, 1).reshape(*added.shape[:2], stage.taps)
    np.testing.assert_allclose(added[:, :, : stage.taps], expected, atol=5e-5)
    np.testing.assert_allclose(of_bias[: len(of_b)] - 1, of_b, atol=2e-5)

    frame = frame_of(stage, target)
    framed, of_source = room(frame.size), room(np.full(stage.source.size, np.nan))
    call(target, lambda m: write_framing(m, "kernel", stage, frame), layer.weights, framed)
    wide = room(target.padded(stage.source.size) + target.lanes)  # vectors may reach beyond the map
    wide[: len(of_source)] = of_source
    arrays = framed, gradient, values, wide, routes, places, counts
    call(target, lambda m: write_source_gradient(m, "kernel", stage, strides, frame), *arrays)
    np.testing.assert_allclose(taken_out(wide, stage.source), of_x, atol=5e-5)


def test_room_before_pooling_is_enough_for_both_forms() -> None:
    for stage in STAGES.values():
        for target in TARGETS:
            layer = Layer(stage, target)
            room_for = size_before_pooling(stage, target)
            assert room_for >= len(layer.by_rows(layer.before()))
            assert room_for >= len(layer.by_channels(layer.before()))
