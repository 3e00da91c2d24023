"""Class signatures as they are stored, in signature files and federation folders; what is read is checked."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from pacfl.signatures.labels import MOST_CLASSES, is_name
from pacfl.subspace.classes import FEWEST, RANK, SPLITS, ClassSignatures

MOST_SAMPLES: Final = 1 << 48
UNIT_WITHIN: Final = 2e-3  # of a direction's length: rounding to float16 changes it by at most half of this
ORTHOGONAL_WITHIN: Final = 5e-3  # of two directions of a class, after the same rounding

Directions = NDArray[np.float16]
Angles = NDArray[np.float32]


def stored(made: ClassSignatures) -> tuple[Directions, Angles]:
    """Directions (rank, classes, features) and split-half angles (rank, classes, splits) in few bytes."""
    directions = np.ascontiguousarray(np.moveaxis(made.directions, 1, 2)).astype("<f2")
    return directions, np.ascontiguousarray(made.split_half_angles).astype("<f4")


def as_stored(made: ClassSignatures) -> ClassSignatures:
    """What others will read: the same whether signatures pass through files or not."""
    return restored(made.names, made.counts.tolist(), *stored(made), private=made.private)


def restored(
    names: Sequence[str], counts: Any, directions: NDArray[Any], angles: NDArray[Any], private: bool = False
) -> ClassSignatures:
    """Class signatures from stored arrays; a ValueError says what `pacfl sign` would not have written."""
    check_names(names, counts)
    exact = directions.astype(np.float64)
    if not np.isfinite(exact).all():
        raise ValueError("NaN or infinity in directions of classes")
    lengths = np.sqrt((exact**2).sum(axis=2))
    absent = lengths == 0
    absent[:1] = False  # of a class: it may lack later directions, never the first
    if (np.abs(lengths - 1) > UNIT_WITHIN)[~absent].any():
        raise ValueError("directions of classes that do not have length 1")
    if len(exact) > 1 and (np.abs((exact[0] * exact[1]).sum(axis=1)) > ORTHOGONAL_WITHIN).any():
        raise ValueError("directions of a class that are not orthogonal")
    # Rounding changes lengths, and a cosine of 0.999 between equal directions would be an angle of 2.6 degrees
    exact /= np.where(absent, 1.0, lengths)[:, :, None]
    degrees = angles.astype(np.float64)
    if not ((degrees >= 0) & (degrees <= 90)).all():
        raise ValueError("split-half angles of classes that are not 0 to 90 degrees")
    sizes = np.asarray(counts, dtype=np.int64).reshape(len(names))
    return ClassSignatures(tuple(names), sizes, np.moveaxis(exact, 1, 2), degrees, private)


def check_names(names: Any, counts: Any) -> None:
    """Refuse lists that are not the sorted names of classes and their sample counts."""
    for listed, what in ((names, "names"), (counts, "counts")):
        if not isinstance(listed, list | tuple) or len(listed) > MOST_CLASSES:
            raise ValueError(f"{what} of classes that are not a list of at most {MOST_CLASSES}")
    if not all(map(is_name, names)) or any(a >= b for a, b in pairwise(names)):
        raise ValueError("names of classes that are not distinct texts in order")
    if len(counts) != len(names) or not all(type(n) is int and FEWEST <= n <= MOST_SAMPLES for n in counts):
        raise ValueError(f"counts of classes that are not one integer of at least {FEWEST} for each")


def shapes(n_classes: int, features: int) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
    """The shapes of stored directions and angles."""
    return (RANK, n_classes, features), (RANK, n_classes, SPLITS)
