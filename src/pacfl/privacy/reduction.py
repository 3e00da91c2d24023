"""Fewer features, by a map that does not depend on the data: noise on thousands of features would hide any signal."""

from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pacfl.subspace.signature import as_rows
from pacfl.subspace.sparse import as_dense
from pacfl.subspace.stored import StoredSamples

Array = NDArray[np.float64]

CELLS: Final = 4  # images become 4 × 4 means for each channel
MOST_FEATURES: Final = 48  # of a table: as many as a colour image has cells
EVEN: Final = 1e-9  # contrast of an image, of its brightness, that is nothing but rounding


def reduced(x: ArrayLike | StoredSamples) -> tuple[Array, str]:
    """Samples with few features, and how they were reduced; comparable signatures have equal reductions.

    Images (n, h, w) or (n, h, w, c) -> (n, 16 c) means of cells. Tables (n, f) of more than 48 columns -> (n, 48) by a
    random projection that is the same for all clients; narrower ones are unchanged.

    >>> reduced(np.ones((2, 8, 8)))[1]
    'pool 4x4'
    """
    if isinstance(x, StoredSamples):
        parts = [reduced(block) for block in x.blocks()]
        return np.concatenate([part for part, _ in parts]), parts[0][1]
    rows, shape = as_rows(x), np.shape(x)
    match len(shape):
        case 2 if shape[1] <= MOST_FEATURES:
            return as_dense(rows), "none"
        case 2:
            return rows @ projection(shape[1]), f"project {shape[1]} to {MOST_FEATURES}"
        case 3 | 4:
            return _pooled(rows.reshape(*shape[:3], -1)), f"pool {CELLS}x{CELLS}"
    raise ValueError(f"samples must be rows of a table or images (n, h, w) or (n, h, w, c), got shape {shape}")


def contrasted(x: ArrayLike | StoredSamples) -> tuple[Array, str]:
    """As `reduced`, and images without their mean: what a class has in common is its pattern, not how bright it is.

    >>> contrasted([[[3.0, 1.0], [1.0, 3.0]]])[0].reshape(4, 4)[:, 0].tolist()
    [1.0, 1.0, -1.0, -1.0]
    """
    rows, how = reduced(x)
    if len(np.shape(x)) == 2:
        return rows, how
    contrast = rows - rows.mean(axis=1, keepdims=True)
    even = np.abs(contrast).max(axis=1) <= EVEN * np.abs(rows).max(axis=1)
    contrast[even] = 0.0
    return contrast, f"{how}, contrast"


def projection(features: int) -> Array:
    """A public matrix with independent normal entries, addressed by the number of features: (features, 48)."""
    rng = np.random.default_rng([features, MOST_FEATURES])
    return np.asarray(rng.standard_normal((features, MOST_FEATURES)))


def _pooled(images: Array) -> Array:
    """Means of cells: (n, h, w, c) -> (n, 4 · 4 · c)."""
    down, across = (_cell_means(size) for size in images.shape[1:3])
    cells = np.einsum("ih,jw,nhwc->nijc", down, across, images, optimize=True)
    return np.asarray(cells.reshape(len(images), -1))


def _cell_means(size: int) -> Array:
    """Rows that average a line of pixels over 4 cells of about equal length: (4, size)."""
    edges = np.arange(CELLS + 1) * size / CELLS
    weights = np.zeros((CELLS, size))
    for cell, first, last in zip(weights, np.floor(edges[:-1]), np.ceil(edges[1:]), strict=True):
        cell[int(first) : int(last)] = 1 / (last - first)
    return weights
