import numpy as np
import pytest

from pacfl.data import Dataset, Iid, LabelSkew, from_arrays, held_out, partition, subsample, subset
from pacfl.errors import DataError


def numbered(n_train: int = 200, n_test: int = 50, n_classes: int = 5) -> Dataset:
    """Samples that carry their own number, so that they can be recognised wherever they go."""
    x = np.arange(n_train + n_test, dtype=np.float32).reshape(-1, 1)
    y = np.arange(n_train + n_test) % n_classes
    return from_arrays(x[:n_train], y[:n_train], x[n_train:], y[n_train:])


def test_a_subset_keeps_samples_with_their_labels() -> None:
    part = subset(numbered(), np.array([7, 3]), np.array([1]))
    assert part.x_train.ravel().tolist() == [7, 3]
    assert part.y_train.tolist() == [7 % 5, 3]
    assert part.x_test.ravel().tolist() == [201]
    assert part.y_test.tolist() == [1]


def test_thinning_draws_evenly_from_every_class() -> None:
    part = subsample(numbered(), 50, np.random.default_rng(0))
    assert np.bincount(part.y_train).tolist() == [10] * 5
    assert np.bincount(part.y_test).tolist() == [2] * 5  # a quarter of 10 in each class, rounded
    assert len(set(part.x_train.ravel())) == 50


def test_a_rare_class_is_not_thinned_further() -> None:
    x = np.arange(110, dtype=np.float32).reshape(-1, 1)
    y = np.array([0] * 100 + [1] * 10)
    part = subsample(from_arrays(x, y, x, y), 40, np.random.default_rng(0))
    assert np.bincount(part.y_train).tolist() == [20, 10]


def test_thinning_to_more_than_there_is_changes_nothing() -> None:
    whole = numbered()
    assert subsample(whole, 10_000, np.random.default_rng(0)) is whole


@pytest.mark.parametrize("share", [0.1, 0.2, 0.5])
def test_what_is_held_out_is_the_clients_own_and_is_not_learnt_from(share: float) -> None:
    dataset = numbered()
    parts = partition(dataset, LabelSkew(0.4), 8, np.random.default_rng(1))
    judged, less = held_out(dataset, parts, share, np.random.default_rng(2))
    for before, kept, test in zip(parts.train_indices, less.train_indices, less.test_indices, strict=True):
        held = judged.x_test[test].ravel().astype(int)
        assert sorted([*kept, *held]) == sorted(before)
        assert len(held) == round(share * len(before))
        assert np.array_equal(judged.y_test[test], dataset.y_train[held])


def test_no_test_sample_is_left_when_settings_are_chosen() -> None:
    dataset = numbered()
    judged, _ = held_out(dataset, partition(dataset, Iid(), 4, np.random.default_rng(0)), 0.2, np.random.default_rng(0))
    assert not set(judged.x_test.ravel()) & set(dataset.x_test.ravel())


def test_a_client_with_one_sample_keeps_it() -> None:
    dataset = numbered(n_train=6)
    _, less = held_out(dataset, partition(dataset, Iid(), 5, np.random.default_rng(0)), 0.5, np.random.default_rng(0))
    assert [len(shard) for shard in less.train_indices] == [1] * 5  # the first of them had two
    assert [len(shard) for shard in less.test_indices] == [1, 0, 0, 0, 0]


@pytest.mark.parametrize("share", [0.0, 1.0, -0.5])
def test_a_part_that_is_none_is_refused(share: float) -> None:
    dataset = numbered()
    parts = partition(dataset, Iid(), 4, np.random.default_rng(0))
    with pytest.raises(DataError, match="between 0 and 1"):
        held_out(dataset, parts, share, np.random.default_rng(0))
