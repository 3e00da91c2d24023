"""Known groups on top of a partition."""

import itertools
from typing import Any

import numpy as np
import pytest
from scipy import ndimage

from pacfl.data import (
    BySet,
    Dataset,
    Dirichlet,
    Groups,
    Iid,
    LabelSkew,
    Partition,
    Scheme,
    build_division,
    from_arrays,
    grouped,
    mixture,
    normalised,
    partition,
    validation_split,
)
from pacfl.errors import ConfigError, DataError
from pacfl.experiment import description

N, N_TEST, K = 400, 100, 5


def images(shape: tuple[int, ...] = (6, 6), dtype: type = np.uint8, name: str = "mine") -> Dataset:
    """Images that are all different, so that every one is recognised."""
    rng = np.random.default_rng(len(name))
    x = rng.integers(0, 256, (N + N_TEST, *shape)).astype(dtype)
    y = np.arange(N + N_TEST) % K
    return from_arrays(x[:N], y[:N], x[N:], y[N:], name)


def in_groups(
    dataset: Dataset, groups: Groups, scheme: Scheme | None = None, n_clients: int = 16, seed: int = 0
) -> tuple[Partition, Dataset, Partition]:
    before = partition(dataset, scheme or Dirichlet(0.5, 1), n_clients, np.random.default_rng(seed))
    return before, *grouped(dataset, before, groups, np.random.default_rng(seed + 1))


def option(clients: Partition, client: int) -> dict[str, float]:
    """What was done to the samples of a client, by its name."""
    assert clients.transforms is not None
    return {part.split()[0]: float(part.split()[1]) for part in clients.transforms[client].split(", ")}


