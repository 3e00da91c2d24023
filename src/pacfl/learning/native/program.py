"""The functions that Python calls: train, gradient, logits."""

from dataclasses import dataclass

from pacfl.learning.native.backward import Backward, write_backward
from pacfl.learning.native.context import Context
from pacfl.learning.native.emit import FLOAT, FLOATS, LONG, LONGS, Function, Module
from pacfl.learning.native.forward import write_forward
from pacfl.learning.native.kernels.order import write_reordering
from pacfl.learning.native.kernels.step import (
    RATES,
    write_extras,
    write_inner_step,
    write_masked_step,
    write_masking,
    write_step,
)
from pacfl.learning.native.layout import Layout, layout
from pacfl.learning.native.packing import Packing, packing
from pacfl.learning.native.plan import Plan
from pacfl.learning.native.target import Target

BATCH = {"samples": FLOATS, "labels": LONGS, "rows": LONGS, "sample_weight": FLOATS, "n": LONG}
STATE = {"weights": FLOATS, "workspace": FLOATS, "gradient": FLOATS}
MASK = {"has_mask": LONG, "mask": FLOATS}
EXTRAS = {
    "has_extras": LONG, "anchor": FLOATS, "prox": FLOAT, "gradient_correction": FLOATS,
    "looks_ahead": LONG, "ahead": FLOATS, "alpha": FLOAT, **MASK,
}  # fmt: skip


@dataclass(frozen=True)
class Program:
    """Text of LLVM, and the layout of the memory that it uses."""

    text: str
    plan: Plan
    target: Target
    packing: Packing
    layout: Layout


def write_program(plan: Plan, target: Target) -> Program:
    """All functions of a plan for a target."""
    c = Context(plan, Module("pacfl", target), packing(plan, target), layout(plan, target))
    write_reordering(c.module, "reorder")
    forward = write_forward(c)
    _write_logits(c, forward)
    backward = write_backward(c)
    gradient = _write_gradient(c, forward, backward.gradient)
    _write_training(c, forward, backward, gradient)
    return Program(str(c.module.ir), plan, target, c.packing, c.layout)


def _write_logits(c: Context, forward: Function) -> None:
    """`logits` (n, classes) of samples[rows], at_once samples at a time."""
    of_data = {"samples": FLOATS, "rows": LONGS, "n": LONG, "at_once": LONG}
    arrays = dict.fromkeys(("weights", "workspace", "logits"), FLOATS)
    with (
        c.module.function("logits", public=True, **of_data, **arrays) as f,
        f.loop("first", f.n, step=f.at_once) as first,
    ):
        some = f.at_once.at_most(f.n - first)
        f.call(forward, f.samples, f.rows.at(first), some, f.weights, f.workspace)
        outputs = f.workspace.at(c.layout.scratch + c.outputs)
        to = f.logits.at(first * c.plan.n_outputs)
        with f.loop("sample", some) as i, f.loop("output", c.plan.n_outputs) as o:
            to.put(i * c.plan.n_outputs + o, outputs.number(i * c.layout.slab + o))


def _write_gradient(c: Context, forward: Function, backward: Function) -> Function:
    """`scale` times the sum of the gradients of samples[rows], each times its weight."""
    with c.module.function("gradient_of", public=True, **BATCH, scale=FLOAT, **STATE) as f:
        f.call(forward, f.samples, f.rows, f.n, f.weights, f.workspace)
        f.call(backward, f.labels, f.rows, f.sample_weight, f.n, f.scale, f.weights, f.workspace, f.gradient)
    return f


def _write_training(c: Context, forward: Function, backward: Backward, gradient: Function) -> None:
    """A local training: order (epochs, n) in batches; the last of an epoch may be smaller.

    The weights of samples are in the same order, (epochs, n).
    """
    plain = _write_plain_step(c, forward, backward.step)
    full = _write_full_step(c, gradient)
    of_samples = {"samples": FLOATS, "labels": LONGS, "order": LONGS, "sample_weight": FLOATS}
    of_data = {**of_samples, "epochs": LONG, "n": LONG, "batch": LONG}
    with (
        c.module.function("train", public=True, **of_data, **STATE, velocity=FLOATS, **RATES, **EXTRAS) as f,
        f.loop("epoch", f.epochs) as epoch,
        f.loop("first", f.n, step=f.batch) as first,
    ):
        at = epoch * f.n + first
        batch = f.samples, f.labels, f.order.at(at), f.sample_weight.at(at), f.batch.at_most(f.n - first)
        state = f.weights, f.workspace, f.gradient, f.velocity, f.lr, f.momentum, f.weight_decay
        changed = (f.has_extras + f.looks_ahead + f.has_mask).differs(0)
        with f.where(changed.negated()):
            f.call(plain, *batch, *state)
        with f.where(changed):
            f.call(full, *batch, *state, *(f.arguments[name] for name in EXTRAS))


