"""From samples to logits."""

from pacfl.learning.native.context import Context
from pacfl.learning.native.emit import FLOATS, LONG, LONGS, Function
from pacfl.learning.native.kernels.dense import write_dense
from pacfl.learning.native.kernels.maps import write_convolution, write_intake, write_pooling, write_turn
from pacfl.learning.native.kernels.pools import write_max_pool, write_mean_pool, write_rectifier
from pacfl.learning.native.plan import AvgPool, Convolve, MaxPool, OnMaps


def write_forward(c: Context) -> Function:
    """samples[rows[0]], samples[rows[1]], ... -> logits, and everything on the way, in their slabs."""
    prepare = _write_prepare(c)
    intake = write_intake(c.module, "intake", c.plan.source)
    on_maps = [_write_stage(c, i, stage) for i, stage in enumerate(c.plan.on_maps)]
    dense = [write_dense(c.module, f"dense{i}", stage, c.layout.slab) for i, stage in enumerate(c.plan.dense)]
    arguments = {"samples": FLOATS, "rows": LONGS, "n": LONG, "weights": FLOATS, "workspace": FLOATS}
    with c.module.function("forward", **arguments) as f:
        f.call(prepare, f.weights, f.workspace)
        slabs = f.workspace.at(c.layout.scratch)
        with f.loop("sample", f.n) as i:
            slab = slabs.at(i * c.layout.slab)
            f.call(intake, f.samples.at(f.rows.number(i) * c.plan.sample_size), slab.at(c.layout.source))
            for stage in on_maps:
                f.call(stage, slab, f.weights, f.workspace)
        source = c.features
        for layer, place, spot in zip(dense, c.dense_places, c.layout.dense, strict=True):
            weights, bias = f.weights.at(place.weight), f.weights.at(place.bias)
            f.call(layer, slabs.at(source), weights, bias, slabs.at(spot.result), f.n)
            source = spot.result
    return f


def _write_prepare(c: Context) -> Function:
    """What is done once whenever weights have changed."""
    stages = [stage for stage in c.plan.on_maps if isinstance(stage, Convolve)]
    turns = [write_turn(c.module, f"turn{i}", stage) for i, stage in enumerate(stages)]
    with c.module.function("prepare", weights=FLOATS, workspace=FLOATS) as f:
        for i, turn in enumerate(turns):
            f.call(turn, f.weights.at(c.packing.places[i].weight), f.workspace.at(c.layout.turned[i]))
    return f


def _write_stage(c: Context, i: int, stage: OnMaps) -> Function:
    """Stage i on maps, for one sample in its slab."""
    module, spot = c.module, c.layout.on_maps[i]
    if isinstance(stage, Convolve):
        return _write_convolution_stage(c, i, stage)
    if isinstance(stage, MaxPool):
        kernel = write_max_pool(module, f"max_pool{i}", stage)
    elif isinstance(stage, AvgPool):
        kernel = write_mean_pool(module, f"mean_pool{i}", stage)
    else:
        kernel = write_rectifier(module, f"rectifier{i}", stage)
    with module.function(f"stage{i}", slab=FLOATS, weights=FLOATS, workspace=FLOATS) as f:
        routes = [f.slab.at(spot.routes).ints()] if isinstance(stage, MaxPool) else []
        f.call(kernel, f.slab.at(c.source_of(i)), f.slab.at(spot.result), *routes)
    return f


def _write_convolution_stage(c: Context, i: int, stage: Convolve) -> Function:
    convolve = write_convolution(c.module, f"convolution{i}", stage)
    pool = write_pooling(c.module, f"pooling{i}", stage)
    spot, j = c.layout.on_maps[i], c.convolution(i)
    with c.module.function(f"stage{i}", slab=FLOATS, weights=FLOATS, workspace=FLOATS) as f:
        before, turned = f.workspace.at(c.layout.before_pooling), f.workspace.at(c.layout.turned[j])
        f.call(convolve, f.slab.at(c.source_of(i)), turned, f.weights.at(c.packing.places[j].bias), before)
        f.call(pool, before, f.slab.at(spot.result), f.slab.at(spot.routes).ints())
    return f
