"""Kernels on weights: one step of SGD, of all of them or of some, and the inner step of Per-FedAvg."""

from dataclasses import dataclass

from pacfl.learning.native.emit import FLOAT, FLOATS, LONG, Array, Function, Index, Module, Value

RATES = {"lr": FLOAT, "momentum": FLOAT, "weight_decay": FLOAT}


@dataclass(frozen=True, eq=False)
class Step:
    """One step of SGD, a vector of weights at a time: v <- momentum v + g + weight_decay w, then w <- w - lr v."""

    weights: Array
    velocity: Array
    lr: Value
    momentum: Value
    weight_decay: Value

    @classmethod
    def of(cls, f: Function) -> "Step":
        """With the arguments of a function."""
        rates = (f.everywhere(x) for x in (f.lr, f.momentum, f.weight_decay))
        return cls(f.weights, f.velocity, *rates)

    def take(self, f: Function, i: Index, gradient: Value) -> None:
        """At the weights from i on."""
        w = self.weights.vector(i)
        v = f.multiply_add(self.momentum, self.velocity.vector(i), f.multiply_add(self.weight_decay, w, gradient))
        self.velocity.put(i, v)
        self.weights.put(i, w - self.lr * v)


def write_step(module: Module, name: str) -> Function:
    """A step of n weights, with their gradient."""
    arrays = {"weights": FLOATS, "velocity": FLOATS, "gradient": FLOATS, "n": LONG}
    with module.function(name, **arrays, **RATES) as f:
        step = Step.of(f)
        with f.loop("weight", f.n, step=f.lanes) as i:
            step.take(f, i, f.gradient.vector(i))
    return f


def write_masked_step(module: Module, name: str) -> Function:
    """The same step of the weights whose mask is not zero; the others stay as they are, whatever their gradient."""
    arrays = {"weights": FLOATS, "velocity": FLOATS, "gradient": FLOATS, "mask": FLOATS, "n": LONG}
    with module.function(name, **arrays, **RATES) as f:
        step = Step.of(f)
        with f.loop("weight", f.n, step=f.lanes) as i:
            before = f.weights.vector(i)
            step.take(f, i, f.gradient.vector(i))
            f.weights.put(i, f.choose(f.mask.vector(i).is_zero(), before, f.weights.vector(i)))
    return f


def write_extras(module: Module, name: str, size: int) -> Function:
    """`gradient` <- gradient + prox (weights - anchor) + gradient_correction."""
    arrays = dict.fromkeys(("weights", "gradient", "anchor", "gradient_correction"), FLOATS)
    with module.function(name, **arrays, prox=FLOAT) as f, f.loop("weight", size, step=f.lanes) as i:
        away = f.weights.vector(i) - f.anchor.vector(i)
        g = f.multiply_add(f.everywhere(f.prox), away, f.gradient.vector(i)) + f.gradient_correction.vector(i)
        f.gradient.put(i, g)
    return f


def write_inner_step(module: Module, name: str, size: int) -> Function:
    """`ahead` <- weights - alpha gradient."""
    arrays = dict.fromkeys(("weights", "gradient", "ahead"), FLOATS)
    with module.function(name, **arrays, alpha=FLOAT) as f, f.loop("weight", size, step=f.lanes) as i:
        f.ahead.put(i, f.weights.vector(i) - f.everywhere(f.alpha) * f.gradient.vector(i))
    return f


def write_masking(module: Module, name: str, size: int) -> Function:
    """`ahead` <- weights where the mask is zero."""
    arrays = dict.fromkeys(("weights", "mask", "ahead"), FLOATS)
    with module.function(name, **arrays) as f, f.loop("weight", size, step=f.lanes) as i:
        f.ahead.put(i, f.choose(f.mask.vector(i).is_zero(), f.weights.vector(i), f.ahead.vector(i)))
    return f
