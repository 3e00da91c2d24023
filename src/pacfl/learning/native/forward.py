"""From samples to logits."""

from pacfl.learning.native.context import Context
from pacfl.learning.native.emit import FLOATS, LONG, LONGS, Function
from pacfl.learning.native.kernels.channels import write_convolution, write_pooling, write_turn
from pacfl.learning.native.kernels.dense import write_dense
from pacfl.learning.native.kernels.intake import write_intake, write_planes
from pacfl.learning.native.kernels.pools import write_max_pool, write_mean_pool, write_rectifier
from pacfl.learning.native.kernels.rows import write_row_convolution, write_row_pooling
from pacfl.learning.native.plan import AvgPool, Convolve, MaxPool, OnMaps

ON_A_SLAB = {"slab": FLOATS, "weights": FLOATS, "workspace": FLOATS}


def write_forward(c: Context) -> Function:
    """`samples[rows[0]], samples[rows[1]], ...` -> logits, and everything on the way, in their slabs."""
    prepare = _write_turning(c)
    intake = _write_intake(c)
    on_maps = [_write_stage(c, i, stage) for i, stage in enumerate(c.plan.on_maps)]
    dense = [write_dense(c.module, f"dense{i}", stage, c.layout.slab) for i, stage in enumerate(c.plan.dense)]
    arguments = {"samples": FLOATS, "rows": LONGS, "n": LONG, "weights": FLOATS, "workspace": FLOATS}
    with c.module.function("forward", **arguments) as f:
        f.call(prepare, f.weights, f.workspace)
        slabs = f.workspace.at(c.layout.scratch)
        with f.loop("sample", f.n) as i:
            slab = slabs.at(i * c.layout.slab)
            f.call(intake, f.samples.at(f.rows.number(i) * c.plan.sample_size), slab, f.workspace)
            for stage in on_maps:
                f.call(stage, slab, f.weights, f.workspace)
        source = c.features
        for layer, place, spot in zip(dense, c.dense_places, c.layout.dense, strict=True):
            weights, bias = f.weights.at(place.weight), f.weights.at(place.bias)
            f.call(layer, slabs.at(source), weights, bias, slabs.at(spot.result), f.n)
            source = spot.result
    return f


def _write_turning(c: Context) -> Function:
    """Weights of convolutions in the order in which the forward kernels read them."""
    turns = []
    for i, stage in enumerate(c.plan.on_maps):
        if isinstance(stage, Convolve) and not c.convolve_places(i).by_rows:
            kernel = write_turn(c.module, f"turn{i}", stage)
            turns.append((kernel, c.place_of(i).weight, c.convolve_places(i).turned))
    with c.module.function("turn", weights=FLOATS, workspace=FLOATS) as f:
        for turn, weight, turned in turns:
            f.call(turn, f.weights.at(weight), f.workspace.at(turned))
    return f


def _write_intake(c: Context) -> Function:
    """One sample into its slab, and into planes if they are needed."""
    source = c.plan.source
    intake = write_intake(c.module, "weave", source)
    planes = write_planes(c.module, "planes", source) if _needs_planes(c) and source.channels > 1 else None
    with c.module.function("intake", sample=FLOATS, slab=FLOATS, workspace=FLOATS) as f:
        f.call(intake, f.sample, f.slab.at(c.layout.source))
        if planes is not None:
            f.call(planes, f.sample, f.workspace.at(c.layout.planes))
    return f


def _needs_planes(c: Context) -> bool:
    return bool(c.plan.on_maps) and isinstance(c.plan.on_maps[0], Convolve) and c.convolve_places(0).by_rows


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
    with module.function(f"stage{i}", **ON_A_SLAB) as f:
        routes = [f.slab.at(spot.routes).ints()] if isinstance(stage, MaxPool) else []
        f.call(kernel, f.slab.at(c.source_of(i)), f.slab.at(spot.result), *routes)
    return f


def _write_convolution_stage(c: Context, i: int, stage: Convolve) -> Function:
    spot, place = c.layout.on_maps[i], c.place_of(i)
    how = c.convolve_places(i)
    if how.by_rows:
        convolve = write_row_convolution(c.module, f"convolution{i}", stage)
        pool = write_row_pooling(c.module, f"pooling{i}", stage)
    else:
        convolve = write_convolution(c.module, f"convolution{i}", stage)
        pool = write_pooling(c.module, f"pooling{i}", stage)
    with c.module.function(f"stage{i}", **ON_A_SLAB) as f:
        before, source, bias = f.workspace.at(c.layout.before_pooling), f.slab.at(c.source_of(i)), place.bias
        if how.by_rows:
            planes = f.workspace.at(c.layout.planes) if stage.source.channels > 1 else source
            f.call(convolve, planes, f.weights.at(place.weight), f.weights.at(bias), before)
        else:
            f.call(convolve, source, f.workspace.at(how.turned), f.weights.at(bias), before)
        f.call(pool, before, f.slab.at(spot.result), f.slab.at(spot.routes).ints())
    return f
