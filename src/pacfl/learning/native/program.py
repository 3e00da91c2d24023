"""The functions that are called from outside: train, gradient, logits."""

from dataclasses import dataclass

from pacfl.learning.native.backward import write_backward
from pacfl.learning.native.context import Context
from pacfl.learning.native.emit import FLOAT, FLOATS, LONG, LONGS, Function, Module
from pacfl.learning.native.forward import write_forward
from pacfl.learning.native.kernels.step import write_look_ahead, write_step
from pacfl.learning.native.layout import Layout, layout
from pacfl.learning.native.packing import Packing, packing
from pacfl.learning.native.plan import Plan
from pacfl.learning.native.target import Target

BATCH = {"samples": FLOATS, "labels": LONGS, "rows": LONGS, "n": LONG}
STATE = {"weights": FLOATS, "workspace": FLOATS, "gradient": FLOATS}


@dataclass(frozen=True)
class Program:
    """Text of LLVM, and where it expects things."""

    text: str
    plan: Plan
    target: Target
    packing: Packing
    layout: Layout


def write_program(plan: Plan, target: Target) -> Program:
    """All functions of a plan for a target."""
    c = Context(plan, Module("pacfl", target), packing(plan, target), layout(plan, target))
    forward = write_forward(c)
    _write_logits(c, forward)
    gradient = _write_gradient(c, forward, write_backward(c))
    _write_training(c, gradient)
    return Program(str(c.module.ir), plan, target, c.packing, c.layout)


def _write_logits(c: Context, forward: Function) -> None:
    """`logits` (n, classes) of samples[rows]."""
    arguments = {"samples": FLOATS, "rows": LONGS, "n": LONG, "weights": FLOATS, "workspace": FLOATS, "logits": FLOATS}
    with c.module.function("logits", public=True, **arguments) as f:
        f.call(forward, f.samples, f.rows, f.n, f.weights, f.workspace)
        outputs = f.workspace.at(c.layout.scratch + c.outputs)
        with f.loop("sample", f.n) as i, f.loop("output", c.plan.n_outputs) as o:
            f.logits.put(i * c.plan.n_outputs + o, outputs.number(i * c.layout.slab + o))


def _write_gradient(c: Context, forward: Function, backward: Function) -> Function:
    """`scale` times the sum of the gradients of samples[rows]."""
    with c.module.function("gradient_of", public=True, **BATCH, scale=FLOAT, **STATE) as f:
        f.call(forward, f.samples, f.rows, f.n, f.weights, f.workspace)
        f.call(backward, f.labels, f.rows, f.n, f.scale, f.weights, f.workspace, f.gradient)
    return f


def _write_training(c: Context, gradient: Function) -> None:
    """A local training: order (epochs, n) in batches, the last of an epoch as small as it is."""
    mean = _write_mean(c, gradient)
    ahead = _write_ahead(c, mean)
    plain = write_step(c.module, "step", c.packing.size, with_extras=False)
    full = write_step(c.module, "step_with_extras", c.packing.size, with_extras=True)
    of_data = {"samples": FLOATS, "labels": LONGS, "order": LONGS, "epochs": LONG, "n": LONG, "batch": LONG}
    rates = dict.fromkeys(("lr", "momentum", "weight_decay", "pull", "alpha"), FLOAT)
    vectors = dict.fromkeys(("velocity", "anchor", "shift", "ahead"), FLOATS)
    how = {"has_extras": LONG, "looks_ahead": LONG}
    with (
        c.module.function("train", public=True, **of_data, **rates, **STATE, **vectors, **how) as f,
        f.loop("epoch", f.epochs) as epoch,
        f.loop("first", f.n, step=f.batch) as first,
    ):
        batch = f.samples, f.labels, f.order.at(epoch * f.n + first), f.batch.at_most(f.n - first)
        with f.where(f.looks_ahead.differs(1)):
            f.call(mean, *batch, f.weights, f.workspace, f.gradient)
        with f.where(f.looks_ahead.differs(0)):
            f.call(ahead, *batch, f.weights, f.workspace, f.gradient, f.ahead, f.alpha)
        state = f.weights, f.velocity, f.gradient
        with f.where(f.has_extras.differs(1)):
            f.call(plain, *state, f.lr, f.momentum, f.weight_decay)
        with f.where(f.has_extras.differs(0)):
            f.call(full, *state, f.anchor, f.shift, f.lr, f.momentum, f.weight_decay, f.pull)


def _write_mean(c: Context, gradient: Function) -> Function:
    """The gradient of the mean loss of samples[rows]."""
    with c.module.function("mean_gradient", **BATCH, **STATE) as f:
        scale = f.number(1.0) / f.n.to_float()
        f.call(gradient, f.samples, f.labels, f.rows, f.n, scale, f.weights, f.workspace, f.gradient)
    return f


def _write_ahead(c: Context, mean: Function) -> Function:
    """The gradient of one half of the batch, where a step along that of the other half leads; one sample is both."""
    look = write_look_ahead(c.module, "look_ahead", c.packing.size)
    with c.module.function("gradient_ahead", **BATCH, **STATE, ahead=FLOATS, alpha=FLOAT) as f:
        half = (f.n >> 1).at_least(1)
        f.call(mean, f.samples, f.labels, f.rows, half, f.weights, f.workspace, f.gradient)
        f.call(look, f.weights, f.gradient, f.ahead, f.alpha)
        rest = (f.n - half).at_least(1)
        f.call(mean, f.samples, f.labels, f.rows.at(f.n - rest), rest, f.ahead, f.workspace, f.gradient)
    return f
