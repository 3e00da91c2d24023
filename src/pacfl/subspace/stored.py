"""Samples that are not all in memory at once: the same signatures and noise, from blocks of them.

Where the square of the features is small, one pass adds it up. Otherwise a few passes improve some directions, by the
method of locally optimal block conjugate gradients (Knyazev, 2001).
"""

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh
from scipy.linalg.blas import dsyrk

from pacfl.subspace.orthonormal import deflated, outside

Array = NDArray[np.float64]
Indices = NDArray[np.intp]
Map = Callable[[NDArray[Any]], NDArray[Any]]
Progress = Callable[[str, int, int], object]  # what is going on, steps done since the last call, steps in all

BLOCK: Final = 1 << 21  # numbers in a block of float64: 16 MB
LARGE: Final = 1 << 25  # numbers from which on samples are not converted to float64 at once: 256 MB
MOST_SQUARE: Final = 4096  # features whose square matrix is added up: 134 MB
EXTRA: Final = 4  # directions that are improved for each that is asked, and beside them: the others converge faster
MOST_PASSES: Final = 40
CONVERGED: Final = 1e-9  # what a direction still turns by, about: files store them with 32 bits
SAFE_SIZES: Final = (1e-60, 1e60)  # as for data in memory


class Source(Protocol):
    """An array in memory or in a file: (n, ...)."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Of all samples."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of the numbers."""

    def __getitem__(self, rows: Any, /) -> NDArray[Any]:
        """Some samples, by a slice or by their positions, in memory."""


