"""The keyed transform: orthogonal, invertible, determined by the key alone, and fast."""

import hashlib
import hmac
import math
import tracemalloc
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from pacfl.privacy.keyed import FACTORS, FEW, keyed, unkeyed
from pacfl.subspace import MEASURES, proximity

KEY, OTHER = b"a key of the federation", b"another key of the same length"


def bases(features: int, n: int = 4, rank: int = 3) -> list[NDArray[np.float64]]:
    rng = np.random.default_rng(features)
    return [np.linalg.qr(rng.standard_normal((features, min(rank, features))))[0] for _ in range(n)]


@given(st.integers(1, 300), st.binary(min_size=16, max_size=40))
@settings(max_examples=60, deadline=None)
def test_the_transform_is_orthogonal_and_has_an_inverse(features: int, key: bytes) -> None:
    hidden = keyed(np.eye(features), key)
    assert np.allclose(hidden.T @ hidden, np.eye(features), atol=1e-12)
    assert np.allclose(unkeyed(hidden, key), np.eye(features), atol=1e-12)


@pytest.mark.parametrize("features", [1, 2, 7, FEW, FEW + 1, 784])
@pytest.mark.parametrize("measure", MEASURES)
def test_angles_are_unchanged(features: int, measure: str) -> None:
    plain = bases(features)
    hidden = [keyed(basis, KEY) for basis in plain]
    assert np.allclose(proximity(hidden, measure), proximity(plain, measure), atol=1e-5)  # type: ignore[arg-type]


@pytest.mark.parametrize("features", [20, 300])
def test_another_key_is_another_transform(features: int) -> None:
    """Or it would hide nothing: the same basis under two keys has the angles of two random ones."""
    (basis,) = bases(features, 1)
    smallest = proximity([keyed(basis, KEY), keyed(basis, OTHER)])[0, 1]
    assert smallest > 20
    assert not np.allclose(unkeyed(keyed(basis, KEY), OTHER), basis, atol=0.1)


@pytest.mark.parametrize("features", [FEW, 784])
def test_no_feature_can_be_recognised(features: int) -> None:
    """Coordinates of an axis are as those of a random direction: mean of fourth powers 3 / (n (n + 2)).

    Signs, a cosine transform and a permutation alone give half of that: every axis becomes a permuted cosine.
    """
    fourth = (keyed(np.eye(features), KEY) ** 4).mean(axis=0) * features * (features + 2)
    assert abs(fourth.mean() - 3) < 0.1
    assert (fourth > 1.8).all()
    assert (fourth < 5).all()


def test_few_features_are_turned_by_any_angle() -> None:
    """Signs and permutations of two axes are eight; keys give as many angles as there are keys, evenly spread."""
    turned = np.array([keyed([[1.0], [0.0]], b"%032d" % i)[:, 0] for i in range(400)])
    degrees = np.degrees(np.arctan2(turned[:, 1], turned[:, 0]))
    counts, _ = np.histogram(degrees, bins=8, range=(-180, 180))
    assert len(np.unique(degrees.round(6))) == 400
    assert (counts > 25).all()
    assert (counts < 80).all()


def numbers(features: int, purpose: str, count: int) -> list[int]:
    """The 64-bit numbers of a purpose, by the definition."""
    seed = hmac.new(KEY, b"pacfl directions\0" + str(features).encode(), hashlib.sha256).digest()
    drawn = hashlib.shake_256(seed + purpose.encode()).digest(8 * count)
    return [int.from_bytes(drawn[8 * i : 8 * i + 8], "little") for i in range(count)]


def test_many_features_are_transformed_as_the_definition_says() -> None:
    """By matrices of signs, cosines and permutations, made from the key without numpy's generators."""
    n = 200
    cosines = np.array([[math.cos(math.pi * (2 * j + 1) * k / (2 * n)) for j in range(n)] for k in range(n)])
    cosines *= np.where(np.arange(n) == 0, np.sqrt(1 / n), np.sqrt(2 / n))[:, None]
    expected = np.eye(n)
    for i in range(FACTORS):
        drawn = b"".join(number.to_bytes(8, "little") for number in numbers(n, f"signs {i}", 4))
        bits = "".join(f"{byte:08b}" for byte in drawn)
        signs = np.array([-1.0 if bit == "1" else 1.0 for bit in bits[:n]])
        order = numbers(n, f"order {i}", n)
        expected = (cosines @ (signs[:, None] * expected))[sorted(range(n), key=order.__getitem__)]
    assert np.allclose(keyed(np.eye(n), KEY), expected, atol=1e-12)


def test_few_features_are_transformed_as_the_definition_says() -> None:
    """By the orthonormal basis that Gram and Schmidt make of Gaussian columns."""
    n, columns = 5, []
    drawn = numbers(n, "matrix", n * n)
    gaussian = np.array([NormalDist().inv_cdf(((number >> 11) + 0.5) / 2**53) for number in drawn]).reshape(n, n)
    for column in gaussian.T:
        rest = column - sum(((column @ other) * other for other in columns), np.zeros(n))
        columns.append(rest / np.linalg.norm(rest))
    assert np.allclose(keyed(np.eye(n), KEY), np.column_stack(columns), atol=1e-9)


def test_axes_may_be_anywhere() -> None:
    x = np.random.default_rng(0).standard_normal((2, 150, 3))
    hidden = keyed(x, KEY, axis=1)
    assert np.array_equal(hidden[1], keyed(x[1], KEY))
    assert np.allclose(unkeyed(hidden, KEY, axis=1), x)


def test_a_million_features_need_no_matrix() -> None:
    """A matrix of them would have 8 TB. The memory for one direction is a few vectors of its length."""
    n = 1 << 20
    x = np.zeros((n, 1))
    x[0] = 1
    tracemalloc.start()
    hidden = keyed(x, KEY)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert abs(float(hidden[:, 0] @ hidden[:, 0]) - 1) < 1e-9
    assert peak < 12 * 8 * n
