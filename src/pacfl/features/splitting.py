"""Which rows of a table are for testing. All rows of a group, as those of a patient, are on one side."""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

TEST_EVERY: Final = 5


def rows_for_testing(n: int, groups: NDArray[Any] | None = None) -> NDArray[np.bool_]:
    """Every fifth of n rows, or all rows of every fifth group, in the order of the file: (n,).

    >>> rows_for_testing(6).tolist()
    [False, False, False, False, True, False]
    >>> rows_for_testing(6, np.array([7, 7, 2, 3, 4, 5])).tolist()
    [False, False, False, False, False, True]
    """
    _, first, group = np.unique(np.arange(n) if groups is None else groups, return_index=True, return_inverse=True)
    rank = np.argsort(np.argsort(first))
    return np.asarray(rank[group] % TEST_EVERY == TEST_EVERY - 1)
