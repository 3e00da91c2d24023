import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from writing import arrays

from pacfl.data import (
    SCHEMES,
    ByAttribute,
    BySet,
    Dataset,
    Dirichlet,
    Given,
    Iid,
    LabelSkew,
    Partition,
    QuantitySkew,
    Scheme,
    build_scheme,
    from_arrays,
    mixture,
    partition,
)
from pacfl.errors import ConfigError, DataError

N_TRAIN, N_TEST, K = 2000, 200, 10
_Y = np.random.default_rng(7).permutation(np.arange(N_TRAIN) % K)
SAMPLES = from_arrays(np.zeros((N_TRAIN, 1), np.uint8), _Y, np.zeros((N_TEST, 1), np.uint8), np.arange(N_TEST) % K)

USE_ALL: list[Scheme] = [Iid(), Dirichlet(0.5), QuantitySkew(2.0), LabelSkew(1.0)]
SEEDS = st.integers(0, 2**32 - 1)


def split(scheme: Scheme, n_clients: int, seed: int = 0, dataset: Dataset = SAMPLES) -> Partition:
    return partition(dataset, scheme, n_clients, np.random.default_rng(seed))


def sizes(clients: Partition) -> list[int]:
    return [len(indices) for indices in clients.train_indices]


@settings(max_examples=25)
@given(seed=SEEDS, n_clients=st.integers(1, 25), scheme=st.sampled_from([*USE_ALL, LabelSkew(0.3), Dirichlet(0.2, 1)]))
def test_no_sample_is_used_twice_and_every_client_has_the_minimum(seed: int, n_clients: int, scheme: Scheme) -> None:
    clients = split(scheme, n_clients, seed)
    together = np.concatenate(clients.train_indices)
    assert len(np.unique(together)) == len(together)
    assert clients.n_clients == n_clients
    assert min(sizes(clients)) >= scheme.minimum
    assert clients.true_cluster is None
    if scheme in USE_ALL:
        assert len(together) == N_TRAIN


