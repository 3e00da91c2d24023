"""Sparse samples, as text has: the same signatures and noise as of dense ones, without making them dense."""

from collections.abc import Callable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh
from scipy.sparse import csr_array, issparse, vstack
from scipy.sparse.linalg import LinearOperator, eigsh

from pacfl.subspace.orthonormal import deflated, outside

Array = NDArray[np.float64]
Sparse = Any  # csr_array; scipy has no types

MOST_SQUARE: Final = (
    1024  # rows of the smaller square matrix that is made dense; of larger ones few directions are found
)
AT_ONCE: Final = 1 << 21  # numbers of dense vectors


def is_sparse(x: Any) -> bool:
    """Whether these are samples in one of scipy's sparse formats."""
    return bool(issparse(x))


def as_sparse_rows(x: Any) -> Sparse:
    """Samples as rows of finite float64, checked: any sparse (n, features) -> the same in compressed rows."""
    if x.dtype.kind not in "uifb":
        raise TypeError(f"data must be numbers, got dtype {x.dtype}; convert to integers or floats first")
    if x.ndim != 2 or 0 in x.shape:
        raise ValueError(f"sparse data must be (samples, features), at least one of each, got shape {x.shape}")
    rows = csr_array(x, dtype=np.float64)
    rows.sum_duplicates()
    bad = ~np.isfinite(rows.data)
    if bad.any():
        of = len(np.unique(np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr))[bad]))
        raise ValueError(
            f"data must be finite, got NaN or infinity in {of} of {rows.shape[0]} samples; drop or fill them"
        )
    return rows


def as_dense(x: Any) -> Any:
    """A sparse array as a dense one; others are unchanged."""
    return x.toarray() if is_sparse(x) else x


def values_of(rows: Any) -> Array:
    """All entries that may differ from zero."""
    return np.asarray(rows.data if is_sparse(rows) else rows)


def is_blank(rows: Any) -> bool:
    """Whether all entries are zeros."""
    return not values_of(rows).any()


def stacked(parts: list[Any]) -> Any:
    """Samples of several arrays, sparse ones or not, in one."""
    return vstack(parts, format="csr") if any(map(is_sparse, parts)) else np.concatenate(parts)


def inner_products(rows: Any) -> Array:
    """Of every two rows: (m, features) -> (m, m)."""
    return np.asarray(as_dense(rows @ rows.T))


def with_values(rows: Sparse, values: Array) -> Sparse:
    """The same matrix with other values where it has some."""
    return csr_array((values, rows.indices, rows.indptr), shape=rows.shape)


def leading_of_sparse(rows: Sparse, rank: int) -> Array:
    """Leading right singular vectors of sparse rows: (features, <= rank)."""
    used = np.unique(rows.indices)  # columns without an entry have no part in any direction
    own = rows[:, used]
    wide = own.shape[0] <= own.shape[1]
    short, long = (own, own.T.tocsr()) if wide else (own.T.tocsr(), own)  # short has as many rows as the smaller side

    def square(vectors: Array, basis: Array) -> Array:
        """The smaller square matrix of what is outside the basis, times vectors (m, k)."""
        if wide:
            return np.asarray(short @ outside(long @ vectors, basis))
        return outside(np.asarray(short @ (long @ outside(vectors, basis))), basis)

    def strongest(basis: Array, k: int) -> tuple[Array, Array]:
        m, columns = short.shape
        if m > MOST_SQUARE:
            values, vectors = _largest_of(lambda v: square(v.reshape(m, -1), basis).ravel(), m, k)
        else:
            step = max(AT_ONCE // columns, 1)
            parts = (square(np.eye(m)[:, i : i + step], basis) for i in range(0, m, step))
            matrix = np.hstack(list(parts)) if basis.shape[1] else inner_products(short)
            values, vectors = eigh(matrix, subset_by_index=[m - k, m - 1])
        s, vectors = np.sqrt(np.clip(values[::-1], 0.0, None)), vectors[:, ::-1]
        return s, outside(np.asarray(long @ vectors), basis) / np.where(s > 0, s, 1.0) if wide else vectors

    whole = np.zeros((rows.shape[1], min(rank, *rows.shape)))
    basis = deflated(strongest, own.shape, rank)
    whole[used, : basis.shape[1]] = basis
    return whole[:, : basis.shape[1]]


def lengths_of_sparse(rows: Sparse) -> Array:
    """The length of every sample: (n,)."""
    return np.asarray(np.sqrt(rows.multiply(rows).sum(axis=1))).ravel()


def scaled(rows: Sparse, factors: Array) -> Sparse:
    """Every sample times its factor (n,)."""
    return with_values(rows, rows.data * np.repeat(factors, np.diff(rows.indptr)))


def coordinates(rows: Any) -> Array:
    """Dense samples with the same inner products as sparse ones: (m, features) -> (m, m); dense ones are unchanged.

    All angles between combinations of samples are those of the samples themselves.
    """
    if not is_sparse(rows):
        return np.asarray(rows)
    values, vectors = eigh(inner_products(rows))
    return np.asarray(vectors * np.sqrt(np.clip(values, 0.0, None)))


def _largest_of(square: Callable[[Array], Array], m: int, k: int) -> tuple[Array, Array]:
    """The k largest eigenvalues, ascending, and eigenvectors of a symmetric map of vectors (m,)."""
    start = np.random.default_rng(m).standard_normal(m)  # fixed: the same data give the same bytes
    values, vectors = eigsh(LinearOperator((m, m), matvec=square, dtype=np.float64), k=k, which="LA", v0=start, tol=0)
    order = np.argsort(values)
    return values[order], vectors[:, order]
