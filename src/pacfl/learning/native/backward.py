"""From the loss to the gradient of every weight."""

from pacfl.learning.native.context import Context
from pacfl.learning.native.emit import FLOAT, FLOATS, LONG, LONGS, Function
from pacfl.learning.native.kernels.dense import write_dense_source_gradient, write_dense_weight_gradient
from pacfl.learning.native.kernels.loss import write_loss_gradient
from pacfl.learning.native.kernels.maps import write_clearing, write_convolution_gradient
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
        write_clearing(f, f.gradient, c.dense_places[0].weight if c.plan.dense else c.packing.size)
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
    kernel = write_convolution_gradient(c.module, f"convolution{i}_gradient", stage, to_source=i > 0)
    place = c.packing.places[c.convolution(i)]
    arguments = dict.fromkeys(("slab", "weights", "workspace", "gradient"), FLOATS)
    with c.module.function(f"stage{i}_gradient", **arguments) as f:
        listed = f.workspace.at(c.layout.list_places).ints(), f.workspace.at(c.layout.list_values)
        of_source = [c.gradient_of(f, i - 1)] if i else []
        f.call(
            kernel, f.slab.at(c.source_of(i)), f.weights.at(place.weight), c.gradient_of(f, i),
            f.gradient.at(place.weight), f.gradient.at(place.bias),
            f.slab.at(c.layout.on_maps[i].routes).ints(), *listed, *of_source,
        )  # fmt: skip
    return f
