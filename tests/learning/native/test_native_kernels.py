"""Every kernel alone, for every width of vectors that this machine has, against torch or numpy."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - its usual name
from alone import Array, call, laid_out, room, taken_out

from pacfl.learning.native.geometry import (
    frame_of,
    plane_size,
    route_size,
    route_strides,
    size_before_pooling,
)
from pacfl.learning.native.kernels.channels import write_convolution, write_pooling, write_turn
from pacfl.learning.native.kernels.dense import write_dense, write_dense_source_gradient
from pacfl.learning.native.kernels.dense_weights import write_dense_step, write_dense_weight_gradient
from pacfl.learning.native.kernels.gradients import write_framing, write_source_gradient, write_weight_gradient
from pacfl.learning.native.kernels.intake import write_intake, write_planes
from pacfl.learning.native.kernels.loss import write_loss_gradient
from pacfl.learning.native.kernels.order import write_reordering
from pacfl.learning.native.kernels.pools import (
    write_max_pool,
    write_max_pool_gradient,
    write_mean_pool,
    write_mean_pool_gradient,
    write_rectifier,
    write_rectifier_gradient,
)
from pacfl.learning.native.kernels.rows import write_row_convolution, write_row_pooling
from pacfl.learning.native.kernels.step import write_extras, write_look_ahead, write_step
from pacfl.learning.native.packing import row_length
from pacfl.learning.native.plan import NO_POOLING, AvgPool, Convolve, Dense, Map, MaxPool, Rectify, Weights, Window
from pacfl.learning.native.target import AVX2, SSE, Target, machine

TARGETS = [SSE] + ([AVX2] if machine().lanes >= AVX2.lanes else []) + ([machine()] if machine().lanes > 8 else [])
targets = pytest.mark.parametrize("target", TARGETS, ids=lambda t: f"{t.lanes} lanes")

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


def drawn(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def tensor(x: Array, grad: bool = False) -> torch.Tensor:
    return torch.tensor(np.array(x, dtype=np.float32), requires_grad=grad)


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
        whole = np.zeros((rows, columns, self.target.padded(self.stage.result.channels)))
        whole[:, :, : self.stage.result.channels] = before.transpose(1, 2, 0)
        return room(whole)

    def by_rows(self, before: Array) -> Array:
        rows, columns = self.stage.before_pooling
        whole = np.zeros((self.stage.result.channels, rows, self.target.padded(columns)))
        whole[:, :, :columns] = before
        return room(whole)

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
    whole = result.reshape(rows, columns, channels)
    np.testing.assert_allclose(whole[:, :, : stage.result.channels].transpose(2, 0, 1), layer.before(), atol=2e-5)
    assert not whole[:, :, stage.result.channels :].any()


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
    whole = result.reshape(stage.result.channels, rows, -1)[:, :, :columns]
    np.testing.assert_allclose(whole, layer.before(), atol=2e-5)


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
@stages
@pytest.mark.parametrize("by_rows", [False, True], ids=["by channels", "by rows"])
def test_pooling_and_its_routes(stage: Convolve, target: Target, by_rows: bool) -> None:
    """A route is where the window begins in the source that gave the largest: torch tells which that was."""
    if by_rows and (stage not in BY_ROWS.values() or stage.pool.stride[1] > 2):
        pytest.skip("has no form by rows")
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
def test_pooling_hides_nothing_that_is_no_number(target: Target, by_rows: bool, bad: float) -> None:
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
@stages
@pytest.mark.parametrize("by_rows", [False, True], ids=["by channels", "by rows"])
def test_gradients_of_a_convolution(stage: Convolve, target: Target, by_rows: bool) -> None:
    if by_rows and (stage not in BY_ROWS.values() or stage.pool.stride[1] > 2):
        pytest.skip("has no form by rows")
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


MAPS = {"narrow": Map(3, 9, 11), "wide": Map(19, 6, 7)}
maps = pytest.mark.parametrize("source", MAPS.values(), ids=MAPS)
WINDOWS = [HALVES, Window((3, 2), (2, 1)), Window((1, 3), (2, 4))]
windows = pytest.mark.parametrize("window", WINDOWS, ids=["halves", "overlapping", "with gaps"])


@targets
@maps
@windows
@pytest.mark.parametrize("kind", [MaxPool, AvgPool])
def test_pools_that_stand_alone(kind: Any, source: Map, window: Window, target: Target) -> None:
    result = Map(source.channels, *source.windows(window.kernel, window.stride), border=(2, 1))
    stage = kind(source, result, window)
    x = drawn(source.channels, source.height, source.width)
    pool = F.max_pool2d if kind is MaxPool else F.avg_pool2d
    leaf = tensor(x, grad=True)
    expected = pool(leaf[None], window.kernel, window.stride)[0]
    given = drawn(*expected.shape, seed=1)
    expected.backward(tensor(given))

    y, of_source = room(result.size), room(target.padded(source.size))
    routes = room(result.height * result.width * target.padded(result.channels), np.int32)
    if kind is MaxPool:
        call(target, lambda m: write_max_pool(m, "kernel", stage), laid_out(x, source), y, routes)
        arrays = laid_out(given, result), routes, of_source
        call(target, lambda m: write_max_pool_gradient(m, "kernel", stage), *arrays)
    else:
        call(target, lambda m: write_mean_pool(m, "kernel", stage), laid_out(x, source), y)
        call(target, lambda m: write_mean_pool_gradient(m, "kernel", stage), laid_out(given, result), of_source)
    np.testing.assert_allclose(taken_out(y, result), expected.detach().numpy(), atol=1e-6)
    assert leaf.grad is not None
    np.testing.assert_allclose(taken_out(of_source, source), leaf.grad.numpy(), atol=1e-6)


@targets
@maps
def test_relu_that_stands_alone(source: Map, target: Target) -> None:
    stage = Rectify(replace(source, border=(1, 0)), replace(source, border=(0, 2)))
    x, given = (drawn(source.channels, source.height, source.width, seed=i) for i in range(2))
    x[0, 0, :3] = 0.0, np.nan, -np.inf
    y, of_source = room(stage.result.size), room(stage.source.size)
    call(target, lambda m: write_rectifier(m, "kernel", stage), laid_out(x, stage.source), y)
    arrays = laid_out(x, stage.source), laid_out(given, stage.result), of_source
    call(target, lambda m: write_rectifier_gradient(m, "kernel", stage), *arrays)
    leaf = tensor(x, grad=True)
    expected = F.relu(leaf)
    expected.backward(tensor(given))
    np.testing.assert_array_equal(taken_out(y, stage.result), expected.detach().numpy())
    assert leaf.grad is not None
    np.testing.assert_array_equal(taken_out(of_source, stage.source), leaf.grad.numpy())


@targets
@pytest.mark.parametrize("channels", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("width", [1, 7, 8, 21])
def test_intake_puts_the_channels_of_a_pixel_together(channels: int, width: int, target: Target) -> None:
    source = Map(channels, 5, width, border=(1, 2))
    x = drawn(channels, 5, width)
    to = room(source.size)
    call(target, lambda m: write_intake(m, "kernel", source), room(x), to)
    assert np.array_equal(to, laid_out(x, source))


SHAPES = [(13, 5), (40, 1), (7, 33), (130, 12), (1100, 3)]  # inputs, outputs
shapes = pytest.mark.parametrize(("inputs", "outputs"), SHAPES)
SAMPLES = pytest.mark.parametrize("n", [1, 4, 5, 12])  # less than a block, a block, blocks that overlap


class DenseLayer:
    """A dense stage with drawn inputs, weights and gradients of its result; about half of these are zero."""

    def __init__(self, inputs: int, outputs: int, n: int, target: Target, relu: bool = True) -> None:
        self.stage = Dense(Map(inputs, 1, 1), outputs, relu, Weights(0, 0))
        self.row, self.n = row_length(self.stage, target), n
        self.apart = max(self.row, target.padded(outputs)) + 2 * target.lanes
        self.x = np.maximum(drawn(n, inputs, seed=1), 0)
        self.w, self.b = drawn(outputs, inputs, seed=2) / np.sqrt(np.float32(inputs)), drawn(outputs, seed=3)
        self.given = drawn(n, outputs, seed=4) * (drawn(n, outputs, seed=5) > 0)
        packed = np.zeros((outputs, self.row))
        packed[:, :inputs] = self.w
        self.weights, self.bias = room(packed), room(np.pad(self.b, (0, target.padded(outputs) - outputs)))

    def slabs(self, values: Array | None = None) -> Array:
        whole = np.zeros((self.n, self.apart))
        if values is not None:
            whole[:, : values.shape[1]] = values
        return room(whole)

    def of_slabs(self, slabs: Array, width: int) -> Array:
        return slabs.reshape(self.n, self.apart)[:, :width]


@targets
@shapes
@SAMPLES
@pytest.mark.parametrize("relu", [True, False])
def test_a_dense_layer(inputs: int, outputs: int, n: int, relu: bool, target: Target) -> None:
    layer = DenseLayer(inputs, outputs, n, target, relu)
    result = layer.slabs()
    arrays = layer.slabs(layer.x), layer.weights, layer.bias, result, n
    call(target, lambda m: write_dense(m, "kernel", layer.stage, layer.apart), *arrays)
    expected = F.linear(tensor(layer.x), tensor(layer.w), tensor(layer.b)).numpy()
    expected = np.maximum(expected, 0) if relu else expected
    np.testing.assert_allclose(layer.of_slabs(result, outputs), expected, atol=1e-5)
    assert not layer.of_slabs(result, layer.apart)[:, outputs:].any()


@targets
@shapes
@SAMPLES
@pytest.mark.parametrize("relu", [True, False])
def test_the_gradient_of_what_a_dense_layer_reads(
    inputs: int, outputs: int, n: int, relu: bool, target: Target
) -> None:
    layer = DenseLayer(inputs, outputs, n, target)
    of_source = layer.slabs()
    arrays = layer.slabs(layer.x), layer.weights, layer.slabs(layer.given), of_source, n
    call(target, lambda m: write_dense_source_gradient(m, "kernel", layer.stage, layer.apart, relu), *arrays)
    expected = layer.given @ layer.w * ((layer.x > 0) if relu else 1)
    np.testing.assert_allclose(layer.of_slabs(of_source, inputs), expected, atol=1e-5)


@targets
@shapes
@SAMPLES
def test_the_gradient_of_a_dense_layers_weights(inputs: int, outputs: int, n: int, target: Target) -> None:
    layer = DenseLayer(inputs, outputs, n, target)
    of_weights = room(np.full(outputs * layer.row + target.padded(outputs), np.nan))
    arrays = layer.slabs(layer.x), layer.slabs(layer.given), layer.slabs(), of_weights, n
    call(target, lambda m: write_dense_weight_gradient(m, "kernel", layer.stage, layer.apart), *arrays)
    rows = of_weights[: outputs * layer.row].reshape(outputs, layer.row)
    np.testing.assert_allclose(rows[:, :inputs], layer.given.T @ layer.x, atol=1e-5)
    assert not rows[:, inputs:].any()
    bias = of_weights[outputs * layer.row :]
    np.testing.assert_allclose(bias[:outputs], layer.given.sum(axis=0), atol=1e-5)
    assert not bias[outputs:].any()


@targets
@shapes
def test_a_step_of_a_dense_layer_is_that_of_its_gradient(inputs: int, outputs: int, target: Target) -> None:
    layer = DenseLayer(inputs, outputs, 6, target)
    of_weights = room(outputs * layer.row + target.padded(outputs))
    given = layer.slabs(layer.x), layer.slabs(layer.given), layer.slabs()
    call(target, lambda m: write_dense_weight_gradient(m, "kernel", layer.stage, layer.apart), *given, of_weights, 6)
    weights, velocity = (room(drawn(len(of_weights), seed=i)) for i in (6, 7))
    expected = [room(weights), room(velocity)]
    rates = 0.1, 0.9, 0.01
    call(target, lambda m: write_step(m, "kernel"), *expected, of_weights, len(of_weights), *rates)
    call(
        target, lambda m: write_dense_step(m, "kernel", layer.stage, layer.apart), *given, weights, velocity, 6, *rates
    )
    assert np.array_equal(weights, expected[0])
    assert np.array_equal(velocity, expected[1])


@targets
def test_a_step_is_torchs(target: Target) -> None:
    n = 3 * target.lanes
    w, v, g = (drawn(n, seed=i) for i in range(3))
    weights, velocity = room(w), room(v)
    call(target, lambda m: write_step(m, "kernel"), weights, velocity, room(g), n, 0.1, 0.9, 0.01)
    leaf = tensor(w, grad=True)
    leaf.grad = tensor(g)
    optimiser = torch.optim.SGD([leaf], lr=0.1, momentum=0.9, weight_decay=0.01)
    optimiser.state[leaf]["momentum_buffer"] = tensor(v)
    optimiser.step()
    np.testing.assert_allclose(weights, leaf.detach().numpy(), atol=1e-6)


@targets
def test_extras_and_looking_ahead_are_their_formulas(target: Target) -> None:
    n = 2 * target.lanes
    w, g, anchor, shift = (drawn(n, seed=i) for i in range(4))
    gradient, ahead = room(g), room(n)
    call(target, lambda m: write_extras(m, "kernel", n), room(w), gradient, room(anchor), room(shift), 0.3)
    np.testing.assert_allclose(gradient, g + 0.3 * (w - anchor) + shift, atol=1e-6)
    call(target, lambda m: write_look_ahead(m, "kernel", n), room(w), room(g), ahead, 0.7)
    np.testing.assert_allclose(ahead, w - 0.7 * g, atol=1e-6)


@targets
def test_reordering_takes_numbers_from_where_they_are_told_and_zeros_else(target: Target) -> None:
    given, origins = drawn(9), np.array([3, -1, 8, 0, 0, -7], dtype=np.int32)
    to = room(6)
    call(target, lambda m: write_reordering(m, "kernel"), room(given), room(origins, np.int32), to, 6)
    assert np.array_equal(to, np.where(origins < 0, 0, given[origins]))


@targets
@pytest.mark.parametrize("classes", [1, 2, 10, 40, 100])
@pytest.mark.parametrize("scale", [1.0, 30.0])
def test_the_gradient_of_the_loss(classes: int, scale: float, target: Target) -> None:
    for label in {0, classes // 2, classes - 1}:
        x = scale * drawn(classes, seed=label)
        gradient = room(target.padded(classes))
        padded = room(np.pad(x, (0, target.padded(classes) - classes), constant_values=1e9))
        call(target, lambda m: write_loss_gradient(m, "kernel", classes), padded, gradient, label, 0.1)
        leaf = torch.tensor(x.astype(np.float64), requires_grad=True)
        (0.1 * F.cross_entropy(leaf[None], torch.tensor([label]))).backward()
        assert leaf.grad is not None
        np.testing.assert_allclose(gradient[:classes], leaf.grad.numpy(), rtol=0, atol=2e-8)


@targets
def test_logits_that_are_no_numbers_give_no_numbers(target: Target) -> None:
    for bad in (np.nan, np.inf):
        x = drawn(10)
        x[3] = bad
        gradient = room(target.padded(10))
        padded = room(np.pad(x, (0, target.padded(10) - 10)))
        call(target, lambda m: write_loss_gradient(m, "kernel", 10), padded, gradient, 0, 1.0)
        assert np.isnan(gradient[0])


def test_room_before_pooling_is_enough_for_both_forms() -> None:
    for stage in STAGES.values():
        for target in TARGETS:
            layer = Layer(stage, target)
            room_for = size_before_pooling(stage, target)
            assert room_for >= len(layer.by_rows(layer.before()))
            assert room_for >= len(layer.by_channels(layer.before()))