def _write_plain_step(c: Context, forward: Function, backward_with_step: Function) -> Function:
    """A step along the gradient of a batch, layer by layer."""
    with c.module.function("plain_step", **BATCH, **STATE, velocity=FLOATS, **RATES) as f:
        f.call(forward, f.samples, f.rows, f.n, f.weights, f.workspace)
        scale = f.number(1.0) / f.n.to_float()
        state = f.weights, f.workspace, f.gradient, f.velocity, f.lr, f.momentum, f.weight_decay
        f.call(backward_with_step, f.labels, f.rows, f.sample_weight, f.n, scale, *state)
    return f


def _write_full_step(c: Context, gradient: Function) -> Function:
    """A step with all options: the gradient of all weights first, then the step."""
    mean = _write_mean(c, gradient)
    ahead = _write_ahead(c, mean)
    extras = write_extras(c.module, "extras", c.packing.size)
    step, masked_step = write_step(c.module, "step_of_all"), write_masked_step(c.module, "step_of_some")
    with c.module.function("full_step", **BATCH, **STATE, velocity=FLOATS, **RATES, **EXTRAS) as f:
        batch, state = (f.samples, f.labels, f.rows, f.sample_weight, f.n), (f.weights, f.workspace, f.gradient)
        with f.where(f.looks_ahead.differs(1)):
            f.call(mean, *batch, *state)
        with f.where(f.looks_ahead.differs(0)):
            f.call(ahead, *batch, *state, f.ahead, f.alpha, f.has_mask, f.mask)
        with f.where(f.has_extras.differs(0)):
            f.call(extras, f.weights, f.gradient, f.anchor, f.gradient_correction, f.prox)
        arrays, rates = (f.weights, f.velocity, f.gradient), (f.lr, f.momentum, f.weight_decay)
        with f.where(f.has_mask.differs(1)):
            f.call(step, *arrays, c.packing.size, *rates)
        with f.where(f.has_mask.differs(0)):
            f.call(masked_step, *arrays, f.mask, c.packing.size, *rates)
    return f


def _write_mean(c: Context, gradient: Function) -> Function:
    """The gradient of the mean of weight times loss of samples[rows]."""
    with c.module.function("mean_gradient", **BATCH, **STATE) as f:
        scale = f.number(1.0) / f.n.to_float()
        batch = f.samples, f.labels, f.rows, f.sample_weight, f.n
        f.call(gradient, *batch, scale, f.weights, f.workspace, f.gradient)
    return f


def _write_ahead(c: Context, mean: Function) -> Function:
    """The gradient of one half of the batch after an inner step with the other half; one sample is both halves."""
    inner_step = write_inner_step(c.module, "look_ahead", c.packing.size)
    masking = write_masking(c.module, "mask_ahead", c.packing.size)
    with c.module.function("gradient_ahead", **BATCH, **STATE, ahead=FLOATS, alpha=FLOAT, **MASK) as f:
        half = (f.n >> 1).at_least(1)
        f.call(mean, f.samples, f.labels, f.rows, f.sample_weight, half, f.weights, f.workspace, f.gradient)
        f.call(inner_step, f.weights, f.gradient, f.ahead, f.alpha)
        with f.where(f.has_mask.differs(0)):
            f.call(masking, f.weights, f.mask, f.ahead)
        rest = (f.n - half).at_least(1)
        others = f.rows.at(f.n - rest), f.sample_weight.at(f.n - rest), rest
        f.call(mean, f.samples, f.labels, *others, f.ahead, f.workspace, f.gradient)
    return f
