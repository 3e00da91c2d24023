"""How many clients a sum needs."""

from typing import Final

FEWEST: Final = 3  # clients in a sum: of two, each knows the other's part
MOST: Final = 1024


def threshold(n: int) -> int:
    """How many of n clients must stay for their sum: more than two thirds, so that no server gets two sums.

    >>> [threshold(n) for n in (3, 4, 5, 10, 20)]
    [3, 3, 4, 7, 14]
    """
    return max(FEWEST, 2 * n // 3 + 1)
