"""From the loss to the gradient of every weight."""

from dataclasses import dataclass

from pacfl.learning.native.context import Context
from pacfl.learning.native.emit import FLOAT, FLOATS, LONG, LONGS, Function, Value
from pacfl.learning.native.kernels.blocks import clear
from pacfl.learning.native.kernels.dense import write_dense_source_gradient
from pacfl.learning.native.kernels.dense_weights import write_dense_step, write_dense_weight_gradient
from pacfl.learning.native.kernels.gradients import write_framing, write_source_gradient, write_weight_gradient
from pacfl.learning.native.kernels.loss import write_loss_gradient
from pacfl.learning.native.kernels.pools import (
    write_max_pool_gradient,
    write_mean_pool_gradient,
    write_rectifier_gradient,
)
from pacfl.learning.native.kernels.step import RATES, write_step
from pacfl.learning.native.plan import AvgPool, Convolve, MaxPool, OnMaps

BATCH = {"labels": LONGS, "rows": LONGS, "sample_weight": FLOATS, "n": LONG, "scale": FLOAT}
STATE = {"weights": FLOATS, "workspace": FLOATS, "gradient": FLOATS}


@dataclass(frozen=True, eq=False)
class Backward:
    """Two functions: one stores the gradient of all weights, the other takes a step of SGD with it."""

    gradient: Function
    step: Function


def write_backward(c: Context) -> Backward:
    """`scale` times the weighted sum of gradients of n samples, from what the forward pass stored in their slabs."""
    loss = write_loss_gradient(c.module, "loss_gradient", c.plan.n_outputs)
    of_sources = _write_source_gradients(c)
    on_maps = _write_maps(c)
    map_step = write_step(c.module, "step")
    with c.module.function("backward", **BATCH, **STATE) as gradient:
        _losses(gradient, c, loss)
        _dense_layers(gradient, c, of_sources, _write_dense_gradients(c), ())
        _maps(gradient, c, on_maps)
    with c.module.function("backward_with_step", **BATCH, **STATE, velocity=FLOATS, **RATES) as f:
        rates = f.lr, f.momentum, f.weight_decay
        _losses(f, c, loss)
        _dense_layers(f, c, of_sources, _write_dense_steps(c), rates)
        _maps(f, c, on_maps)
        f.call(map_step, f.weights, f.velocity, f.gradient, c.n_of_maps, *rates)
    return Backward(gradient, step=f)


def _losses(f: Function, c: Context, loss: Function) -> None:
    with f.loop("sample", f.n) as i:
        slab = f.workspace.at(c.layout.scratch).at(i * c.layout.slab)
        label = f.labels.number(f.rows.number(i))
        scale = f.scale * f.sample_weight.number(i)
        f.call(loss, slab.at(c.outputs), slab.at(c.outputs_gradient), label, scale)


def _write_source_gradients(c: Context) -> list[Function | None]:
    """Of every dense stage; the first needs none if it is the first of the net."""
    kernels: list[Function | None] = []
    for i, stage in enumerate(c.plan.dense):
        relu = i > 0 and c.plan.dense[i - 1].relu
        needed = i > 0 or c.plan.on_maps
        name = f"dense{i}_source_gradient"
        kernels.append(write_dense_source_gradient(c.module, name, stage, c.layout.slab, relu) if needed else None)
    return kernels


def _write_dense_gradients(c: Context) -> list[Function]:
    return [
        write_dense_weight_gradient(c.module, f"dense{i}_weight_gradient", stage, c.layout.slab)
        for i, stage in enumerate(c.plan.dense)
    ]


def _write_dense_steps(c: Context) -> list[Function]:
    return [write_dense_step(c.module, f"dense{i}_step", stage, c.layout.slab) for i, stage in enumerate(c.plan.dense)]


def _dense_layers(
    f: Function, c: Context, of_sources: list[Function | None], of_weights: list[Function], rates: tuple[Value, ...]
) -> None:
    """The dense stages from the last to the first: gradients of sources are computed before a step changes weights."""
    slabs = f.workspace.at(c.layout.scratch)
    sources = [c.features, *(spot.result for spot in c.layout.dense)]
    targets = [c.layout.features_gradient, *(spot.gradient for spot in c.layout.dense)]
    for i in reversed(range(len(c.plan.dense))):
        weight = c.dense_places[i].weight
        source, given = slabs.at(sources[i]), slabs.at(c.layout.dense[i].gradient)
        of_source = of_sources[i]
        if of_source is not None:
            f.call(of_source, source, f.weights.at(weight), given, slabs.at(targets[i]), f.n)
        to = (f.weights.at(weight), f.velocity.at(weight)) if rates else (f.gradient.at(weight),)
        f.call(of_weights[i], source, given, slabs.at(c.layout.entry), *to, f.n, *rates)


