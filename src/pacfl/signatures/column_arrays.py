"""Columns of tables as they are stored, in signature files and federation folders; what is read is checked."""

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pacfl.signatures.labels import MOST_CLASSES, is_name
from pacfl.subspace.columns import FEWEST, UNLABELLED, ColumnAngles

Angles = NDArray[np.float32]


def shape_of(n_classes: int, columns: int) -> tuple[int, int, int, int]:
    """Of stored angles: means and variances of values and of their spread, (classes, 2, 2, columns)."""
    return n_classes, 2, 2, columns


def stored(made: ColumnAngles) -> Angles:
    """Means and variances in few bytes."""
    return np.stack([made.means, made.variances], axis=1).astype("<f4")


def as_stored(made: ColumnAngles) -> ColumnAngles:
    """What others will read: the same whether signatures pass through files or not."""
    return restored(made.names, made.counts.tolist(), stored(made))


def restored(names: Sequence[str], counts: Any, angles: NDArray[Any]) -> ColumnAngles:
    """Columns from stored arrays; a ValueError says what `pacfl sign` would not have written."""
    check_classes(names, counts)
    means, variances = np.moveaxis(angles.astype(np.float64), 1, 0)
    spread = means[:, 1] if len(means) else means
    if not ((np.abs(means) <= 90.001).all() and (spread >= 0).all()):
        raise ValueError("mean angles of columns that are not -90 to 90 degrees")
    if not ((variances >= 0) & (variances <= 2 * 90.0**2)).all():
        raise ValueError("variances of columns that no angles have")
    return ColumnAngles(tuple(names), np.asarray(counts, dtype=np.int64).reshape(len(names)), means, variances)


def check_classes(names: Any, counts: Any) -> None:
    """Refuse lists that are not the sorted names of classes, or one without a name, and their sample counts."""
    if not all(isinstance(listed, list | tuple) and len(listed) <= MOST_CLASSES for listed in (names, counts)):
        raise ValueError(f"classes of columns that are not a list of at most {MOST_CLASSES}")
    known = all(map(is_name, names)) or list(names) == [UNLABELLED]
    if not known or any(a >= b for a, b in pairwise(names)):
        raise ValueError("classes of columns that are not distinct texts in order")
    if len(counts) != len(names) or not all(type(n) is int and FEWEST <= n <= 1 << 48 for n in counts):
        raise ValueError(f"counts of columns that are not one integer of at least {FEWEST} for each class")


def arrays_of(tables: Sequence[ColumnAngles | None]) -> dict[str, Any]:
    """What a federation folder stores of its clients' tables; nothing if there are none."""
    known = [table for table in tables if table is not None]
    if not known:
        return {}
    return {
        "table_classes_of": np.array([-1 if table is None else len(table.names) for table in tables]),
        "table_classes": np.array([name for table in known for name in table.names], dtype=np.str_),
        "table_counts": np.concatenate([table.counts for table in known]),
        "table_angles": np.concatenate([stored(table) for table in known]),
    }


def tables_from(state: Mapping[str, NDArray[Any]], n: int, features: int) -> tuple[ColumnAngles | None, ...]:
    """The tables of n clients, checked as those of signature files are."""
    if "table_classes_of" not in state:
        return (None,) * n
    numbers, names, counts, angles = (state[f"table_{part}"] for part in ("classes_of", "classes", "counts", "angles"))
    if numbers.shape != (n,) or numbers.dtype.kind != "i" or numbers.min() < -1:
        raise ValueError("it has no valid number of classes for each table")
    ends = np.cumsum(np.maximum(numbers, 0))
    total = int(ends[-1])
    if angles.shape != shape_of(total, features - 1) or not (names.shape == counts.shape == (total,)):
        raise ValueError("its columns have no valid shape")
    return tuple(
        None
        if number < 0
        else restored(
            [str(one) for one in names[end - number : end]],
            counts[end - number : end].tolist(),
            angles[end - number : end],
        )
        for number, end in zip(numbers.tolist(), ends.tolist(), strict=True)
    )


def n_bytes(n_classes: int, columns: int) -> int:
    """Of stored angles."""
    return 4 * math.prod(shape_of(n_classes, columns))
