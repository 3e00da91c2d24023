"""Kernels on all weights at once: one step of SGD, and looking ahead."""

from pacfl.learning.native.emit import FLOAT, FLOATS, Function, Module


def write_step(module: Module, name: str, size: int, with_extras: bool) -> Function:
    """`v` <- momentum v + g', w <- w - lr v, with g' = g + weight_decay w, and extras: + pull (w - anchor) + shift."""
    arrays = ("weights", "velocity", "gradient", *(("anchor", "shift") if with_extras else ()))
    numbers = ("lr", "momentum", "weight_decay", *(("pull",) if with_extras else ()))
    with module.function(name, **dict.fromkeys(arrays, FLOATS), **dict.fromkeys(numbers, FLOAT)) as f:
        lr, momentum, decay = (f.everywhere(x) for x in (f.lr, f.momentum, f.weight_decay))
        with f.loop("weight", size, step=f.lanes) as i:
            w = f.weights.vector(i)
            g = f.multiply_add(decay, w, f.gradient.vector(i))
            if with_extras:
                g = f.multiply_add(f.everywhere(f.pull), w - f.anchor.vector(i), g) + f.shift.vector(i)
            v = f.multiply_add(momentum, f.velocity.vector(i), g)
            f.velocity.put(i, v)
            f.weights.put(i, w - lr * v)
    return f


def write_look_ahead(module: Module, name: str, size: int) -> Function:
    """`ahead` <- w - alpha g."""
    with module.function(name, weights=FLOATS, gradient=FLOATS, ahead=FLOATS, alpha=FLOAT) as f:
        alpha = f.everywhere(f.alpha)
        with f.loop("weight", size, step=f.lanes) as i:
            f.ahead.put(i, f.weights.vector(i) - alpha * f.gradient.vector(i))
    return f
