"""Data matrix -> signature: an orthonormal basis of its few leading directions."""

import warnings
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import eigh
from scipy.sparse import csr_array

from pacfl.subspace.orthonormal import SAFE_TO_SQUARE, fix_signs, negligible
from pacfl.subspace.sparse import (
    as_dense,
    as_sparse_rows,
    coordinates,
    inner_products,
    is_blank,
    is_sparse,
    leading_of_sparse,
    values_of,
    with_values,
)
from pacfl.subspace.stored import LARGE, StoredRows, StoredSamples, as_stored_rows, leading_of_stored

Array = NDArray[np.float64]

RANK: Final = 3  # directions, unless another number is asked for

# Entries whose squares, and sums of very many squares, are far from the limits of float64.
SAFE_SIZES: Final = (1e-60, 1e60)

# A stream stores this many directions for each one asked: the error of the others is then negligible.
STORED_PER_DIRECTION: Final = 16

# Directions of different classes that are closer than this, in radians, are one: bases are no more accurate.
ONE_DIRECTION: Final = 1e-6


class RankWarning(UserWarning):
    """The data have fewer independent directions than were asked for."""


def signature(x: ArrayLike, rank: int, labels: ArrayLike | None = None) -> Array:
    """Orthonormal basis of the leading left singular vectors of the data matrix.

    x (n, ...) samples first, the rest flattened to features  ->  (features, at most rank). Sparse matrices of scipy
    do not become dense, and large arrays are read in blocks.
    With labels (n,): the leading `rank` directions of every class, orthonormalised together, strongest shared
    direction first; the order says nothing about which class is which.

    >>> signature([[3.0, 0.0], [0.0, 1.0]], rank=1)
    array([[1.],
           [0.]])
    """
    check_rank(rank)
    rows = rows_of(x)
    if labels is None:
        basis, asked = leading(rows, rank), rank
    else:
        named = as_labels(labels, rows.shape[0])
        basis, asked = leading_of_classes(rows, rank, named), min(rank * len(np.unique(named)), rows.shape[1])
    if basis.shape[1] < asked:
        warnings.warn(
            f"asked for {asked} directions, the data have {basis.shape[1]}; the signature has {basis.shape[1]}",
            RankWarning,
            stacklevel=2,
        )
    return basis


class SignatureStream:
    """Signature of data that do not fit in memory: feed blocks of samples, then ask.

    Stores at most (features, 32 × rank) numbers, whatever the number of samples.

    >>> stream = SignatureStream(rank=1)
    >>> stream.feed([[3.0, 0.0]]).feed([[0.0, 1.0]]).signature()
    array([[1.],
           [0.]])
    """

    def __init__(self, rank: int) -> None:
        """Start with no samples."""
        check_rank(rank)
        self._rank = rank
        self._stored = STORED_PER_DIRECTION * rank
        self._parts: list[Array] = []  # the summary so far, and rows that are not in it yet
        self.n_samples = 0

    def feed(self, block: ArrayLike) -> "SignatureStream":
        """Add a block of samples (m, ...) to the summary."""
        rows = as_rows(as_dense(block))
        if self._parts and rows.shape[1] != self._parts[0].shape[1]:
            raise ValueError(
                f"a block has {rows.shape[1]} features, earlier ones had {self._parts[0].shape[1]}; "
                "feed samples of one size"
            )
        self.n_samples += len(rows)
        for start in range(0, len(rows), self._stored):
            self._parts.append(rows[start : start + self._stored].copy())  # a view would hold the whole block in memory
            if sum(len(part) for part in self._parts) >= 2 * self._stored:
                self._parts = [condense(np.vstack(self._parts), self._stored)]
        return self

    def signature(self) -> Array:
        """The signature of everything fed so far: (features, at most rank)."""
        if not self._parts:
            raise ValueError("no samples were fed; feed at least one block before asking for the signature")
        return signature(np.vstack(self._parts), self._rank)


def as_rows(x: ArrayLike) -> Array:
    """Samples as rows of finite float64, checked: (n, ...) -> (n, features); sparse ones stay sparse."""
    if is_sparse(x):
        return as_sparse_rows(x)  # type: ignore[no-any-return]  # scipy has no types
    array = np.asarray(x)
    if array.dtype.kind not in "uifb":
        raise TypeError(f"data must be numbers, got dtype {array.dtype}; convert to integers or floats first")
    if array.ndim < 2:
        raise ValueError(f"data must be (samples, features...), got shape {array.shape}; is it a single sample?")
    if 0 in array.shape:
        raise ValueError(f"data must have at least one sample and one feature, got shape {array.shape}")
    rows = array.reshape(len(array), -1).astype(np.float64)
    if not np.isfinite(rows).all():
        bad = int((~np.isfinite(rows)).any(axis=1).sum())
        raise ValueError(f"data must be finite, got NaN or infinity in {bad} of {len(rows)} samples; drop or fill them")
    return rows


