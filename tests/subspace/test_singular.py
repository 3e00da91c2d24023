"""Singular values of many small matrices at once, against LAPACK's of each."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from pacfl.subspace.singular import singular_values

Array = NDArray[np.float64]
SEEDS = st.integers(0, 2**32)


def by_lapack(overlap: NDArray[np.floating]) -> Array:
    return np.moveaxis(np.linalg.svd(np.moveaxis(overlap, 1, 2).T, compute_uv=False), 2, 0).swapaxes(1, 2)


def assert_singular(overlap: NDArray[np.floating]) -> None:
    """Squares of singular values are found to rounding, of which a matrix of norm r makes some r² eps."""
    found, expected = singular_values(overlap), by_lapack(overlap.astype(np.float64))
    assert found.shape == expected.shape
    assert (np.diff(found, axis=0) <= 0).all()
    assert found.min() >= 0
    largest = max(1.0, expected.max()) ** 2
    assert np.abs(found**2 - expected**2).max() <= 40 * largest * np.finfo(overlap.dtype).eps


@pytest.mark.parametrize("p", range(1, 7))
@pytest.mark.parametrize("q", range(1, 7))
def test_singular_values_are_those_of_lapack_for_every_small_shape(p: int, q: int) -> None:
    rng = np.random.default_rng([p, q])
    shape = (p, 3, q, 4)
    full = rng.uniform(-1, 1, shape)
    lower_rank = rng.uniform(-1, 1, (p, 3, 1, 4)) * rng.uniform(-1, 1, (1, 3, q, 4))
    repeated = np.zeros(shape)
    repeated[:, :, :, :] = np.eye(p, q)[:, None, :, None] * rng.uniform(-1, 1, (1, 3, 1, 4))
    turned = np.einsum("ab,bicj->aicj", np.linalg.qr(rng.standard_normal((p, p)))[0], repeated)
    for overlap in (full, lower_rank, repeated, turned, np.zeros(shape), np.ones(shape), full.astype(np.float32)):
        assert_singular(overlap)


@given(
    st.tuples(st.integers(1, 6), st.integers(1, 2), st.integers(1, 6), st.integers(1, 2)).flatmap(
        lambda shape: arrays(np.float64, shape, elements=st.integers(-4, 4).map(lambda k: k / 4))
    )
)
def test_singular_values_are_those_of_lapack_when_entries_repeat(overlap: Array) -> None:
    assert_singular(overlap)


@given(seed=SEEDS, p=st.integers(1, 5), q=st.integers(1, 5))
def test_singular_values_of_the_transpose_are_the_same(seed: int, p: int, q: int) -> None:
    overlap = np.random.default_rng(seed).uniform(-0.5, 0.5, (p, 2, q, 3))
    there, back = singular_values(overlap), singular_values(overlap.transpose(2, 3, 0, 1))
    assert np.abs(there - back.transpose(0, 2, 1)).max() < 1e-7


def test_overlaps_are_not_changed() -> None:
    overlap = np.random.default_rng(0).uniform(-1, 1, (3, 4, 3, 4))
    before = overlap.copy()
    singular_values(overlap)
    assert np.array_equal(overlap, before)