@pytest.mark.parametrize("shape", [(6, 6), (6, 6, 3)])
@pytest.mark.parametrize("dtype", [np.uint8, np.float32, np.int64])
def test_the_images_of_a_client_are_rotated_by_the_angle_of_its_group(shape: tuple[int, ...], dtype: type) -> None:
    dataset = images(shape, dtype)
    before, changed, clients = in_groups(dataset, Groups(rotate=(0, 90, 180, 270)))
    assert changed.x_train.dtype == changed.x_test.dtype == dataset.x_train.dtype
    for c in range(16):
        turns = int(option(clients, c)["rotate"] // 90)
        assert clients.train_indices[c] is before.train_indices[c]
        for x, own, old, indices in (
            (dataset.x_train, changed.x_train[clients.train_indices[c]], before.train_indices[c], "train"),
            (dataset.x_test, changed.x_test[clients.test_indices[c]], before.test_indices[c], "test"),
        ):
            assert np.array_equal(own, np.rot90(x[old], turns, axes=(1, 2))), indices
        assert np.array_equal(changed.y_test[clients.test_indices[c]], dataset.y_test[before.test_indices[c]])


def test_other_angles_are_interpolated_as_scipy_does_one_image_at_a_time() -> None:
    dataset = images((6, 8), np.float32)
    before, changed, clients = in_groups(dataset, Groups(rotate=(0, 30)))
    rotated = [c for c in range(16) if option(clients, c)["rotate"] == 30]
    assert len(rotated) == 8
    for c in rotated:
        for new, old in zip(clients.train_indices[c], before.train_indices[c], strict=True):
            expected = ndimage.rotate(dataset.x_train[old], 30, reshape=False, order=1)
            np.testing.assert_allclose(changed.x_train[new], expected, rtol=1e-5)


STYLED = {
    "plain": lambda x: x,
    "negative": lambda x: 255 - x,
    "faded": lambda x: (x + 127.5) / 2,
    "blurred": lambda x: ndimage.gaussian_filter(x, (1, 1, 0)[: x.ndim], mode="nearest"),
    "outlined": lambda x: x - ndimage.minimum_filter(x, (3, 3, 1)[: x.ndim], mode="nearest"),
    "swapped": lambda x: x[:, :, [2, 1, 0]],
}


@pytest.mark.parametrize("shape", [(6, 6), (6, 6, 3)])
def test_the_images_of_a_group_have_its_style_one_image_at_a_time(shape: tuple[int, ...]) -> None:
    styles: tuple[Any, ...] = tuple(STYLED)[: 6 if len(shape) == 3 else 5]
    dataset = images(shape)
    before, changed, clients = in_groups(dataset, Groups(style=styles), n_clients=12)
    assert clients.transforms is not None
    for c in range(12):
        change = STYLED[clients.transforms[c].removeprefix("style ")]
        for new, old in zip(clients.train_indices[c], before.train_indices[c], strict=True):
            expected = change(dataset.x_train[old].astype(np.float32)).astype(np.uint8)
            assert np.abs(changed.x_train[new].astype(int) - expected).max() <= 1, clients.transforms[c]
        assert np.array_equal(changed.y_test[clients.test_indices[c]], dataset.y_test[before.test_indices[c]])
    assert len(set(clients.transforms)) == len(styles)


def test_the_negative_of_floats_has_their_range() -> None:
    dataset = images(dtype=np.float32)
    _, changed, _ = in_groups(dataset, Groups(style=("plain", "negative")))
    assert (changed.x_train.min(), changed.x_train.max()) == (dataset.x_train.min(), dataset.x_train.max())


def test_mixed_clients_have_a_share_of_their_samples_from_a_second_group() -> None:
    """With label maps, the class of every sample shows of which group it is."""
    dataset = images()
    _, main, unmixed = in_groups(dataset, Groups(permute_labels=3), Iid(), n_clients=10)
    _, changed, clients = in_groups(dataset, Groups(permute_labels=3, mixed=0.3), Iid(), n_clients=10)
    assert clients.transforms is not None
    assert clients.true_cluster is not None
    assert unmixed.true_cluster is not None
    assert clients.true_cluster.tolist() == unmixed.true_cluster.tolist(), "the group of most samples"
    shares = []
    for c, rows in enumerate(clients.train_indices):
        before, after = main.y_train[rows], changed.y_train[rows]
        moved = before != after
        second = set(zip(before[moved].tolist(), after[moved].tolist(), strict=True))
        assert len(second) <= K, "one second map"
        tests = clients.test_indices[c]
        assert {x.tobytes() for x in changed.x_test[tests]} == {x.tobytes() for x in dataset.x_test}
        shares.append(moved.mean())
    assert np.mean(shares) == pytest.approx(0.3, abs=0.05)
    assert len(set(clients.transforms)) > 3, "the second group is drawn for each client"
    assert all(words.count("permute-labels") == 2 and "; 30% " in words for words in clients.transforms)


def test_test_samples_of_mixed_clients_are_of_two_groups_too() -> None:
    dataset = images()
    _, changed, clients = in_groups(dataset, Groups(rotate=(0, 180), mixed=0.4), Iid(), n_clients=4)
    plain = {x.tobytes() for x in dataset.x_test}
    upright = [np.mean([x.tobytes() in plain for x in changed.x_test[tests]]) for tests in clients.test_indices]
    expected = [0.6 if option_of_main(clients, c) == 0 else 0.4 for c in range(4)]
    assert upright == pytest.approx(expected, abs=0.15)
    assert [len(tests) for tests in clients.test_indices] == [N_TEST] * 4


def option_of_main(clients: Partition, client: int) -> float:
    assert clients.transforms is not None
    return float(clients.transforms[client].split(";")[0].split()[1])


def test_no_two_ways_to_number_the_classes_agree_on_a_class() -> None:
    dataset = images()
    before, changed, clients = in_groups(dataset, Groups(permute_labels=K), Iid(), n_clients=10)
    maps: dict[float, dict[int, int]] = {}
    for c in range(10):
        way = maps.setdefault(option(clients, c)["permute-labels"], {})
        for y, new, old in (
            (dataset.y_train, changed.y_train[clients.train_indices[c]], before.train_indices[c]),
            (dataset.y_test, changed.y_test[clients.test_indices[c]], before.test_indices[c]),
        ):
            for was, now in zip(y[old].tolist(), new.tolist(), strict=True):
                assert way.setdefault(was, now) == now, "one class, one number"
    assert set(maps) == set(range(K))
    assert maps[0] == {k: k for k in range(K)}
    for one, other in itertools.combinations(maps.values(), 2):
        assert sorted(one.values()) == list(range(K))
        assert all(one[k] != other[k] for k in range(K))


def test_samples_are_not_copied_where_labels_alone_change() -> None:
    dataset = images()
    _, changed, clients = in_groups(dataset, Groups(permute_labels=2))
    assert changed.x_train is dataset.x_train
    assert dataset.y_train.tolist() == [i % K for i in range(N)], "the given data set is left as it is"
    for c in range(16):
        assert clients.owned[c] == tuple(np.unique(changed.y_train[clients.train_indices[c]]))


def test_the_groups_are_all_combinations_in_equal_sizes() -> None:
    _, _, clients = in_groups(images(), Groups(rotate=(0, 90), permute_labels=4))
    assert clients.true_cluster is not None
    assert clients.transforms is not None
    assert np.bincount(clients.true_cluster).tolist() == [2] * 8
    assert len(set(clients.transforms)) == 8
    assert len(set(zip(clients.true_cluster.tolist(), clients.transforms, strict=True))) == 8
    assert "rotate 90, permute-labels 3" in clients.transforms
    _, _, other = in_groups(images(), Groups(rotate=(0, 90), permute_labels=4), seed=5)
    assert other.transforms != clients.transforms, "at random"


def test_groups_divide_the_true_clusters_of_the_partition() -> None:
    both = mixture([("a", images(name="a")), ("bb", images(name="bb"))], disjoint_labels=False)
    before, changed, clients = in_groups(both, Groups(rotate=(0, 180)), BySet((8, 8), 40))
    assert before.true_cluster is not None
    assert clients.true_cluster is not None
    combined = {
        (int(own), option(clients, c)["rotate"], int(clients.true_cluster[c]))
        for c, own in enumerate(before.true_cluster)
    }
    assert len(combined) == len({cluster for *_, cluster in combined}) == 4
    assert {cluster for *_, cluster in combined} == set(range(4))
    for c in range(16):
        assert (changed.source_test[clients.test_indices[c]] == before.true_cluster[c]).all()


def test_a_shared_test_sample_is_copied_once_for_each_group_that_needs_it() -> None:
    _, changed, clients = in_groups(images(), Groups(rotate=(0, 90, 180)), Iid())
    assert len(changed.y_test) == 3 * N_TEST
    assert len({id(test) for test in clients.test_indices}) == 3
    before, changed, clients = in_groups(images(), Groups(rotate=(0, 90)), LabelSkew(0.2), n_clients=2)
    assert len(changed.y_test) == sum(len(test) for test in before.test_indices)


def test_validation_samples_are_transformed_as_the_training_samples_are() -> None:
    dataset = images()
    before = partition(dataset, Iid(), 8, np.random.default_rng(0))
    first, rest = validation_split(dataset, before, 0.25, np.random.default_rng(1))
    changed, clients = grouped(first, rest, Groups(rotate=(0, 90)), np.random.default_rng(2))
    for c in range(8):
        turns = int(option(clients, c)["rotate"] // 90)
        own = np.concatenate([changed.x_train[clients.train_indices[c]], changed.x_test[clients.test_indices[c]]])
        back = {one.tobytes() for one in np.ascontiguousarray(np.rot90(own, -turns, axes=(1, 2)))}
        assert back == {dataset.x_train[i].tobytes() for i in before.train_indices[c]}


def test_clients_are_described_with_their_labels_as_transformed() -> None:
    _, changed, clients = in_groups(images(), Groups(permute_labels=3))
    for c, entry in enumerate(description.clients(changed, clients, "")["clients"]):
        assert entry["labels"] == np.bincount(changed.y_train[clients.train_indices[c]], minlength=K).tolist()
        assert entry["transform"] == clients.transforms[c]  # type: ignore[index]
        assert entry["true_cluster"] == clients.true_cluster[c]  # type: ignore[index]


def test_rotating_by_right_angles_changes_no_normalisation() -> None:
    dataset = images()
    _, changed, _ = in_groups(dataset, Groups(rotate=(0, 90)))
    np.testing.assert_allclose(
        np.sort(normalised(changed).x_train.ravel()), np.sort(normalised(dataset).x_train.ravel()), atol=1e-6
    )


def table() -> Dataset:
    x = np.random.default_rng(0).normal(size=(40, 3))
    return from_arrays(x, np.arange(40) % 2, x, np.arange(40) % 2, "table")


def values() -> Dataset:
    x = np.random.default_rng(0).normal(size=(40, 4, 4))
    return from_arrays(x, np.arange(40.0), x, np.arange(40.0), "values")


@pytest.mark.parametrize(
    ("dataset", "groups", "reason"),
    [
        (table(), Groups(rotate=(0, 90)), "table: a table cannot be rotated"),
        (table(), Groups(style=("negative",)), "table: a table has no style"),
        (images(), Groups(style=("swapped",)), "grey images have no colours to swap"),
        (images(), Groups(rotate=(90,), mixed=0.2), "clients are mixed of two groups, got one group"),
        (images((6, 8)), Groups(rotate=(0, 90)), "images of 6x8 cannot be rotated by 90 degrees"),
        (images((6, 8)), Groups(rotate=(0, -90)), "images of 6x8 cannot be rotated by -90 degrees"),
        (values(), Groups(permute_labels=2), "permute-labels changes samples by their class, and values has values"),
        (images(), Groups(permute_labels=6), "5 classes can be numbered in 5 ways"),
        (images(), Groups(rotate=(0, 90, 180), permute_labels=2), "4 clients cannot be of 6 groups"),
    ],
)
def test_groups_that_the_data_cannot_have_are_refused(dataset: Dataset, groups: Groups, reason: str) -> None:
    with pytest.raises(DataError, match=reason):
        in_groups(dataset, groups, Iid(), n_clients=4)


@pytest.mark.parametrize(
    ("groups", "reason"),
    [
        ({}, "groups differ by rotate or permute-labels or style; got none of them"),
        ({"rotate": []}, "rotate must be different angles, at least one"),
        ({"rotate": [0, 360]}, "rotate must be different angles"),
        ({"style": ["plain", "plain"]}, "style must be different styles"),
        ({"style": ["sepia"]}, "style must be a list, one of 'plain', 'negative'"),
        ({"rotate": [0, 90], "mixed": 0.5}, "mixed must be a number of at least 0 and below 0.5, got 0.5"),
        ({"rotate": 90}, "rotate must be a list, a number each or left out, got 90"),
        ({"permute-labels": 0}, "permute_labels must be an integer of at least 1"),
        ({"turn": [90]}, "scheme groups: has no setting 'turn'"),
        (3, "scheme groups: must be a table, got 3"),
    ],
)
def test_groups_that_cannot_be_are_refused_with_what_is_expected(groups: Any, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        build_division({"kind": "iid", "groups": groups})


def test_groups_are_described_beside_the_scheme() -> None:
    described = {"kind": "dirichlet", "alpha": 0.5, "groups": {"rotate": [0, 90], "permute-labels": 4}}
    assert build_division(described) == (Dirichlet(0.5), Groups((0, 90), 4))
    assert build_division({"kind": "iid"}) == (Iid(), None)
