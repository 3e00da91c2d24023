"""Neighbouring samples that depend on each other are found; independent ones raise no alarm."""

import os
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from pacfl.subspace import neighbours
from tests.subspace.test_dependent_samples import correlated, independent

Array = NDArray[np.float64]


def heavy_tailed(rng: np.random.Generator) -> tuple[Array, NDArray[np.intp]]:
    """Independent samples of any size in five classes, sorted by class."""
    n = int(rng.choice([6, 12, 30, 200, 700]))
    labels = np.sort(rng.integers(0, 5, n))
    x = rng.standard_t(2, size=(n, int(rng.integers(1, 30)))) + 5 * labels[:, None]
    return x, labels


def test_independent_samples_sorted_by_class_raise_no_alarm() -> None:
    """At a rate of 0.1 %, more than two alarms in 200 have a probability of 0.1 %."""
    rng = np.random.default_rng(0)
    assert sum(neighbours(*heavy_tailed(rng)).dependent for _ in range(200)) <= 2


@pytest.mark.parametrize("n", [60, 399, 3000])
def test_signals_and_repeated_rows_are_found(n: int) -> None:
    rng = np.random.default_rng(n)
    patients = np.repeat(independent(rng, n // 3), 3, axis=0) + rng.standard_normal((n, 20))
    for x in (correlated(rng, n, memory=0.6), patients):
        seen = neighbours(x)
        assert seen.dependent
        assert seen.cosine > seen.by_chance + 0.05
        assert not neighbours(rng.permutation(x)).dependent


def test_samples_that_swing_are_found_although_they_are_opposite_to_the_one_before() -> None:
    rng = np.random.default_rng(0)
    x = correlated(rng, 300, memory=-0.9)
    seen = neighbours(x - x.mean(axis=0))
    assert seen.dependent
    assert seen.squared


def test_classes_in_turn_or_sorted_are_no_dependence_within_classes() -> None:
    rng = np.random.default_rng(0)
    labels = np.arange(300) % 3
    x = rng.standard_normal((300, 20)) + 8 * np.eye(20)[labels]
    order = np.argsort(labels, kind="stable")
    assert not neighbours(x).dependent
    assert not neighbours(x, labels).dependent
    assert not neighbours(x[order], labels[order]).dependent
    assert neighbours(x[order]).dependent  # unlabelled: nobody can know that only classes are sorted


def test_blocks_that_are_too_short_are_found_and_long_ones_are_not() -> None:
    x = correlated(np.random.default_rng(0), 2000)
    assert neighbours(x, groups=np.arange(2000) // 5).dependent
    assert not neighbours(x, groups=np.arange(2000) // 100).dependent


@pytest.mark.parametrize("x", [np.ones((5, 3)), np.zeros((1, 2)), np.full((20, 2), 1e300), np.eye(3)])
def test_samples_without_variation_or_number_raise_no_alarm(x: Array) -> None:
    assert not neighbours(x).dependent


def test_windows_of_wrist_sensors_depend_on_each_other() -> None:
    path = Path(os.environ.get("PACFL_DATA", "data")) / "watch.npz"
    if not path.exists():
        pytest.skip("needs watch.npz in the folder of the environment variable PACFL_DATA")
    with np.load(path) as watch:
        x, y, arm = watch["x"], watch["y"], watch["subject"] * 2 + watch["side"]
    assert all(neighbours(x[arm == one]).dependent for one in np.unique(arm))
    assert sum(neighbours(x[arm == one], y[arm == one]).dependent for one in np.unique(arm)) >= 18
