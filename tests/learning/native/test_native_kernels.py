"""Every other kernel alone, for every width of vectors that this machine has, against torch or numpy."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - its usual name

from pacfl.learning.native.kernels.dense import write_dense, write_dense_source_gradient
from pacfl.learning.native.kernels.dense_weights import write_dense_step, write_dense_weight_gradient
from pacfl.learning.native.kernels.intake import write_intake
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
from pacfl.learning.native.kernels.step import (
    write_extras,
    write_inner_step,
    write_masked_step,
    write_masking,
    write_step,
)
from pacfl.learning.native.packing import row_length
from pacfl.learning.native.plan import AvgPool, Dense, Map, MaxPool, Rectify, Weights, Window
from pacfl.learning.native.target import Target
from tests.learning.native.alone import Array, call, drawn, laid_out, room, taken_out, targets, tensor

MAPS = {"narrow": Map(3, 9, 11), "wide": Map(19, 6, 7)}
maps = pytest.mark.parametrize("source", MAPS.values(), ids=MAPS)
WINDOWS = [Window((2, 2), (2, 2)), Window((3, 2), (2, 1)), Window((1, 3), (2, 4))]
windows = pytest.mark.parametrize("window", WINDOWS, ids=["halves", "overlapping", "with gaps"])


@targets
@maps
@windows
@pytest.mark.parametrize("kind", [MaxPool, AvgPool])
def test_separate_pools(kind: Any, source: Map, window: Window, target: Target) -> None:
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
def test_separate_relu(source: Map, target: Target) -> None:
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
        full = np.zeros((self.n, self.apart))
        if values is not None:
            full[:, : values.shape[1]] = values
        return room(full)

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
def test_a_masked_step_is_a_step_of_some_weights(target: Target) -> None:
    """The others stay, even where their gradient is NaN."""
    n = 3 * target.lanes
    w, v, g, mask = (drawn(n, seed=i) for i in range(4))
    mask = np.maximum(mask, 0)
    expected = room(w)
    call(target, lambda m: write_step(m, "kernel"), expected, room(v), room(g), n, 0.1, 0.9, 0.01)
    weights = room(w)
    given = room(np.where(mask == 0, np.nan, g))
    call(target, lambda m: write_masked_step(m, "kernel"), weights, room(v), given, room(mask), n, 0.1, 0.9, 0.01)
    assert np.array_equal(weights, np.where(mask == 0, w, expected))
    ahead = room(expected)
    call(target, lambda m: write_masking(m, "kernel", n), room(w), room(mask), ahead)
    assert np.array_equal(ahead, weights)


@targets
def test_extras_and_the_inner_step_are_their_formulas(target: Target) -> None:
    n = 2 * target.lanes
    w, g, anchor, gradient_correction = (drawn(n, seed=i) for i in range(4))
    gradient, ahead = room(g), room(n)
    call(
        target, lambda m: write_extras(m, "kernel", n), room(w), gradient, room(anchor), room(gradient_correction), 0.3
    )
    np.testing.assert_allclose(gradient, g + 0.3 * (w - anchor) + gradient_correction, atol=1e-6)
    call(target, lambda m: write_inner_step(m, "kernel", n), room(w), room(g), ahead, 0.7)
    np.testing.assert_allclose(ahead, w - 0.7 * g, atol=1e-6)


@targets
def test_reordering_takes_numbers_from_the_given_origins_and_zeros_elsewhere(target: Target) -> None:
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
def test_nan_logits_give_nan(target: Target) -> None:
    for bad in (np.nan, np.inf):
        x = drawn(10)
        x[3] = bad
        gradient = room(target.padded(10))
        padded = room(np.pad(x, (0, target.padded(10) - 10)))
        call(target, lambda m: write_loss_gradient(m, "kernel", 10), padded, gradient, 0, 1.0)
        assert np.isnan(gradient[0])
