import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray
from torch import nn

from pacfl import FedAvg, LocalTraining, Schedule, federate
from pacfl.data import Dataset, Iid, from_arrays, mixture, normalised, partition
from pacfl.errors import DataError

X = np.arange(6 * 2 * 3, dtype=np.uint8).reshape(6, 2, 3)
Y = np.array([0, 1, 2, 0, 1, 2])


def test_arrays_are_not_copied() -> None:
    dataset = from_arrays(X, Y, X[:3], Y[:3], name="mine")
    assert dataset.x_train is X
    assert dataset.y_train.dtype == np.int64
    assert (dataset.name, dataset.n_classes, dataset.shape, dataset.source_names) == ("mine", 3, (2, 3), ("mine",))
    assert not dataset.source_train.any()
    assert not dataset.source_test.any()


def test_numbers_that_are_not_bytes_become_float32_and_columns_of_labels_become_rows() -> None:
    dataset = from_arrays(X.astype(np.float64) / 7, Y[:, None].astype(np.int8), X[:3] / 7, Y[:3])
    assert dataset.x_train.dtype == np.float32
    assert np.array_equal(dataset.y_train, Y)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"x_train": X[:5]}, "y_train must be one integer for each of 5 samples"),
        ({"y_test": Y[:2]}, "y_test must be one integer for each of 3 samples"),
        ({"n_classes": 2}, r"y_train must lie in 0..1, got 0..2"),
        ({"y_train": Y - 1}, r"got -1..1; number the classes from 0"),
        (
            {"x_test": X[:3, :1]},
            r"must have the same shape and type, got shape \(6, 2, 3\) of uint8 and shape \(3, 1, 3\)",
        ),
        ({"x_test": X[:3].astype(np.float32)}, "must have the same shape and type"),
        ({"x_train": X.astype(np.int32)}, "of uint8 or float32"),
        ({"x_train": X[:0]}, "at least one sample"),
        ({"source_train": np.ones(6, dtype=np.intp)}, "source_train must lie in 0..0"),
        ({"attributes_train": {"tall": np.ones(5, dtype=np.bool_)}}, "attribute 'tall' must be yes or no"),
    ],
)
def test_what_does_not_fit_together_is_refused(change: dict[str, object], reason: str) -> None:
    dataset = from_arrays(X, Y, X[:3], Y[:3])
    with pytest.raises(DataError, match=reason):
        replace(dataset, **change)  # type: ignore[arg-type]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_not_finite_are_refused(bad: float) -> None:
    x = X.astype(np.float32)
    x[1, 1, 1] = bad
    with pytest.raises(DataError, match="x_train must be finite"):
        from_arrays(x, Y, X[:3].astype(np.float32), Y[:3])


def test_samples_that_are_not_numbers_are_refused() -> None:
    with pytest.raises(DataError, match="x_train must be numbers"):
        from_arrays(np.array([["a"]]), [0], X[:3], Y[:3])


