"""From the loss to the gradient of every weight."""

from pacfl.learning.native.context import Context
from pacfl.learning.native.emit import FLOAT, FLOATS, LONG, LONGS, Function
from pacfl.learning.native.kernels.blocks import clear
from pacfl.learning.native.kernels.dense import write_dense_source_gradient, write_dense_weight_gradient
from pacfl.learning.native.kernels.gradients import write_framing, write_source_gradient, write_weight_gradient
from pacfl.learning.native.kernels.loss import write_loss_gradient
from pacfl.learning.native.kernels.pools import (
    write_max_pool_gradient,
    write_mean_pool_gradient,
    write_rectifier_gradient,
)
from pacfl.learning.native.plan import AvgPool, Convolve, MaxPool, OnMaps


def write_backward(c: Context) -> Function:
    """`scale` times the sum of the gradients of n samples, from what forward left in their slabs."""
    loss = write_loss_gradient(c.module, "loss_gradient", c.plan.n_outputs)
    dense = _write_dense(c)
    frame = _write_framing(c)
    on_maps = [_write_stage(c, i, stage) for i, stage in enumerate(c.plan.on_maps)]
    arguments = {"labels": LONGS, "rows": LONGS, "n": LONG, "scale": FLOAT}
    more = {"weights": FLOATS, "workspace": FLOATS, "gradient": FLOATS}
    with c.module.function("backward", **arguments, **more) as f:
        slabs = f.workspace.at(c.layout.scratch)
        with f.loop("sample", f.n) as i:
            slab = slabs.at(i * c.layout.slab)
            label = f.labels.number(f.rows.number(i))
            f.call(loss, slab.at(c.outputs), slab.at(c.outputs_gradient), label, f.scale)
        f.call(dense, slabs, f.weights, f.gradient, f.n)
        clear(f, f.gradient, c.dense_places[0].weight if c.plan.dense else c.packing.size)
        f.call(frame, f.weights, f.workspace)
        with f.loop("sample", f.n if on_maps else 0) as i:
            for stage in reversed(on_maps):
                f.call(stage, slabs.at(i * c.layout.slab), f.weights, f.workspace, f.gradient)
    return f


def _write_dense(c: Context) -> Function:
    """The dense stages from the last to the first."""
    sources = [c.features, *(spot.result for spot in c.layout.dense)]
    of_sources = [c.layout.features_gradient, *(spot.gradient for spot in c.layout.dense)]
    kernels = []
    for i, stage in enumerate(c.plan.dense):
        of_weights = write_dense_weight_gradient(c.module, f"dense{i}_weight_gradient", stage, c.layout.slab)
        of_source = None
        if i or c.plan.on_maps:
            relu = i > 0 and c.plan.dense[i - 1].relu
            of_source = write_dense_source_gradient(c.module, f"dense{i}_source_gradient", stage, c.layout.slab, relu)
        kernels.append((of_weights, of_source))
    with c.module.function("dense_backward", slabs=FLOATS, weights=FLOATS, gradient=FLOATS, n=LONG) as f:
        for i, (of_weights, of_source) in reversed(list(enumerate(kernels))):
            place, given, source = c.dense_places[i], f.slabs.at(c.layout.dense[i].gradient), f.slabs.at(sources[i])
            f.call(of_weights, source, given, f.gradient.at(place.weight), f.gradient.at(place.bias), f.n)
            if of_source is not None:
                f.call(of_source, source, f.weights.at(place.weight), given, f.slabs.at(of_sources[i]), f.n)
    return f


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
    """Weights of convolutions in the frames from which gradients of their sources are made."""
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