class StoredSamples:
    """Samples (n, ...) of which blocks are read and changed as they are needed."""

    def __init__(
        self,
        source: Source,
        maps: Sequence[Map] = (),
        members: Indices | None = None,
        on_progress: Progress | None = None,
    ) -> None:
        """All samples of a source or, by their positions, members; each block is changed by the maps in turn."""
        self._source, self._maps, self._members, self._on_progress = source, tuple(maps), members, on_progress
        n = source.shape[0] if members is None else len(members)
        first = self._mapped(source[:1]) if self._maps else None
        self.shape: tuple[int, ...] = (n, *(source.shape if first is None else first.shape)[1:])
        self.dtype = source.dtype if first is None else first.dtype
        self.ndim = len(self.shape)

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def features(self) -> int:
        """Numbers in a sample."""
        return int(np.prod(self.shape[1:]))

    def mapped(self, change: Map) -> "StoredSamples":
        """The same samples, changed one by one."""
        return StoredSamples(self._source, (*self._maps, change), self._members, self._on_progress)

    def subset(self, chosen: NDArray[Any]) -> "StoredSamples":
        """Some of the samples, by a mask or by their positions."""
        at = np.flatnonzero(chosen) if chosen.dtype == np.bool_ else chosen
        members = at if self._members is None else self._members[at]
        return StoredSamples(self._source, self._maps, members, self._on_progress)

    def take(self, chosen: Indices | slice) -> NDArray[Any]:
        """Some samples in memory, (m, ...)."""
        return self._mapped(self._source[chosen if self._members is None else self._members[chosen]])

    def blocks(self, what: str = "reading") -> Iterator[NDArray[Any]]:
        """All samples, in blocks of (m, ...)."""
        step = max(BLOCK // max(self.features, 1), 1)
        for start in range(0, len(self), step):
            yield self.take(slice(start, start + step))
            if self._on_progress is not None:
                self._on_progress(what, 1, -(-len(self) // step))

    def _mapped(self, block: NDArray[Any]) -> NDArray[Any]:
        for change in self._maps:
            block = change(block)
        return block

    @cached_property
    def largest(self) -> float:
        """The largest absolute number; an error says in how many samples there are NaN or infinity."""
        largest, bad = 0.0, 0
        for block in self.blocks("checking"):
            rows = block.reshape(len(block), -1)
            top = max(float(rows.max()), -float(rows.min()))
            if not np.isfinite(top):
                bad += int((~np.isfinite(rows)).any(axis=1).sum())
            largest = max(largest, top)
        if bad:
            raise ValueError(
                f"data must be finite, got NaN or infinity in {bad} of {len(self)} samples; drop or fill them"
            )
        return largest


class StoredRows:
    """Checked samples as rows (n, features) of float64, scaled by a power of two where their squares would overflow."""

    def __init__(self, samples: StoredSamples, exponent: int = 0) -> None:
        """Samples whose numbers are divided by 2 to the exponent."""
        self._samples, self._exponent = samples, exponent
        self.shape = (len(samples), samples.features)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, mask: NDArray[Any]) -> "StoredRows":
        return StoredRows(self._samples.subset(mask), self._exponent)

    def mapped(self, change: Map) -> "StoredRows":
        """The rows changed one by one."""
        return StoredRows(self._samples.mapped(lambda block: change(self._rows(block))))

    def take(self, chosen: Indices | slice) -> Array:
        """Some rows in memory: (m, features)."""
        return self._rows(self._samples.take(chosen))

    def blocks(self, what: str) -> Iterator[Array]:
        """All rows, in blocks of (m, features)."""
        return map(self._rows, self._samples.blocks(what))

    def is_blank(self) -> bool:
        """Whether all entries are zeros."""
        return not any(block.any() for block in self.blocks("checking"))

    def coordinates(self, chosen: Indices) -> Array:
        """Dense rows with the same inner products as those chosen: themselves, or (m, m) where these would be large."""
        step = max(BLOCK // self.shape[1], 1)
        if len(chosen) <= 2 * step:
            return self.take(chosen)
        parts = [chosen[i : i + step] for i in range(0, len(chosen), step)]
        products = np.zeros((len(chosen), len(chosen)))
        for i, own in enumerate(parts):
            rows = self.take(own)
            for j, other in enumerate(parts[: i + 1]):
                found = rows @ (rows if i == j else self.take(other)).T
                products[i * step : i * step + len(own), j * step : j * step + len(other)] = found
                products[j * step : j * step + len(other), i * step : i * step + len(own)] = found.T
        values, vectors = eigh(products)
        return np.asarray(vectors * np.sqrt(np.clip(values, 0.0, None)))

    def _rows(self, block: NDArray[Any]) -> Array:
        rows = block.reshape(len(block), -1).astype(np.float64, copy=False)
        return np.ldexp(rows, -self._exponent) if self._exponent else rows


def as_stored_rows(x: StoredSamples) -> StoredRows:
    """Samples as rows, checked."""
    if x.dtype.kind not in "uifb":
        raise TypeError(f"data must be numbers, got dtype {x.dtype}; convert to integers or floats first")
    if x.ndim < 2 or 0 in x.shape:
        raise ValueError(f"data must be (samples, features...), at least one of each, got shape {x.shape}")
    small, large = SAFE_SIZES
    return StoredRows(x, 0 if small < x.largest < large or not x.largest else int(np.frexp(x.largest)[1]))


def leading_of_stored(rows: StoredRows, rank: int) -> Array:
    """Leading right singular vectors of rows that come in blocks: (features, <= rank)."""
    find = _by_square if rows.shape[1] <= MOST_SQUARE else _by_passes
    return deflated(lambda basis, k: find(rows, basis, k), rows.shape, rank)


def _by_square(rows: StoredRows, basis: Array, k: int) -> tuple[Array, Array]:
    """Singular values and directions of rows outside the basis, from the sum of their squares."""
    features = rows.shape[1]
    square = np.zeros((features, features), order="F")
    for block in rows.blocks("decomposing"):
        square = dsyrk(1.0, outside(block.T, basis), beta=1.0, c=square, overwrite_c=True, lower=True)
    values, vectors = eigh(square, lower=True, overwrite_a=True, subset_by_index=[features - k, features - 1])
    return np.sqrt(np.clip(values[::-1], 0.0, None)), vectors[:, ::-1]


def _by_passes(rows: StoredRows, basis: Array, k: int) -> tuple[Array, Array]:
    """The same where there are many features: each pass multiplies a few directions by the square of the rows."""
    n, features = rows.shape
    width = min(EXTRA * (k + 1), n, features)
    places = np.linspace(0, n - 1, min(2 * width, n)).astype(np.intp)
    found = outside(rows.take(places).T, basis)
    blind = np.random.default_rng(features).standard_normal((features, width))
    values, directions = np.zeros(width), np.linalg.svd(found, full_matrices=False)[0][:, :width]
    search = _spanned([directions, blind], basis)
    before = np.empty((features, 0))
    for step in range(1, MOST_PASSES + 1):
        images, square = np.zeros_like(search), np.zeros((search.shape[1],) * 2)
        for block in rows.blocks(f"decomposing, pass {step}"):
            projected = block @ search
            images += block.T @ projected
            square += projected.T @ projected
        images = outside(images, basis)
        values, weights = np.linalg.eigh(square)
        values, weights = values[::-1][:width], weights[:, ::-1][:, :width]
        directions, images = search @ weights, images @ weights
        residual = images - directions * values
        if (np.linalg.norm(residual[:, :k], axis=0) <= CONVERGED * values[:k]).all() or values[0] <= 0:
            break
        search = _spanned([directions, residual, before], basis)
        before = directions
    return np.sqrt(np.clip(values[:k], 0.0, None)), directions[:, :k]


def _spanned(parts: list[Array], basis: Array) -> Array:
    """An orthonormal basis of what vectors span outside of another, without directions that are only rounding."""
    vectors = np.hstack(parts)
    for _ in range(3):  # again: what is left of nearly dependent vectors is mostly rounding at first
        vectors = outside(vectors, basis)
        lengths = np.linalg.norm(vectors, axis=0)
        vectors = vectors[:, lengths > 0] / lengths[lengths > 0]
        values, rotation = np.linalg.eigh(vectors.T @ vectors)
        present = values > 1e-14 * values[-1]
        vectors = vectors @ (rotation[:, present] / np.sqrt(values[present]))
    return np.linalg.qr(vectors)[0]