@settings(max_examples=25)
@given(seed=SEEDS, n_clients=st.integers(1, 25), share=st.sampled_from([0.1, 0.2, 0.3, 0.7, 1.0]))
def test_label_skew_gives_every_client_its_first_class_and_its_share_of_classes(
    seed: int, n_clients: int, share: float
) -> None:
    clients = split(LabelSkew(share), n_clients, seed)
    for i, owned in enumerate(clients.owned):
        assert i % K in owned
        assert len(owned) == round(share * K)
    counts = np.array([np.bincount(_Y[indices], minlength=K) for indices in clients.train_indices])
    for of_class in counts.T:
        owners = of_class[of_class > 0]
        assert owners.sum() in (0, N_TRAIN // K)  # all samples of a class are used, or none
        assert owners.size == 0 or owners.max() - owners.min() <= 1


def test_a_share_is_rounded_up_to_an_integer_number_of_classes() -> None:
    assert {len(owned) for owned in split(LabelSkew(0.21), 10).owned} == {3}
    assert {len(owned) for owned in split(LabelSkew(0.01), 10).owned} == {1}


@settings(max_examples=25)
@given(seed=SEEDS, n_clients=st.integers(1, 20), scheme=st.sampled_from([*USE_ALL, LabelSkew(0.2)]))
def test_a_client_is_tested_on_every_test_sample_of_the_classes_it_owns(
    seed: int, n_clients: int, scheme: Scheme
) -> None:
    clients = split(scheme, n_clients, seed)
    for indices, test, owned in zip(clients.train_indices, clients.test_indices, clients.owned, strict=True):
        assert owned == tuple(sorted(set(_Y[indices].tolist())))
        assert test.tolist() == [i for i in range(N_TEST) if SAMPLES.y_test[i] in owned]


def test_clients_with_the_same_classes_share_one_array_of_test_indices() -> None:
    clients = split(Iid(), 20)
    assert len({id(test) for test in clients.test_indices}) == 1


@pytest.mark.parametrize("scheme", [*USE_ALL, LabelSkew(0.2)])
def test_the_same_key_gives_the_same_partition_and_another_key_another(scheme: Scheme) -> None:
    first, again, other = split(scheme, 10, 1), split(scheme, 10, 1), split(scheme, 10, 2)
    assert all(np.array_equal(a, b) for a, b in zip(first.train_indices, again.train_indices, strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(first.train_indices, other.train_indices, strict=True))


def entropy(clients: Partition) -> float:
    """Mean entropy of the classes of a client: log K if they are even, 0 if it has one."""
    counts = np.array([np.bincount(_Y[indices], minlength=K) for indices in clients.train_indices])
    shares = counts / counts.sum(axis=1, keepdims=True)
    return float(-(shares * np.log(np.where(shares > 0, shares, 1))).sum(axis=1).mean())


def test_a_smaller_alpha_is_more_skewed() -> None:
    by_alpha = [np.mean([entropy(split(Dirichlet(a), 10, seed)) for seed in range(5)]) for a in (0.1, 1.0, 100.0)]
    assert by_alpha[0] < by_alpha[1] < by_alpha[2]
    assert by_alpha[2] > 0.95 * np.log(K)
    spread = [np.mean([np.std(sizes(split(QuantitySkew(a), 10, seed))) for seed in range(5)]) for a in (1.0, 100.0)]
    assert spread[0] > spread[1]


def test_dirichlet_gives_nothing_to_clients_that_have_their_even_share() -> None:
    """A client below N/n can still get one complete class, so that none has more than N/n and a class."""
    for seed in range(5):
        assert max(sizes(split(Dirichlet(0.1, 1), 10, seed))) <= N_TRAIN / 10 + N_TRAIN / K


def test_quantity_skew_and_iid_keep_the_classes_balanced() -> None:
    for scheme in (Iid(), QuantitySkew(5.0, minimum=100)):
        for indices in split(scheme, 4).train_indices:
            shares = np.bincount(_Y[indices], minlength=K) / len(indices)
            assert np.abs(shares - 0.1).max() < 4 * np.sqrt(0.09 / len(indices))
    assert sizes(split(Iid(), 3)) == [667, 667, 666]


def mixed() -> Dataset:
    """Two balanced sets, and one with too few of some classes."""
    rng = np.random.default_rng(0)
    datasets = []
    for name, counts in (("a", [60] * 10), ("b", [45] * 5), ("c", [100, 50, 25, 10])):
        y = rng.permutation(np.repeat(np.arange(len(counts)), counts))
        x = np.zeros((len(y), 2, 2), dtype=np.uint8)
        datasets.append((name, from_arrays(x, y, x[: len(y) // 5], y[: len(y) // 5], name, len(counts))))
    return mixture(datasets)


def test_by_set_gives_each_client_the_same_number_of_each_class_of_its_set() -> None:
    dataset = mixed()
    clients = split(BySet((6, 4, 4), 40, minimum=40), 14, dataset=dataset)
    assert clients.true_cluster is not None
    assert clients.true_cluster.tolist() == [0] * 6 + [1] * 4 + [2] * 4
    assert sizes(clients) == [40] * 14
    for indices, source in zip(clients.train_indices, clients.true_cluster, strict=True):
        assert (dataset.source_train[indices] == source).all()
        _, counts = np.unique(dataset.y_train[indices], return_counts=True)
        if source < 2:  # the third set has too few of its last class
            assert counts.tolist() == [(4, 8)[source]] * (10, 5)[source]
    together = np.concatenate(clients.train_indices)
    assert len(np.unique(together)) == len(together)


@pytest.mark.parametrize("per_class", [True, False])
def test_a_set_with_too_few_of_a_class_is_split_in_its_own_proportions(per_class: bool) -> None:
    dataset = mixed()
    for seed in range(5):
        clients = split(BySet((0, 0, 4), 44, per_class), 4, seed, dataset)
        expected = np.array([100, 50, 25, 10]) * 44 / 185
        for indices in clients.train_indices:
            counts = np.bincount(dataset.y_train[indices], minlength=19)[15:]
            assert np.abs(counts - expected).max() < 2


def test_by_set_tests_on_all_test_samples_of_the_set() -> None:
    dataset = mixed()
    clients = split(BySet((2, 1, 1), 20), 4, dataset=dataset)
    assert clients.true_cluster is not None
    for test, source in zip(clients.test_indices, clients.true_cluster, strict=True):
        assert np.array_equal(test, np.flatnonzero(dataset.source_test == source))
    assert clients.test_indices[0] is clients.test_indices[1]


def attributed(with_test: bool) -> Dataset:
    data = arrays((3, 3), 200, 50)
    rng = np.random.default_rng(0)
    train, test = ({name: rng.random(n) < 0.4 for name in "abc"} for n in (200, 50))
    plain = from_arrays(*data)
    fields = {name: getattr(plain, name) for name in plain.__dataclass_fields__}
    return Dataset(**{**fields, "attributes_train": train, "attributes_test": test if with_test else {}})


def test_by_attribute_splits_the_samples_that_have_one_attribute_and_none_of_the_others() -> None:
    dataset = attributed(with_test=True)
    clients = split(ByAttribute(("c", "a")), 5, dataset=dataset)
    assert clients.true_cluster is not None
    assert clients.true_cluster.tolist() == [0, 0, 0, 1, 1]
    c, a = dataset.attributes_train["c"], dataset.attributes_train["a"]
    assert np.array_equal(np.sort(np.concatenate(clients.train_indices[:3])), np.flatnonzero(c & ~a))
    assert np.array_equal(np.sort(np.concatenate(clients.train_indices[3:])), np.flatnonzero(a & ~c))
    tested = dataset.attributes_test["a"] & ~dataset.attributes_test["c"]
    assert np.array_equal(clients.test_indices[4], np.flatnonzero(tested))


def test_without_test_attributes_the_classes_decide() -> None:
    dataset = attributed(with_test=False)
    clients = split(ByAttribute(("c", "a")), 2, dataset=dataset)
    for test, owned in zip(clients.test_indices, clients.owned, strict=True):
        assert np.array_equal(test, np.flatnonzero(np.isin(dataset.y_test, owned)))


def test_given_indices_stay_in_order() -> None:
    clients = split(Given(([5, 3], [1]), ([0], [0, 2])), 2)  # type: ignore[arg-type]
    assert [indices.tolist() for indices in clients.train_indices] == [[5, 3], [1]]
    assert [test.tolist() for test in clients.test_indices] == [[0], [0, 2]]
    by_class = split(Given((np.array([5]),)), 1)  # type: ignore[arg-type]
    assert np.array_equal(by_class.test_indices[0], np.flatnonzero(SAMPLES.y_test == _Y[5]))


@pytest.mark.parametrize(
    ("scheme", "n_clients", "reason"),
    [
        (Iid(), 3000, "1000 of 3000 clients would have less than 1 training samples .*use fewer clients"),
        (Iid(minimum=500), 5, "5 of 5 clients would have less than 500"),
        (LabelSkew(0.1), 2500, "less than 1 training samples.*larger share"),
        (Dirichlet(0.5), 201, "201 clients cannot have 10 of 2000 samples each; use fewer clients, a larger alpha"),
        (Dirichlet(1e-6, 20), 50, "in 12800 draws with alpha 1e-06.*larger alpha"),
        (QuantitySkew(0.01), 50, "in 12800 draws with alpha 0.01.*larger alpha"),
        (BySet((3,), 700), 3, r"need 700 samples each, it has 2000; use fewer clients or a size of at most 666"),
        (BySet((3,), 55), 3, "use a multiple of 10, or per_class = false"),
        (BySet((3,), 50), 4, r"which are 3 clients of 1 sets"),
        (BySet((2, 2), 50), 4, r"clients each of arrays has, got \[2, 2\]"),
        (BySet((3,), 50, minimum=60), 3, "less than 60 .*larger size"),
        (ByAttribute(("Tall",)), 3, "no attribute 'Tall'; there are none"),
        (ByAttribute(("a", "b")), 1, "1 clients cannot have 2 attributes"),
        (Given(((1, 2), (2,))), 2, "used at most once, got 1 used more often"),
        (Given(((1, 2000),)), 1, r"indices of training samples must lie in 0..1999, got 1..2000"),
        (Given(((-1,),)), 1, r"got -1..-1"),
        (Given(((1,),), ((200,),)), 1, r"indices of test samples must lie in 0..199"),
        (Given(((1,), ())), 2, "1 of 2 clients would have less than 1"),
        (Given(((1,),)), 2, "one list for each of 2 clients, got 1"),
    ],
)
def test_data_that_cannot_be_split_are_refused_with_what_to_change(scheme: Scheme, n_clients: int, reason: str) -> None:
    with pytest.raises(DataError, match=reason):
        split(scheme, n_clients)


@pytest.mark.parametrize("n_clients", [0, -1, 2.0, True, "3"])
def test_the_number_of_clients_is_checked(n_clients: object) -> None:
    with pytest.raises(ConfigError, match="number of clients must be an integer of at least 1"):
        split(Iid(), n_clients)  # type: ignore[arg-type]  # the mistake


def test_by_attribute_names_the_nearest_attribute() -> None:
    with pytest.raises(DataError, match=r"no attribute 'aa' .did you mean 'a'"):
        split(ByAttribute(("aa",)), 1, dataset=attributed(with_test=True))


def test_schemes_are_built_from_their_description() -> None:
    assert build_scheme({"kind": "label-skew", "share": 0.2}) == LabelSkew(0.2)
    assert build_scheme({"kind": "dirichlet", "alpha": 1}) == Dirichlet(1)
    assert build_scheme({"kind": "iid"}) == Iid()
    assert build_scheme({"kind": "quantity-skew", "alpha": 0.5, "minimum": 3}) == QuantitySkew(0.5, 3)
    by_set = {"kind": "by-set", "counts": [32, 26, 28, 14], "size": 500, "per-class": False}
    assert build_scheme(by_set) == BySet((32, 26, 28, 14), 500, False)
    assert build_scheme({"kind": "by-attribute", "attributes": ["a", "b"]}) == ByAttribute(("a", "b"))
    assert build_scheme({"kind": "given", "indices": [[0, 1], [2]]}) == Given(((0, 1), (2,)))
    for scheme in (build_scheme(by_set), build_scheme({"kind": "given", "indices": [[0, 1], [2]]})):
        assert isinstance(hash(scheme), int)


def test_schemes_take_lists_arrays_and_numbers_of_numpy() -> None:
    assert LabelSkew(np.float64(0.2), np.int64(3)) == LabelSkew(0.2, 3)
    assert BySet(np.array([1, 2]), np.int32(5)) == BySet((1, 2), 5)  # type: ignore[arg-type]
    assert BySet([1, 2], 5) == BySet((1, 2), 5)  # type: ignore[arg-type]
    assert Given([np.array([1, 2]), [3]]) == Given(((1, 2), (3,)))  # type: ignore[list-item]
    assert split(Iid(), int(np.int64(3))).n_clients == 3


@pytest.mark.parametrize(
    ("description", "reason"),
    [
        ({"kind": "label-scew", "share": 0.2}, "no scheme of kind 'label-scew' .did you mean 'label-skew'"),
        ({"share": 0.2}, f"no scheme of kind None; there are {', '.join(SCHEMES)}"),
        ({"kind": "dirichlet", "alhpa": 0.2}, "scheme dirichlet: has no setting 'alhpa' .did you mean 'alpha'"),
        ({"kind": "label-skew"}, "scheme label-skew: needs share"),
        ({"kind": "by-set", "size": 3}, "scheme by-set: needs counts"),
        ({"kind": "label-skew", "share": 20}, "share must be a number above 0 and at most 1, got 20"),
        ({"kind": "label-skew", "share": 0}, "share must be a number above 0 and at most 1, got 0"),
        ({"kind": "label-skew", "share": "a lot"}, "share must be a number .*, got 'a lot'"),
        ({"kind": "label-skew", "share": True}, "share must be a number .*, got True"),
        ({"kind": "dirichlet", "alpha": 0}, "alpha must be a number above 0"),
        ({"kind": "dirichlet", "alpha": float("nan")}, "alpha must be a number"),
        ({"kind": "iid", "minimum": 0}, "minimum must be an integer of at least 1"),
        ({"kind": "iid", "minimum": True}, "minimum must be an integer of at least 1"),
        ({"kind": "by-set", "counts": 4, "size": 500}, "counts must be a list, .* got 4"),
        ({"kind": "by-set", "counts": [1.5], "size": 500}, "counts must be a list, an integer of at least 0 each"),
        ({"kind": "by-set", "counts": [-1], "size": 500}, "counts must be a list, an integer of at least 0 each"),
        ({"kind": "by-set", "counts": [1], "size": 5, "per-class": 1}, "per_class must be true or false"),
        ({"kind": "by-attribute", "attributes": "Bald"}, "attributes must be a list"),
        ({"kind": "by-attribute", "attributes": ["a", "a"]}, "different names"),
        ({"kind": "by-attribute", "attributes": []}, "different names"),
        ({"kind": "given", "indices": [[0.5]]}, "indices must be a list of integers for each client.* client 0"),
        ({"kind": "given", "indices": [3]}, "indices must be a list of integers for each client"),
        ({"kind": "given", "indices": "all"}, "indices must be a list of lists, got 'all'"),
    ],
)
def test_settings_that_cannot_be_are_refused_with_what_is_expected(description: dict[str, object], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        build_scheme(description)
