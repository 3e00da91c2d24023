"""Samples that are read in blocks have the signature, the noise and the classes of the same samples in memory."""

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.linalg import subspace_angles

from pacfl.features.arrays import array_file
from pacfl.privacy.reduction import contrasted, reduced
from pacfl.subspace import class_signatures, neighbours, signature, split_half_angles, stored
from pacfl.subspace.stored import StoredSamples

Array = NDArray[np.float64]


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Blocks of few samples, so that there are many."""
    monkeypatch.setattr(stored, "BLOCK", 1 << 12)
    return


@pytest.fixture(params=["square", "passes"])
def method(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways to find directions, whatever the number of features."""
    monkeypatch.setattr(stored, "MOST_SQUARE", 1 << 20 if request.param == "square" else 0)
    return str(request.param)


def like_images(n: int, features: int, seed: int = 0) -> Array:
    """Positive data whose variance falls with the square of the frequency, as that of natural images does."""
    rng = np.random.default_rng(seed)
    waves = np.linalg.qr(np.random.default_rng(1).standard_normal((features, features)))[0]
    return 2 + rng.standard_normal((n, features)) / np.arange(1, features + 1) @ waves.T


def widest(a: Array, b: Array) -> float:
    assert a.shape == b.shape
    return float(subspace_angles(a, b).max())


@pytest.mark.usefixtures("method")
@pytest.mark.parametrize("shape", [(700, 60), (90, 300), (300, 300)])
@pytest.mark.parametrize("rank", [1, 3, 5])
def test_the_signature_is_that_of_samples_in_memory(shape: tuple[int, int], rank: int) -> None:
    x = like_images(*shape)
    assert np.abs(signature(StoredSamples(x), rank) - signature(x, rank)).max() < 1e-7


@pytest.mark.usefixtures("method")
def test_directions_that_hardly_stand_out_are_found_too() -> None:
    """Noise alone: the singular values around the third differ by a percent."""
    x = np.random.default_rng(0).standard_normal((400, 200))
    assert widest(signature(StoredSamples(x), 3), signature(x, 3)) < 1e-5


@pytest.mark.usefixtures("method")
def test_directions_are_found_however_weak_they_are() -> None:
    rng = np.random.default_rng(0)
    u, v = (np.linalg.qr(rng.standard_normal((n, 3)))[0] for n in (500, 80))
    found = signature(StoredSamples(u * [1.0, 1e-3, 1e-7] @ v.T), 3)
    assert widest(found, v) < 1e-6


@pytest.mark.usefixtures("method")
def test_there_are_no_more_directions_than_the_data_have() -> None:
    x = np.zeros((500, 40))
    x[::2, 3], x[1::3, 5] = 2.0, 1.0
    with pytest.warns(UserWarning, match="asked for 4 directions, the data have 2"):
        assert signature(StoredSamples(x), 4).shape == (40, 2)


@pytest.mark.usefixtures("method")
@pytest.mark.parametrize("scale", [1e-200, 1e200])
def test_sizes_whose_squares_no_float_holds_do_no_harm(scale: float) -> None:
    x = like_images(300, 20)
    assert np.abs(signature(StoredSamples(x * scale), 2) - signature(x, 2)).max() < 1e-7


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("features", [30, 500])
def test_the_noise_is_that_of_samples_in_memory(features: int, grouped: bool) -> None:
    """Of 500 features more rows are drawn than fit in a block: they are replaced by coordinates."""
    x = like_images(900, features)
    groups = np.arange(900) % 20 if grouped else None
    memory, blocks = (split_half_angles(m, 2, groups=groups) for m in (x, StoredSamples(x)))
    for measure, angles in memory.items():
        assert np.abs(angles - blocks[measure]).max() < 1e-5, measure


def test_the_noise_of_data_without_leading_directions_is_that_of_samples_in_memory() -> None:
    x = np.random.default_rng(0).standard_normal((300, 40))
    blocks = split_half_angles(StoredSamples(x), 2)
    for measure, angles in split_half_angles(x, 2).items():
        assert np.abs(angles - blocks[measure]).max() < 1e-5, measure


def test_signatures_per_class_are_those_of_samples_in_memory() -> None:
    x, labels = like_images(600, 30), np.arange(600) % 3
    assert np.abs(signature(StoredSamples(x), 2, labels) - signature(x, 2, labels)).max() < 1e-7
    blocks = split_half_angles(StoredSamples(x), 2, labels)
    for measure, angles in split_half_angles(x, 2, labels).items():
        assert np.abs(angles - blocks[measure]).max() < 1e-5, measure