def rows_of(x: Any) -> Any:
    """Samples as rows that are dense, sparse or, where there are very many, read in blocks; checked."""
    if not is_sparse(x) and not isinstance(x, StoredSamples):
        array = np.asarray(x)
        if array.size <= LARGE or array.dtype.kind not in "uifb" or array.ndim < 2:
            return as_rows(array)
        x = StoredSamples(array)
    return as_stored_rows(x) if isinstance(x, StoredSamples) else as_rows(x)


def as_labels(labels: ArrayLike, n: int) -> NDArray[Any]:
    """One label for each of n samples, checked."""
    named = np.asarray(labels)
    if named.shape != (n,):
        raise ValueError(f"labels must be one per sample, got shape {named.shape} for {n} samples")
    return named


def leading_of_classes(rows: Any, rank: int, labels: NDArray[Any]) -> Array:
    """Orthonormal basis of the leading directions of all classes together, strongest shared direction first."""
    bases = [leading(rows[labels == name], rank) for name in np.unique(labels)]
    # Equally strong directions come out in the order they went in: let that be their own, not the classes'
    bases.sort(key=lambda basis: basis.tobytes())
    columns = np.hstack(bases)
    u, s, _ = np.linalg.svd(columns, full_matrices=False)
    return fix_signs(u[:, s > ONE_DIRECTION])


def leading(rows: Any, rank: int) -> Array:
    """Leading right singular vectors of rows, by the smaller of the two square matrices: (features, <= rank)."""
    if blank(rows):
        raise ValueError("data must span some direction, got all zeros; is this the right array?")
    if isinstance(rows, StoredRows):
        return leading_of_stored(rows, rank)
    rows = of_unit_size(rows)
    if is_sparse(rows):
        return leading_of_sparse(rows, rank)
    n, features = rows.shape
    asked = min(rank, n, features)
    square = rows @ rows.T if n <= features else rows.T @ rows
    values, vectors = eigh(square, subset_by_index=[len(square) - asked, len(square) - 1])
    s = np.sqrt(np.clip(values[::-1], 0.0, None))
    if s[-1] < SAFE_TO_SQUARE * s[0]:
        _, s, vt = np.linalg.svd(rows, full_matrices=False)
        return fix_signs(vt[:asked][s[:asked] > negligible(s[0], rows.shape)].T)
    basis = vectors[:, ::-1]
    if n <= features:
        basis, _ = np.linalg.qr(rows.T @ basis / s)
    return fix_signs(basis)


def blank(rows: Any) -> bool:
    """Whether all entries are zeros."""
    return rows.is_blank() if isinstance(rows, StoredRows) else is_blank(rows)


def drawn(rows: Any, chosen: NDArray[Any]) -> Array:
    """Dense rows with the same inner products as some of the rows, by their positions: (m, ...)."""
    return rows.coordinates(chosen) if isinstance(rows, StoredRows) else coordinates(rows[chosen])


def condense(rows: Any, most: int) -> Any:
    """At most `most` rows with nearly the same second moments: the leading directions scaled by their strength."""
    n = rows.shape[0]
    if n <= most:
        return rows
    _, vectors = eigh(inner_products(rows), subset_by_index=[n - most, n - 1])
    return as_sparse_rows(csr_array(vectors.T @ rows)) if is_sparse(rows) else np.asarray(vectors.T @ rows)


def of_unit_size(rows: Any) -> Any:
    """The rows, or if they are huge or tiny the rows divided, exactly, by a power of two near their largest entry.

    Their squares then neither vanish nor overflow.
    """
    if isinstance(rows, StoredRows):
        return rows  # they are scaled already
    values = values_of(rows)
    largest = max(float(values.max(initial=0.0)), -float(values.min(initial=0.0)))
    if SAFE_SIZES[0] < largest < SAFE_SIZES[1]:
        return rows
    scaled = np.ldexp(values, -int(np.frexp(largest)[1]))
    return with_values(rows, scaled) if is_sparse(rows) else scaled


def check_rank(rank: int) -> None:
    """Refuse what is no positive integer."""
    if isinstance(rank, bool) or not isinstance(rank, int | np.integer) or rank < 1:
        raise ValueError(f"rank must be an integer of at least 1, got {rank!r}")
