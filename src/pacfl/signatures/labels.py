"""Labels of samples -> names of classes that clients can compare, in plain text or hashed with a federation's key."""

from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pacfl.signatures.keys import keyed_hash
from pacfl.subspace.classes import ClassSignatures

MOST_NAME: Final = 200  # characters of a class or a column
MOST_CLASSES: Final = 1 << 12


def class_names(labels: ArrayLike, n: int) -> NDArray[np.str_]:
    """The class of each of n samples as text, so that 3, 3.0 and "3 " are one class wherever they were read from."""
    given = np.asarray(labels)
    if given.shape != (n,):
        raise ValueError(f"labels must be one per sample, got shape {given.shape} for {n} samples")
    if given.dtype.kind == "f":
        given = _integers(given)
    if given.dtype.kind == "O" and any(value is None or value != value for value in given.tolist()):
        raise ValueError("some labels are missing; label these samples, or leave them out")
    names = np.array([str(name).strip() for name in given.astype(str).tolist()], dtype=np.str_)
    found = np.unique(names)
    if "" in found:
        raise ValueError("some labels are empty; label these samples, or leave them out")
    wrong = [name for name in found.tolist() if not is_name(name)]
    if wrong:
        raise ValueError(f"classes are named by up to {MOST_NAME} printable characters, got {wrong[0][:40]!r}")
    return names


def is_name(name: object) -> bool:
    """Whether it can name a class: printable, so that a terminal shows it as it is."""
    return isinstance(name, str) and 0 < len(name) <= MOST_NAME and name.isprintable() and name == name.strip()


def with_hashed_names(made: ClassSignatures, key: bytes) -> ClassSignatures:
    """The same classes under keyed hashes of their names, in the order of the hashes: the old order would show some."""
    names = [keyed_hash(key, b"pacfl class\0" + name.encode()) for name in made.names]
    order = sorted(range(len(names)), key=names.__getitem__)
    return replace(
        made,
        names=tuple(names[k] for k in order),
        counts=made.counts[order],
        directions=made.directions[:, :, order],
        split_half_angles=made.split_half_angles[:, order],
    )


def hashed(names: NDArray[np.str_], key: bytes) -> NDArray[np.str_]:
    """Names of classes, (n,), hashed as `with_hashed_names` does."""
    found, at = np.unique(names, return_inverse=True)
    return np.array([keyed_hash(key, b"pacfl class\0" + name.encode()) for name in found.tolist()])[at]


def _integers(labels: NDArray[Any]) -> NDArray[Any]:
    """Classes that a library read as floating-point numbers, which it does where a table has empty cells elsewhere."""
    if not np.isfinite(labels).all():
        raise ValueError("some labels are NaN or infinite; label these samples, or leave them out")
    if (labels != np.rint(labels)).any() or np.abs(labels).max(initial=0) > 2**53:
        fraction = labels[labels != np.rint(labels)]
        shown = fraction[0] if len(fraction) else labels[0]
        raise ValueError(f"labels name classes, got {shown}: values are not classes; sign without labels")
    return labels.astype(np.int64)