@pytest.mark.parametrize("grouped", [False, True])
def test_classes_are_those_of_samples_in_memory(grouped: bool) -> None:
    x, labels = like_images(600, 50), np.arange(600) % 3
    groups = np.arange(600) // 6 if grouped else None
    memory, blocks = (class_signatures(m, labels, groups=groups) for m in (x, StoredSamples(x)))
    assert memory.names == blocks.names
    assert memory.counts.tolist() == blocks.counts.tolist()
    assert np.abs(memory.directions - blocks.directions).max() < 1e-7
    assert np.abs(memory.split_half_angles - blocks.split_half_angles).max() < 1e-5


@pytest.mark.parametrize("grouped", [False, True])
def test_dependence_is_that_of_samples_in_memory(grouped: bool) -> None:
    x = np.repeat(like_images(400, 50), 3, axis=0)
    groups = np.arange(1200) // 2 if grouped else None
    memory, blocks = (neighbours(m, groups=groups) for m in (x, StoredSamples(x)))
    assert (memory.dependent, memory.squared) == (blocks.dependent, blocks.squared)
    assert blocks.cosine == pytest.approx(memory.cosine)


def test_what_is_private_is_reduced_in_the_same_way() -> None:
    for x in (like_images(300, 100), like_images(300, 64).reshape(300, 8, 8)):
        for function in (reduced, contrasted):
            (memory, how), (blocks, also) = function(x), function(StoredSamples(x))
            assert how == also
            assert blocks == pytest.approx(memory)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", [np.uint8, np.float32, bool])
def test_a_file_of_any_order_and_type_is_that_array(tmp_path: Path, order: str, dtype: type) -> None:
    x = np.random.default_rng(0).integers(0, 2, (200, 5, 4)).astype(dtype)
    np.save(tmp_path / "x.npy", np.asarray(x, order=order))  # type: ignore[call-overload]
    samples = StoredSamples(array_file(tmp_path / "x.npy"))
    assert np.array_equal(np.concatenate(list(samples.blocks())), x)
    assert np.array_equal(samples.take(np.array([3, 100, 7])), x[[3, 100, 7]])
    assert np.array_equal(samples.subset(np.arange(200) % 3 == 1).take(slice(4, 6)), x[1::3][4:6])
    assert np.array_equal(samples.mapped(lambda block: block[:, :2] * 3.0).take(slice(9)), x[:9, :2] * 3.0)
    assert widest(signature(samples, 2), signature(x, 2)) < 1e-7


def test_bad_values_are_refused_with_the_number_of_samples() -> None:
    x = like_images(500, 30)
    x[3, 0] = x[3, 1] = np.nan
    x[400, 7] = -np.inf
    with pytest.raises(ValueError, match="NaN or infinity in 2 of 500 samples"):
        signature(StoredSamples(x), 1)
    with pytest.raises(ValueError, match="got all zeros"):
        signature(StoredSamples(np.zeros((50, 5))), 1)
    with pytest.raises(TypeError, match="data must be numbers"):
        signature(StoredSamples(np.array([["a"], ["b"]])), 1)
    with pytest.raises(ValueError, match="at least one of each"):
        signature(StoredSamples(np.zeros((5, 0))), 1)


def test_every_block_is_reported() -> None:
    steps: list[tuple[str, int, int]] = []
    x = like_images(700, 60)
    samples = StoredSamples(x, on_progress=lambda *step: steps.append(step))
    signature(samples, 2)
    for what in ("checking", "decomposing"):
        own = [step for step in steps if step[0] == what and step[2] == 11]
        assert own == [(what, 1, 11)] * len(own)
        assert sum(step[1] for step in own) >= 11


def test_a_large_array_is_not_converted_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Law: as for a small one. The limit is lowered for the test."""
    x = (like_images(700, 60) * 30).astype(np.uint8)
    small = signature(x, 3), split_half_angles(x, 3)["sum"]
    monkeypatch.setattr(sys.modules["pacfl.subspace.signature"], "LARGE", 1000)
    assert np.abs(signature(x, 3) - small[0]).max() < 1e-7
    assert np.abs(split_half_angles(x, 3)["sum"] - small[1]).max() < 1e-5
