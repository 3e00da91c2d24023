"""Numbers as words that can be masked: integers modulo 2^64, whose sum is that of the numbers to a known rounding."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Words = NDArray[np.uint64]

# Bits behind the point: of a number times a client's samples, of a number alone, and of an integer
WEIGHTED: Final = 18
PLAIN: Final = 36
INTEGER: Final = 0
LARGEST: Final = 2.0**52  # of a number in units of its last bit: 2^10 of them leave half of the range to noise


def to_words(numbers: Array, fraction: int) -> Words:
    """Numbers to the nearest multiple of 2^-fraction, as words: (n,). The sum of 1,024 does not overflow.

    >>> from_words(to_words(np.array([1.5]), 18) + to_words(np.array([-2.0]), 18), 18).tolist()
    [-0.5]
    """
    scaled = np.rint(np.ldexp(np.asarray(numbers, dtype=np.float64), fraction))
    if not (np.abs(scaled) <= LARGEST).all():  # not with NaN either
        raise ValueError(f"numbers must be finite and at most {LARGEST / 2**fraction:.3g}")
    return scaled.astype(np.int64).view(np.uint64)


def from_words(words: Words, fraction: int) -> Array:
    """The numbers that words stand for: (n,)."""
    numbers: Array = np.ldexp(words.view(np.int64).astype(np.float64), -fraction)
    return numbers
