from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from torch import nn

from pacfl import FedAvg, LocalTraining, federate
from pacfl.data import Dataset, Iid, Normalise, from_arrays, mixture, normalisation, normalised, partition
from pacfl.errors import DataError
from pacfl.experiment.run import prepare

X = np.arange(6 * 2 * 3, dtype=np.uint8).reshape(6, 2, 3)
Y = np.array([0, 1, 2, 0, 1, 2])


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


def table(dtype: type = np.float32) -> NDArray[Any]:
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
    training = LocalTraining(epochs=5, lr=0.1)
    result = federate((data, clients), lambda: nn.Linear(3, 2), FedAvg(), training, rounds=5, participation=1.0)
    assert result.accuracy["received"].mean > 0.9


def test_a_table_of_constant_columns_cannot_be_normalised() -> None:
    x = np.tile(np.float32([3, 0.1]), (6, 1))
    with pytest.raises(DataError, match="no feature varies"):
        normalised(from_arrays(x, Y, x, Y))


def test_pixels_that_do_not_vary_cannot_be_normalised() -> None:
    blank = np.zeros_like(X)
    with pytest.raises(DataError, match="do not vary"):
        normalised(from_arrays(blank, Y, blank, Y))


# What is normalised, and by what


def kinds() -> list[Dataset]:
    """Every kind of samples: bytes, floats and integers as images with and without channels and as tables."""
    rng, y = np.random.default_rng(0), np.arange(300) % 2
    shapes = [(300, 4, 5, 3), (300, 4, 5), (300, 6)]
    arrays = [rng.integers(0, 99, shape).astype(t) for shape in shapes for t in (np.uint8, np.float32, np.int64)]
    sets = [from_arrays(x[:200], y[:200], x[200:], y[200:]) for x in arrays]
    return [mixture([("a", one), ("b", replace(one, x_train=one.x_train // 2))]) for one in sets]


@pytest.mark.parametrize("how", ["auto", "none", "feature", "channel"])
def test_normalising_is_applying_the_normalisation_of_the_source(how: Normalise) -> None:
    for dataset in kinds():
        if how == "channel" and len(dataset.shape) == 1:
            continue
        result, by_source = normalised(dataset, how), normalisation(dataset, how)
        assert len(by_source) == 2
        for source, own in enumerate(by_source):
            test = dataset.source_test == source
            assert np.array_equal(own.apply(dataset.x_test[test]), result.x_test[test])
            train = dataset.source_train == source
            assert np.array_equal(own.apply(dataset.x_train[train]), result.x_train[train])
            assert own.apply(dataset.x_test[test]).dtype == result.x_test.dtype


def test_the_formula_of_a_normalisation_is_the_one_it_documents() -> None:
    for dataset in kinds():
        for own, source in zip(normalisation(dataset), (0, 1), strict=True):
            x = dataset.x_test[dataset.source_test == source]
            expected = ((x.astype(np.float64) * own.unit - own.mean) / own.scale).astype(np.float32)
            assert np.array_equal(own.apply(x), expected)


def test_features_of_images_are_normalised_position_by_position() -> None:
    for dataset in kinds():
        x = normalised(dataset, "feature").x_train[dataset.source_train == 1].astype(np.float64)
        assert np.allclose(x.mean(axis=0), 0, atol=1e-6)
        assert np.allclose(x.std(axis=0), 1, atol=1e-5)
    border = np.random.default_rng(0).integers(0, 255, (50, 4, 4)).astype(np.uint8)
    border[:, 0] = 7  # a constant row, as padding is
    result = normalised(from_arrays(border, np.zeros(50, int), border, np.zeros(50, int)), "feature").x_train
    assert not result[:, 0].any()
    assert np.allclose(result[:, 1:].std(axis=0), 1, atol=1e-5)


def test_by_default_images_are_normalised_by_channel_and_tables_by_feature() -> None:
    for dataset in kinds():
        how: Normalise = "feature" if len(dataset.shape) == 1 else "channel"
        assert np.array_equal(normalised(dataset).x_train, normalised(dataset, how).x_train)


def test_without_normalisation_bytes_become_shares_and_others_stay_as_they_are() -> None:
    for dataset in kinds():
        result = normalised(dataset, "none")
        if dataset.x_train.dtype == np.uint8:
            assert result.x_train.dtype == np.float32
            assert np.array_equal(result.x_train, (dataset.x_train * (1 / 255)).astype(np.float32))
        else:
            assert result is dataset


def test_integers_are_normalised_as_the_floats_that_they_were_stored_as_once() -> None:
    """Beyond 2²⁴ too, where float32 rounds."""
    for x in (table(np.int64), table(np.int64) * 1_000_003):
        y = np.zeros(300, int)
        as_integers, as_floats = from_arrays(x, y, x, y), from_arrays(x.astype(np.float32), y, x.astype(np.float32), y)
        assert as_integers.x_train.dtype == np.int64
        assert np.array_equal(normalised(as_integers).x_train, normalised(as_floats).x_train)


def test_integers_that_float32_cannot_distinguish_are_a_constant_column() -> None:
    x = table(np.int64)
    x[:, 1] = 2**40 + np.arange(300) % 2
    assert not normalised(from_arrays(x, np.zeros(300, int), x, np.zeros(300, int))).x_train[:, 1].any()


def test_a_table_has_no_channels_to_normalise() -> None:
    with pytest.raises(DataError, match="a table has no channels to normalise; use normalise = 'feature' or 'none'"):
        normalised(from_arrays(table(), np.zeros(300, int), table(), np.zeros(300, int)), "channel")


def test_models_get_tokens_as_they_are_and_signatures_see_them_raw() -> None:
    x, y = table(np.int32), np.arange(300) % 2
    dataset = from_arrays(x, y, x, y)
    clients = partition(dataset, Iid(), 4, np.random.default_rng(0))
    pool = prepare(dataset, clients, "none")
    assert pool.train.x.dtype == pool.raw.dtype == np.int64
    assert np.array_equal(pool.train.x, x)
    assert prepare(dataset, clients).train.x.dtype == np.float32
