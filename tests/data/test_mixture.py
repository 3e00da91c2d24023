import numpy as np
import pytest
from writing import arrays

from pacfl.data import Dataset, from_arrays, mixture
from pacfl.errors import DataError


def made(shape: tuple[int, ...], n_classes: int = 10) -> Dataset:
    return from_arrays(*arrays(shape, n_classes=n_classes), n_classes=n_classes)


def test_images_are_padded_centrally_and_grey_ones_repeated() -> None:
    colour, grey, small = made((32, 32, 3)), made((28, 28)), made((16, 16, 1))
    mixed = mixture([("colour", colour), ("grey", grey), ("small", small)])
    assert mixed.x_train.shape == (90, 32, 32, 3)
    first, second, third = (mixed.x_train[mixed.source_train == i] for i in range(3))
    assert np.array_equal(first, colour.x_train)
    for channel in range(3):
        assert np.array_equal(second[:, 2:30, 2:30, channel], grey.x_train)
        assert np.array_equal(third[:, 8:24, 8:24, channel], small.x_train[..., 0])
    assert second.astype(int).sum() == 3 * grey.x_train.astype(int).sum()  # nothing but zeros around
    assert third.astype(int).sum() == 3 * small.x_train.astype(int).sum()


def test_an_odd_margin_is_larger_below_and_to_the_right() -> None:
    mixed = mixture([("a", made((5, 4))), ("b", made((2, 4)))])
    assert mixed.x_test.shape[1:] == (5, 4)
    assert np.array_equal(mixed.x_test[mixed.source_test == 1][:, 1:3], made((2, 4)).x_test)


def test_labels_are_disjoint_unless_asked_otherwise() -> None:
    datasets = [("a", made((4, 4))), ("b", made((4, 4), n_classes=3)), ("c", made((4, 4), n_classes=5))]
    mixed = mixture(datasets)
    assert mixed.n_classes == 18
    for i, (start, end) in enumerate([(0, 10), (10, 13), (13, 18)]):
        assert set(mixed.y_train[mixed.source_train == i]) == set(range(start, end))
        assert set(mixed.y_test[mixed.source_test == i]) == set(range(start, end))
    shared = mixture(datasets, disjoint_labels=False)
    assert shared.n_classes == 10
    assert np.array_equal(shared.y_train, np.concatenate([dataset.y_train for _, dataset in datasets]))
    assert mixed.source_names == ("a", "b", "c")


def test_features_of_one_width_can_be_mixed() -> None:
    assert mixture([("a", made((7,))), ("b", made((7,)))]).x_train.shape == (60, 7)


@pytest.mark.parametrize(
    ("datasets", "reason"),
    [
        ([], "at least one data set"),
        ([("a", made((4, 4))), ("a", made((4, 4)))], "different names, got a, a"),
        (
            [("a", made((4, 4, 3))), ("b", made((4, 4, 2)))],
            r"same number of channels, got a \(4, 4, 3\), b \(4, 4, 2\)",
        ),
        ([("a", made((7,))), ("b", made((8,)))], "the same number of columns"),
        ([("a", made((7,))), ("b", made((4, 4)))], "the same number of columns"),
        (
            [("a", made((4, 4))), ("b", from_arrays(np.ones((2, 4, 4)), [0, 1], np.ones((2, 4, 4)), [0, 1]))],
            "all uint8 or none of them, got a uint8, b float32",
        ),
    ],
)
def test_what_cannot_be_mixed_is_refused(datasets: list[tuple[str, Dataset]], reason: str) -> None:
    with pytest.raises(DataError, match=reason):
        mixture(datasets)


def test_integers_stay_integers_unless_they_are_mixed_with_floats() -> None:
    x, y = np.arange(6).reshape(2, 3), [0, 1]
    integers, floats = from_arrays(x, y, x, y), from_arrays(x / 2, y, x / 2, y)
    assert mixture([("a", integers), ("b", integers)]).x_train.dtype == np.int64
    mixed = mixture([("a", integers), ("b", floats)])
    assert mixed.x_train.dtype == np.float32
    assert np.array_equal(mixed.x_train, np.concatenate([x, x / 2]))
