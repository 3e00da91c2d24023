import numpy as np
import pytest

from pacfl.data import Dataset, Iid, LabelSkew, from_arrays, partition, subsample, subset, validation_split
from pacfl.errors import ConfigError


def numbered(n_train: int = 200, n_test: int = 50, n_classes: int = 5) -> Dataset:
    """Samples whose value is their index."""
    x = np.arange(n_train + n_test, dtype=np.float32).reshape(-1, 1)
    y = np.arange(n_train + n_test) % n_classes
    return from_arrays(x[:n_train], y[:n_train], x[n_train:], y[n_train:])


def test_a_subset_keeps_samples_with_their_labels() -> None:
    part = subset(numbered(), np.array([7, 3]), np.array([1]))
    assert part.x_train.ravel().tolist() == [7, 3]
    assert part.y_train.tolist() == [7 % 5, 3]
    assert part.x_test.ravel().tolist() == [201]
    assert part.y_test.tolist() == [1]


def test_a_subsample_has_the_same_number_of_every_class() -> None:
    part = subsample(numbered(), 50, np.random.default_rng(0))
    assert np.bincount(part.y_train).tolist() == [10] * 5
    assert np.bincount(part.y_test).tolist() == [2] * 5  # a quarter of 10 in each class, rounded
    assert len(set(part.x_train.ravel())) == 50


def test_a_rare_class_is_not_subsampled_further() -> None:
    x = np.arange(110, dtype=np.float32).reshape(-1, 1)
    y = np.array([0] * 100 + [1] * 10)
    part = subsample(from_arrays(x, y, x, y), 40, np.random.default_rng(0))
    assert np.bincount(part.y_train).tolist() == [20, 10]


def test_a_subsample_of_more_than_all_samples_is_the_data_set() -> None:
    dataset = numbered()
    assert subsample(dataset, 10_000, np.random.default_rng(0)) is dataset


@pytest.mark.parametrize("n", [0, 1.5, True])
def test_the_number_of_samples_is_checked(n: int) -> None:
    with pytest.raises(ConfigError, match="number of training samples must be an integer of at least 1"):
        subsample(numbered(), n, np.random.default_rng(0))


@pytest.mark.parametrize("share", [0.1, 0.2, 0.5])
def test_validation_samples_are_the_clients_own_and_no_longer_for_training(share: float) -> None:
    dataset = numbered()
    clients = partition(dataset, LabelSkew(0.4), 8, np.random.default_rng(1))
    changed, remaining = validation_split(dataset, clients, share, np.random.default_rng(2))
    for before, train, test in zip(clients.train_indices, remaining.train_indices, remaining.test_indices, strict=True):
        validation = changed.x_test[test].ravel().astype(int)
        assert sorted([*train, *validation]) == sorted(before)
        assert len(validation) == round(share * len(before))
        assert np.array_equal(changed.y_test[test], dataset.y_train[validation])


def test_no_test_sample_is_left_when_settings_are_chosen() -> None:
    dataset = numbered()
    clients = partition(dataset, Iid(), 4, np.random.default_rng(0))
    changed, _ = validation_split(dataset, clients, 0.2, np.random.default_rng(0))
    assert not set(changed.x_test.ravel()) & set(dataset.x_test.ravel())


def test_a_client_with_one_sample_trains_on_it() -> None:
    dataset = numbered(n_train=6)
    clients = partition(dataset, Iid(), 5, np.random.default_rng(0))
    _, remaining = validation_split(dataset, clients, 0.5, np.random.default_rng(0))
    assert [len(indices) for indices in remaining.train_indices] == [1] * 5  # the first of them had two
    assert [len(indices) for indices in remaining.test_indices] == [1, 0, 0, 0, 0]


@pytest.mark.parametrize("share", [0.0, 1.0, -0.5, float("nan")])
def test_a_share_of_none_or_all_is_refused(share: float) -> None:
    dataset = numbered()
    clients = partition(dataset, Iid(), 4, np.random.default_rng(0))
    with pytest.raises(ConfigError, match="above 0 and below 1"):
        validation_split(dataset, clients, share, np.random.default_rng(0))
