"""A sparse matrix has the signature, the noise and the classes of the same numbers in a dense one."""

import subprocess
import sys

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.linalg import subspace_angles
from scipy.sparse import coo_array, csc_array, csr_array, csr_matrix, random_array

from pacfl.subspace import class_signatures, neighbours, signature, split_half_angles
from pacfl.subspace.sparse import coordinates

Array = NDArray[np.float64]


def counts(n: int, features: int, seed: int = 0) -> Array:
    """Few words in each of n documents, common ones more often; the last columns are empty."""
    rng = np.random.default_rng(seed)
    shares = 1 / np.arange(1, features + 1)
    shares[-3:] = 0
    return rng.multinomial(12, shares / shares.sum(), size=n).astype(np.float64)


def widest(a: Array, b: Array) -> float:
    assert a.shape == b.shape
    return float(subspace_angles(a, b).max())


@pytest.mark.parametrize("shape", [(30, 80), (200, 40), (1500, 60), (60, 1500), (1300, 1200)])
@pytest.mark.parametrize("rank", [1, 3])
def test_the_signature_is_that_of_the_dense_matrix(shape: tuple[int, int], rank: int) -> None:
    x = counts(*shape)
    assert np.abs(signature(csr_array(x), rank) - signature(x, rank)).max() < 1e-9


@pytest.mark.parametrize("kind", [csr_array, csr_matrix, csc_array, coo_array])
def test_every_format_of_scipy_is_taken(kind: type) -> None:
    x = counts(50, 20)
    assert np.abs(signature(kind(x.astype(np.int32)), 2) - signature(x, 2)).max() < 1e-9


@pytest.mark.parametrize("shape", [(1200, 40), (40, 1200), (1300, 1100)])
def test_directions_are_found_however_weak_they_are(shape: tuple[int, int]) -> None:
    """Squares of singular values that differ by 1e7 are lost in float64; the decomposition of x itself has them."""
    rng = np.random.default_rng(0)
    u, v = (np.linalg.qr(rng.standard_normal((n, 3)))[0] for n in shape)
    x = u * [1.0, 1e-3, 1e-7] @ v.T
    found = signature(csr_array(x), 3)
    assert widest(found, v) < 1e-6
    assert widest(found[:, :1], v[:, :1]) < 1e-9


@pytest.mark.parametrize("shape", [(1200, 40), (1300, 1100)])
def test_there_are_no_more_directions_than_the_data_have(shape: tuple[int, int]) -> None:
    x = np.zeros(shape)
    x[::2, 3], x[1::3, 5] = 2.0, 1.0
    with pytest.warns(UserWarning, match="asked for 4 directions, the data have 2"):
        assert signature(csr_array(x), 4).shape == (shape[1], 2)


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("n", [40, 700])
def test_the_noise_is_that_of_the_dense_matrix(n: int, grouped: bool) -> None:
    x = counts(n, 300)
    groups = np.arange(n) % 20 if grouped else None
    dense, sparse = (split_half_angles(m, 2, groups=groups) for m in (x, csr_array(x)))
    for measure, angles in dense.items():
        assert np.abs(angles - sparse[measure]).max() < 1e-5, measure


def test_the_noise_of_data_without_leading_directions_is_that_of_the_dense_matrix() -> None:
    sparse = csr_array(random_array((300, 500), density=0.02, rng=np.random.default_rng(0)))
    found = split_half_angles(sparse, 3)
    for measure, angles in split_half_angles(sparse.toarray(), 3).items():
        assert np.abs(angles - found[measure]).max() < 1e-5, measure


@pytest.mark.parametrize("grouped", [False, True])
def test_classes_are_those_of_the_dense_matrix(grouped: bool) -> None:
    x, labels = counts(600, 50), np.arange(600) % 3
    groups = np.arange(600) // 6 if grouped else None
    dense, sparse = (class_signatures(m, labels, groups=groups) for m in (x, csr_array(x)))
    assert dense.names == sparse.names
    assert dense.counts.tolist() == sparse.counts.tolist()
    assert np.abs(dense.directions - sparse.directions).max() < 1e-9
    assert np.abs(dense.split_half_angles - sparse.split_half_angles).max() < 1e-5


@pytest.mark.parametrize("grouped", [False, True])
def test_dependence_is_that_of_the_dense_matrix(grouped: bool) -> None:
    x = np.repeat(counts(200, 50), 3, axis=0)
    groups = np.arange(600) // 2 if grouped else None
    dense, sparse = (neighbours(m, groups=groups) for m in (x, csr_array(x)))
    assert (dense.dependent, dense.squared) == (sparse.dependent, sparse.squared)
    assert sparse.cosine == pytest.approx(dense.cosine)


def test_coordinates_have_the_same_inner_products() -> None:
    x = counts(30, 200)
    found = coordinates(csr_array(x))
    assert found.shape == (30, 30)
    assert np.abs(found @ found.T - x @ x.T).max() < 1e-9


@pytest.mark.parametrize("scale", [1e-200, 1e200])
def test_sizes_whose_squares_no_float_holds_do_no_harm(scale: float) -> None:
    x = counts(60, 20)
    assert np.abs(signature(csr_array(x * scale), 2) - signature(x, 2)).max() < 1e-9


def test_bad_values_are_refused_with_the_number_of_samples() -> None:
    x = counts(20, 10)
    x[3, 0] = x[3, 1] = np.nan
    with pytest.raises(ValueError, match="NaN or infinity in 1 of 20 samples"):
        signature(csr_array(x), 1)
    with pytest.raises(ValueError, match="got all zeros"):
        signature(csr_array((5, 5)), 1)
    with pytest.raises(ValueError, match=r"at least one of each, got shape \(0, 5\)"):
        signature(csr_array((0, 5)), 1)


def test_a_large_sparse_matrix_takes_little_memory() -> None:
    """20,000 × 2^18 numbers are 42 GB; the 400,000 that are not zero are 5 MB."""
    program = """
import resource, numpy as np
from scipy.sparse import csr_array
from pacfl.subspace import neighbours, signature, split_half_angles
rng = np.random.default_rng(0)
columns = (rng.pareto(1.0, 400_000) * 10).astype(np.int64) % 2**18
x = csr_array((np.ones(400_000), columns, np.arange(0, 400_001, 20)), shape=(20_000, 2**18))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
signature(x, 3), split_half_angles(x, 3), neighbours(x)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 200, "megabytes"
