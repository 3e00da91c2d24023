"""Cross-entropy: its gradient at the logits of one sample."""

from math import factorial, log

from pacfl.learning.native.emit import FLOAT, FLOATS, LONG, Function, Module, Value
from pacfl.learning.native.kernels.blocks import vectors_of

LEAST_EXPONENT = -87.0  # beyond, the result would be less than the least normal float32
ROUNDING = 1.5 * 2**23  # added and taken away, it rounds a float32 to an integer
# ln 2 in two parts: the first has so few digits that its small multiples are exact
LN2_HIGH, LN2_LOW = 0.693359375, log(2) - 0.693359375
# Of r^7 ... r^2 in the series of e^r; on |r| < ln 2 / 2 what is left out is below half a unit in the last place
COEFFICIENTS = tuple(1 / factorial(k) for k in range(7, 1, -1))


def exponential(f: Function, x: Value) -> Value:
    """e^x of a vector for x up to 0, exact to two units in the last place; NaN stays NaN."""
    x = f.choose(x.below(f.everywhere(LEAST_EXPONENT)), f.everywhere(LEAST_EXPONENT), x)
    shifted = f.multiply_add(x, f.everywhere(1 / log(2)), f.everywhere(ROUNDING))
    n = shifted - ROUNDING
    r = f.multiply_add(n, f.everywhere(-LN2_LOW), f.multiply_add(n, f.everywhere(-LN2_HIGH), x))
    p = f.everywhere(COEFFICIENTS[0])
    for c in COEFFICIENTS[1:]:
        p = f.multiply_add(p, r, f.everywhere(c))
    e = f.multiply_add(p * r, r, r) + 1.0
    # 2^n: its exponent is written into the bits of a float, the lowest of `shifted` being n itself
    power = f.bits_to_float((f.bits_to_int(shifted) + 127) << 23)
    return e * power


def write_loss_gradient(module: Module, name: str, n_outputs: int) -> Function:
    """`logits` (classes) -> gradient (classes) = scale (softmax - 1 at the label)."""
    vectors = vectors_of(n_outputs, module.target.lanes)
    with module.function(name, logits=FLOATS, gradient=FLOATS, label=LONG, scale=FLOAT) as f:
        lowest = f.everywhere(-3.4e38)
        largest = lowest
        for start, lanes in vectors:
            x = f.first_lanes(lanes, f.logits.vector(start), lowest)
            largest = f.choose(x.above(largest), x, largest)
        top = f.everywhere(f.largest(largest))
        total = f.zeros()
        for start, lanes in vectors:
            e = f.first_lanes(lanes, exponential(f, f.logits.vector(start) - top))
            f.gradient.put(start, e)
            total = total + e
        factor = f.everywhere(f.scale / f.total(total))
        for start, _ in vectors:
            f.gradient.put(start, f.gradient.vector(start) * factor)
        f.gradient.put(f.label, f.gradient.number(f.label) - f.scale)
    return f