def _write_maps(c: Context) -> Function:
    """The gradients of all stages on maps, from the gradient of the last one's result."""
    frame = _write_framing(c)
    stages = [_write_stage(c, i, stage) for i, stage in enumerate(c.plan.on_maps)]
    with c.module.function("maps_backward", n=LONG, **STATE) as f:
        clear(f, f.gradient, c.n_of_maps)
        f.call(frame, f.weights, f.workspace)
        with f.loop("sample", f.n) as i:
            slab = f.workspace.at(c.layout.scratch).at(i * c.layout.slab)
            for stage in reversed(stages):
                f.call(stage, slab, f.weights, f.workspace, f.gradient)
    return f


def _maps(f: Function, c: Context, on_maps: Function) -> None:
    if c.plan.on_maps:
        f.call(on_maps, f.n, f.weights, f.workspace, f.gradient)


def _write_stage(c: Context, i: int, stage: OnMaps) -> Function:
    """The gradient through stage i on maps, for one sample in its slab."""
    if isinstance(stage, Convolve):
        return _write_convolution_stage(c, i, stage)
    module, spot = c.module, c.layout.on_maps[i]
    if isinstance(stage, MaxPool):
        kernel = write_max_pool_gradient(module, f"max_pool{i}_gradient", stage)
    elif isinstance(stage, AvgPool):
        kernel = write_mean_pool_gradient(module, f"mean_pool{i}_gradient", stage)
    else:
        kernel = write_rectifier_gradient(module, f"rectifier{i}_gradient", stage)
    arguments = dict.fromkeys(("slab", "weights", "workspace", "gradient"), FLOATS)
    with module.function(f"stage{i}_gradient", **arguments) as f:
        if i:
            given, of_source = c.gradient_of(f, i), c.gradient_of(f, i - 1)
            if isinstance(stage, MaxPool):
                f.call(kernel, given, f.slab.at(spot.routes).ints(), of_source)
            elif isinstance(stage, AvgPool):
                f.call(kernel, given, of_source)
            else:
                f.call(kernel, f.slab.at(c.source_of(i)), given, of_source)
    return f


def _write_convolution_stage(c: Context, i: int, stage: Convolve) -> Function:
    spot, place, lists = c.layout.on_maps[i], c.place_of(i), c.layout.lists
    how = c.convolve_places(i)
    of_weights = write_weight_gradient(c.module, f"convolution{i}_weight_gradient", stage, how.routes)
    of_source = (
        write_source_gradient(c.module, f"convolution{i}_source_gradient", stage, how.routes, how.frame) if i else None
    )
    arguments = dict.fromkeys(("slab", "weights", "workspace", "gradient"), FLOATS)
    with c.module.function(f"stage{i}_gradient", **arguments) as f:
        given, values = c.gradient_of(f, i), f.workspace.at(lists.values)
        integers = f.slab.at(spot.routes), f.workspace.at(lists.places), f.workspace.at(lists.counts)
        routes, places, counts = (array.ints() for array in integers)
        to = f.gradient.at(place.weight), f.gradient.at(place.bias)
        f.call(of_weights, f.slab.at(c.source_of(i)), given, *to, values, routes, places, counts)
        if of_source is not None:
            framed = f.workspace.at(how.framed)
            f.call(of_source, framed, given, values, c.gradient_of(f, i - 1), routes, places, counts)
    return f


def _write_framing(c: Context) -> Function:
    """Weights of convolutions in the frames from which gradients of their sources are computed."""
    framings = []
    for i, stage in enumerate(c.plan.on_maps):
        if i and isinstance(stage, Convolve):
            how = c.convolve_places(i)
            kernel = write_framing(c.module, f"frame{i}", stage, how.frame)
            framings.append((kernel, c.place_of(i).weight, how.framed))
    with c.module.function("frame", weights=FLOATS, workspace=FLOATS) as f:
        for kernel, weight, framed in framings:
            f.call(kernel, f.weights.at(weight), f.workspace.at(framed))
    return f
