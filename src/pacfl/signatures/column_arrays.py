"""Columns of tables as they are stored, in signature files and federation folders; what is read is checked."""

import json
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
    return restored(made.names, made.counts.tolist(), stored(made), zeros_as_json(made))


def zeros_as_json(made: ColumnAngles) -> list[float | None] | None:
    """What 0 became in each column, in seven digits; None where it means nothing."""
    if made.zeros is None:
        return None
    return [float(f"{zero:.7g}") if np.isfinite(zero) else None for zero in made.zeros]


def restored(names: Sequence[str], counts: Any, angles: NDArray[Any], zeros: Any = None) -> ColumnAngles:
    """Columns from stored arrays; a ValueError says what `pacfl sign` would not have written."""
    check_classes(names, counts)
    means, variances = np.moveaxis(angles.astype(np.float64), 1, 0)
    spread = means[:, 1] if len(means) else means
    if not ((np.abs(means) <= 90.001).all() and (spread >= 0).all()):
        raise ValueError("mean angles of columns that are not -90 to 90 degrees")
    if not ((variances >= 0) & (variances <= 2 * 90.0**2)).all():
        raise ValueError("variances of columns that no angles have")
    arrays = np.asarray(counts, dtype=np.int64).reshape(len(names)), means, variances
    return ColumnAngles(tuple(names), *arrays, _zeros(zeros, angles.shape[-1]))


def _zeros(listed: Any, columns: int) -> NDArray[np.float64] | None:
    if listed is None:
        return None
    if not isinstance(listed, list) or len(listed) != columns or not all(map(_is_zero, listed)):
        raise ValueError(f"zeros of columns that are not {columns} numbers or nulls")
    return np.array([np.nan if zero is None else zero for zero in listed])


def _is_zero(zero: Any) -> bool:
    return zero is None or (type(zero) in (int, float) and abs(zero) < 1e300)


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
        "table_zeros": np.array([json.dumps(zeros_as_json(known[0]))]),  # of the schema, which all have
    }


def tables_from(state: Mapping[str, NDArray[Any]], n: int, features: int) -> tuple[ColumnAngles | None, ...]:
    """The tables of n clients, checked as those of signature files are."""
    if "table_classes_of" not in state:
        return (None,) * n
    numbers, names, counts, angles = (state[f"table_{part}"] for part in ("classes_of", "classes", "counts", "angles"))
    zeros = json.loads(str(state["table_zeros"][0])) if "table_zeros" in state else None
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
            zeros,
        )
        for number, end in zip(numbers.tolist(), ends.tolist(), strict=True)
    )


def n_bytes(n_classes: int, columns: int) -> int:
    """Of stored angles."""
    return 4 * math.prod(shape_of(n_classes, columns))
