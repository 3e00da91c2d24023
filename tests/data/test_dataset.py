import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from pacfl.data import from_arrays
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
        ({"x_train": X.astype(np.int32)}, "of uint8, float32 or int64"),
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


def test_integers_stay_integers_unless_the_other_samples_are_floats() -> None:
    for dtype in (np.int8, np.int32, np.uint16, np.uint64):
        dataset = from_arrays(X.astype(dtype), Y, X[:3].astype(np.int16), Y[:3])
        assert dataset.x_train.dtype == dataset.x_test.dtype == np.int64
        assert np.array_equal(dataset.x_train, X)
    dataset = from_arrays(X.astype(int), Y, X[:3] / 2, Y[:3])
    assert dataset.x_train.dtype == dataset.x_test.dtype == np.float32
    with pytest.raises(DataError, match="x_train has integers up to 18446744073709551615, too large for int64"):
        from_arrays(np.full((6, 2), 2**64 - 1, np.uint64), Y, X[:3], Y[:3])


def test_integers_have_the_digest_of_the_floats_that_they_were_stored_as_once() -> None:
    small, large = table(np.int64), table(np.int64) + 2**24  # which float32 rounds to even numbers
    y = np.zeros(300, int)
    for x, equal in ((small, True), (large, False)):
        assert (from_arrays(x, y, x, y).digest == from_arrays(x.astype(float), y, x.astype(float), y).digest) is equal
    assert from_arrays(large, y, large, y).digest != from_arrays(large + 1, y, large + 1, y).digest


IMAGES = np.random.default_rng(1).integers(0, 255, (6, 5, 7, 3)).astype(np.uint8)


def test_channels_that_come_first_are_moved_to_the_end() -> None:
    first = np.moveaxis(IMAGES, -1, 1)
    dataset = from_arrays(first, Y, first[:3], Y[:3], channels="first")
    assert np.array_equal(dataset.x_train, IMAGES)
    assert dataset.digest == from_arrays(IMAGES, Y, IMAGES[:3], Y[:3]).digest


@pytest.mark.parametrize("n_channels", [1, 3])
def test_images_whose_channels_seem_to_be_elsewhere_are_refused(n_channels: int) -> None:
    last = IMAGES[..., :n_channels]
    first = np.moveaxis(last, -1, 1)
    with pytest.raises(
        DataError, match=rf"shape \(6, {n_channels}, 5, 7\).* like \(n, channels, h, w\); give channels='first'"
    ):
        from_arrays(first, Y, first, Y)
    with pytest.raises(DataError, match=r"looks like \(n, h, w, channels\); give channels='last'"):
        from_arrays(last, Y, last, Y, channels="first")
    with pytest.raises(DataError, match="channels must be 'last' or 'first', got 'middle'"):
        from_arrays(last, Y, last, Y, channels="middle")  # type: ignore[arg-type]  # the mistake


@pytest.mark.parametrize("shape", [(6, 3, 7, 3), (6, 5, 7, 2), (6, 3, 3, 4), (6, 1, 9, 1), (6, 4, 4, 4)])
def test_images_of_any_other_size_are_taken_as_declared(shape: tuple[int, ...]) -> None:
    x = np.zeros(shape, np.uint8)
    assert from_arrays(x, Y, x, Y).shape == shape[1:]


def table(dtype: type) -> NDArray[np.generic]:
    return np.random.default_rng(3).integers(0, 200, (300, 4)).astype(dtype)


def test_importing_the_package_imports_no_optional_library() -> None:
    heavy = ("torch", "sklearn", "pooch", "h5py", "PIL", "pacfl.signatures")
    code = f"import sys, pacfl.data; print([m for m in {heavy!r} if m in sys.modules])"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"
