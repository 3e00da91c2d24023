"""Data that come from clients: each sample stays with its own."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pacfl.data import (
    Dataset,
    Groups,
    Natural,
    from_arrays,
    grouped,
    load_dataset,
    natural_clients,
    partition,
    subsample,
    validation_split,
)
from pacfl.errors import DataError

WHOSE = np.array(["north", "south", "west"])


def hospitals(sizes: tuple[int, ...] = (30, 20, 10)) -> Dataset:
    """Samples whose only feature is the number of their client, in random order."""
    rng = np.random.default_rng(0)
    train, test = (rng.permutation(np.repeat(np.arange(3), n)) for n in (sizes, (6, 4, 2)))
    natural = natural_clients(WHOSE[train], WHOSE[test], groups=np.arange(sum(sizes)) // 2)
    x = [np.column_stack([own, np.arange(len(own))]).astype(np.float32) for own in (train, test)]
    return from_arrays(x[0], np.arange(len(train)) % 2, x[1], np.arange(len(test)) % 2, natural=natural)


def split(dataset: Dataset, n_clients: int = 3, **options: Any) -> Any:
    return partition(dataset, Natural(**options), n_clients, np.random.default_rng(0))


def test_every_sample_stays_with_its_client() -> None:
    dataset = hospitals()
    clients = split(dataset)
    assert clients.names == tuple(WHOSE)
    for c in range(3):
        assert set(dataset.x_train[clients.train_indices[c], 0]) == {c}
        assert set(dataset.x_test[clients.test_indices[c], 0]) == {c}
    assert sum(map(len, clients.train_indices)) == 60


def test_fewer_clients_are_those_with_the_most_samples() -> None:
    assert split(hospitals((10, 20, 30)), 2).names == ("south", "west")


def test_more_clients_than_there_are_is_refused_with_their_number() -> None:
    with pytest.raises(DataError, match="comes from 3 clients, got clients = 4; use clients = 3"):
        split(hospitals(), 4)


def test_data_without_clients_are_refused() -> None:
    plain = from_arrays(np.eye(4), np.arange(4) % 2, np.eye(4), np.arange(4) % 2, name="plain")
    with pytest.raises(DataError, match="plain does not say which clients"):
        split(plain)


def test_a_client_below_the_minimum_is_refused() -> None:
    with pytest.raises(DataError, match="1 of 3 clients would have less than 15"):
        split(hospitals(), minimum=15)


def test_clients_of_another_number_of_samples_are_refused() -> None:
    with pytest.raises(DataError, match="has 2 samples and clients of"):
        from_arrays(np.eye(2), [0, 1], np.eye(2), [0, 1], natural=natural_clients(["a"], ["a", "b"]))


@pytest.mark.parametrize("fewer", ["subsample", "validation", "groups"])
def test_clients_and_groups_follow_their_samples(fewer: str) -> None:
    dataset, rng = hospitals(), np.random.default_rng(1)
    if fewer == "subsample":
        changed = subsample(dataset, 20, rng)
    elif fewer == "validation":
        changed, _ = validation_split(dataset, split(dataset), 0.3, rng)
    else:
        changed, clients = grouped(dataset, split(dataset), Groups(permute_labels=2), rng)
        assert clients.names == tuple(WHOSE)
    natural = changed.natural
    assert natural is not None
    assert natural.groups is not None
    assert np.array_equal(natural.train, changed.x_train[:, 0])
    assert np.array_equal(natural.test, changed.x_test[:, 0])
    assert np.array_equal(natural.groups, changed.x_train[:, 1] // 2)


def test_an_npz_file_may_name_the_clients(tmp_path: Path) -> None:
    arrays = {"x_train": np.eye(3), "y_train": [0, 1, 0], "x_test": np.eye(3)[:2], "y_test": [0, 1]}
    whose = {"clients_train": ["b", "a", "b"], "clients_test": ["a", "b"], "groups_train": [7, 8, 7]}
    np.savez(tmp_path / "wards.npz", **arrays, **whose)
    natural = load_dataset("wards", tmp_path).natural
    assert natural is not None
    assert natural.groups is not None
    assert (natural.names, natural.train.tolist(), natural.test.tolist()) == (("a", "b"), [1, 0, 1], [0, 1])
    assert natural.groups.tolist() == [0, 1, 0]
    np.savez(tmp_path / "half.npz", **arrays, clients_train=whose["clients_train"])
    with pytest.raises(DataError, match="lacks clients_test"):
        load_dataset("half", tmp_path)


def test_no_group_is_for_training_and_for_validation() -> None:
    dataset = hospitals()
    assert dataset.natural is not None
    assert dataset.natural.groups is not None
    changed, clients = validation_split(dataset, split(dataset), 0.3, np.random.default_rng(3))
    for train, validation in zip(clients.train_indices, clients.test_indices, strict=True):
        held_out = set((changed.x_test[validation, 1] // 2).tolist())
        assert held_out
        assert not held_out & set((changed.x_train[train, 1] // 2).tolist())
        assert len(validation) / (len(validation) + len(train)) == pytest.approx(0.3, abs=0.1)