def two_sources(dtype: type) -> Dataset:
    rng = np.random.default_rng(0)
    datasets = []
    for name, brightness, channels in (("dark", 60, (3,)), ("bright", 250, (3,))):
        x = (rng.integers(0, brightness, (300, 4, 5, *channels)) // (1 + np.arange(3))).astype(dtype)
        datasets.append((name, from_arrays(x[:200], np.zeros(200, int), x[200:], np.zeros(100, int), name)))
    return mixture(datasets)


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_normalised_pixels_have_mean_0_and_standard_deviation_1_in_every_source_and_channel(dtype: type) -> None:
    dataset = normalised(two_sources(dtype))
    assert dataset.x_train.dtype == dataset.x_test.dtype == np.float32
    for source in (0, 1):
        pixels = dataset.x_train[dataset.source_train == source].astype(np.float64)
        assert np.allclose(pixels.mean(axis=(0, 1, 2)), 0, atol=1e-6)
        assert np.allclose(pixels.std(axis=(0, 1, 2)), 1, atol=1e-6)


def test_bytes_are_normalised_like_floats() -> None:
    """0..255 scaled to 0..1 in float64, normalised, then rounded once."""
    dataset = two_sources(np.uint8)
    result = normalised(dataset)
    for source in (0, 1):
        x = dataset.x_train[dataset.source_train == source].astype(np.float64) * (1 / 255)
        expected = (x - x.mean(axis=(0, 1, 2))) / x.std(axis=(0, 1, 2))
        np.testing.assert_allclose(result.x_train[result.source_train == source], expected, rtol=0, atol=1e-6)


def test_the_channels_of_normalised_images_need_no_copy_to_come_first() -> None:
    x = normalised(two_sources(np.uint8)).x_train
    assert np.moveaxis(x, -1, 1).flags.c_contiguous


def test_test_pixels_are_normalised_by_the_training_pixels_alone() -> None:
    dataset = two_sources(np.uint8)
    changed = replace(dataset, x_test=np.zeros_like(dataset.x_test))
    assert np.array_equal(normalised(dataset).x_train, normalised(changed).x_train)
    pixels = dataset.x_train[dataset.source_train == 1] / 255
    expected = -pixels.mean(axis=(0, 1, 2)) / pixels.std(axis=(0, 1, 2))
    assert np.allclose(normalised(changed).x_test[-1, 0, 0], expected, atol=1e-5)


def test_grey_images_are_normalised_as_one_channel() -> None:
    result = normalised(from_arrays(X, Y, X, Y)).x_train
    assert np.allclose(result, (X - X.mean()) / X.std(), atol=1e-5)


def table(dtype: type = np.float32) -> NDArray[np.generic]:
    """300 rows of 4 columns, as many as need more than one block."""
    return np.random.default_rng(3).integers(0, 200, (300, 4)).astype(dtype)


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_every_column_of_a_table_has_its_own_mean_and_standard_deviation(dtype: type) -> None:
    x, y = table(dtype), np.zeros(300, int)
    result = normalised(from_arrays(x[:200], y[:200], x[200:], y[200:]))
    mean, std = x[:200].astype(np.float64).mean(axis=0), x[:200].astype(np.float64).std(axis=0)
    np.testing.assert_allclose(result.x_train, (x[:200] - mean) / std, rtol=0, atol=1e-6)
    np.testing.assert_allclose(result.x_test, (x[200:] - mean) / std, rtol=0, atol=1e-6)


@pytest.mark.parametrize("factor", [1 / 1024, 65536])
def test_the_unit_of_a_column_does_not_matter(factor: float) -> None:
    """A power of two changes no digit of a number, so the normalised columns are equal to the bit."""
    x, y = table(), np.zeros(300, int)
    scaled = x * np.array([1, factor, 1, 1], dtype=np.float32)
    one, other = (normalised(from_arrays(z[:200], y[:200], z[200:], y[200:])) for z in (x, scaled))
    assert np.array_equal(one.x_train, other.x_train)
    assert np.array_equal(one.x_test, other.x_test)


@pytest.mark.parametrize("value", [0.0, 0.1, -1e6])
def test_a_column_that_is_constant_in_training_becomes_0(value: float) -> None:
    """In test rows too: a model has learnt nothing about it. 0.1 has rounding errors in its mean."""
    x, y = table(), np.zeros(300, int)
    x[:200, 2] = value
    result = normalised(from_arrays(x[:200], y[:200], x[200:], y[200:]))
    assert not result.x_train[:, 2].any()
    assert not result.x_test[:, 2].any()
    others = [0, 1, 3]
    assert np.allclose(result.x_train[:, others].std(axis=0), 1, atol=1e-6)


def test_a_column_of_a_large_unit_does_not_hide_the_others_from_a_model() -> None:
    """The first column decides the class; the last is noise in another unit."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(240, 3)).astype(np.float32) * np.array([1, 1, 50_000], dtype=np.float32)
    y = (x[:, 0] > 0).astype(int)
    data = from_arrays(x[:160], y[:160], x[160:], y[160:])
    clients = partition(data, Iid(), 4, np.random.default_rng(0))
    plan = LocalTraining(epochs=5, lr=0.1), Schedule(rounds=5, participation=1.0)
    *_, result = federate(data, clients, lambda: nn.Linear(3, 2), FedAvg(), *plan)
    assert result["accuracy"]["received"]["mean"] > 0.9


def test_a_table_of_constant_columns_cannot_be_normalised() -> None:
    x = np.tile(np.float32([3, 0.1]), (6, 1))
    with pytest.raises(DataError, match="do not vary"):
        normalised(from_arrays(x, Y, x, Y))


def test_pixels_that_do_not_vary_cannot_be_normalised() -> None:
    blank = np.zeros_like(X)
    with pytest.raises(DataError, match="do not vary"):
        normalised(from_arrays(blank, Y, blank, Y))


def test_importing_the_package_imports_no_optional_library() -> None:
    heavy = ("torch", "sklearn", "pooch", "h5py", "PIL", "pacfl.signatures")
    code = f"import sys, pacfl.data; print([m for m in {heavy!r} if m in sys.modules])"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"
