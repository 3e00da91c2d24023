import numpy as np
import pytest

from pacfl.data import Dataset, Iid, LabelSkew, from_arrays, partition, split
from pacfl.errors import DataError


def test_clients_have_their_own_samples_and_labels(balanced: Dataset) -> None:
    parts = partition(balanced, LabelSkew(0.2), 10, np.random.default_rng(0))
    clients = split(balanced, parts)
    assert len(clients) == 10
    for client, shard, test in zip(clients, parts.train_indices, parts.test_indices, strict=True):
        assert np.array_equal(client.x_train, balanced.x_train[shard])
        assert np.array_equal(client.y_train, balanced.y_train[shard])
        assert np.array_equal(client.x_test, balanced.x_test[test])
        assert np.array_equal(client.y_test, balanced.y_test[test])


def test_splitting_copies_no_sample(balanced: Dataset) -> None:
    parts = partition(balanced, Iid(), 6, np.random.default_rng(0))
    clients = split(balanced, parts)
    assert all(client.dataset is balanced for client in clients)
    assert len({id(client.test) for client in clients}) == 1


def test_what_a_client_does_to_its_samples_changes_nobody_elses(balanced: Dataset) -> None:
    client = split(balanced, partition(balanced, Iid(), 2, np.random.default_rng(0)))[0]
    before = balanced.x_train.copy()
    client.x_train[:] = 0
    assert np.array_equal(balanced.x_train, before)


def test_a_partition_of_another_data_set_is_refused(balanced: Dataset) -> None:
    parts = partition(balanced, Iid(), 5, np.random.default_rng(0))
    smaller = from_arrays(balanced.x_train[:50], balanced.y_train[:50], balanced.x_test, balanced.y_test)
    with pytest.raises(DataError, match=r"uses training sample .* of a data set with 50; was it made for another"):
        split(smaller, parts)
