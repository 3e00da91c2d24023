"""On which test samples a client is tested: those it owns, those in its proportions, or all."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pacfl.data import (
    BySet,
    Dataset,
    Dirichlet,
    Given,
    Iid,
    LabelSkew,
    Partition,
    Scheme,
    TestSamples,
    from_arrays,
    mixture,
    partition,
    validation_split,
)
from pacfl.errors import ConfigError, DataError


def labelled(train: list[int], test: list[int]) -> Dataset:
    """So many samples of each class."""
    y, y_test = np.repeat(np.arange(len(train)), train), np.repeat(np.arange(len(test)), test)
    return from_arrays(np.zeros((len(y), 1), np.uint8), y, np.zeros((len(y_test), 1), np.uint8), y_test)


DATA = labelled([100, 200, 300], [60, 30, 90])


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def counts(dataset: Dataset, indices: np.ndarray) -> list[int]:
    return np.bincount(dataset.y_test[indices], minlength=dataset.n_classes).tolist()


def test_the_scarcest_class_decides_how_many_samples_are_proportional() -> None:
    """Client 0 trains on 40 and 60 of classes 0 and 1, of which there are 60 and 30: with class 1 used up, 30 x 40/60
    of class 0. Client 1 trains on classes 0 and 2 as 10 to 30: 90 of class 2, so 30 of class 0. Client 2 on 7 and 3 of
    classes 1 and 2: all 30 of class 1, and 30 x 3/7 = 12.9 of class 2, rounded down."""
    given_rows = Given(
        (
            [*range(40), *range(100, 160)],
            [*range(40, 50), *range(300, 330)],
            [*range(160, 167), *range(400, 403)],
        )
    )
    clients = partition(DATA, given_rows, 3, rng(), "proportional")
    assert [counts(DATA, test) for test in clients.test_indices] == [[20, 30, 0], [30, 0, 90], [0, 30, 12]]


@settings(max_examples=30)
@given(seed=st.integers(0, 2**32), alpha=st.sampled_from([0.1, 0.5, 10.0]))
def test_no_larger_draw_has_the_shares_of_the_training_samples(seed: int, alpha: float) -> None:
    clients = partition(DATA, Dirichlet(alpha, 1), 6, rng(seed), "proportional")
    for train, test in zip(clients.train_indices, clients.test_indices, strict=True):
        own = np.bincount(DATA.y_train[train], minlength=3)
        drawn, there = np.array(counts(DATA, test)), np.array([60, 30, 90])
        assert len(np.unique(test)) == len(test)
        assert np.array_equal(test, np.sort(test))
        assert (drawn <= there).all()
        assert (drawn[own > 0] == there[own > 0]).any(), "a class is used up"
        size = max(drawn[own > 0] / own[own > 0])  # test samples for each training sample
        assert (np.abs(drawn - size * own) < 1).all()


def test_all_test_samples_in_equal_shares_are_all_of_them() -> None:
    data = labelled([50, 50], [20, 20])
    whole = partition(data, Given((range(100),)), 1, rng(), "proportional")
    assert len(whole.test_indices[0]) == 40


def test_the_draw_of_test_samples_changes_no_training_sample() -> None:
    plain = partition(DATA, Dirichlet(0.5, 1), 6, rng(1))
    first, again, other = (partition(DATA, Dirichlet(0.5, 1), 6, rng(1), "proportional", rng(s)) for s in (2, 2, 3))
    for a, b in ((plain, first), (first, again), (first, other)):
        assert all(np.array_equal(x, y) for x, y in zip(a.train_indices, b.train_indices, strict=True))
    assert all(np.array_equal(x, y) for x, y in zip(first.test_indices, again.test_indices, strict=True))
    assert not all(np.array_equal(x, y) for x, y in zip(first.test_indices, other.test_indices, strict=True))


def test_every_client_may_be_tested_on_all_test_samples() -> None:
    clients = partition(DATA, LabelSkew(0.4), 5, rng(), "global")
    assert len({id(test) for test in clients.test_indices}) == 1
    assert np.array_equal(clients.test_indices[0], np.arange(180))
    assert clients.owned == partition(DATA, LabelSkew(0.4), 5, rng()).owned


def test_proportional_samples_are_of_the_clients_own_set_and_global_ones_of_all() -> None:
    both = mixture([("a", DATA), ("b", labelled([50, 50, 200], [40, 10, 50]))], disjoint_labels=False)
    clients = partition(both, BySet((1, 1), 60, per_class=False), 2, rng(), "proportional")
    for source, test in enumerate(clients.test_indices):
        assert len(test)
        assert (both.source_test[test] == source).all()
    assert {len(test) for test in partition(both, BySet((1, 1), 60), 2, rng(), "global").test_indices} == {280}


def test_proportional_samples_come_from_those_that_are_given() -> None:
    clients = partition(DATA, Given((range(90, 110),), (range(50, 70),)), 1, rng(), "proportional")
    assert clients.test_indices[0].tolist() == list(range(50, 70))


def test_without_classes_a_client_gets_its_share_of_the_test_samples() -> None:
    x, y = np.zeros((300, 1), np.uint8), np.arange(300.0)
    data = from_arrays(x[:200], y[:200], x[200:], y[200:])
    sized = Given((range(100), range(100, 150), range(150, 151)))
    clients = partition(data, sized, 3, rng(), "proportional")
    assert [len(test) for test in clients.test_indices] == [50, 25, 1]
    assert len(np.unique(clients.test_indices[0])) == 50
    assert [len(test) for test in partition(data, sized, 3, rng()).test_indices] == [100] * 3


def test_a_class_without_test_samples_has_no_proportion() -> None:
    with pytest.raises(DataError, match="client 0 trains on class 1, of which there are no test samples"):
        partition(labelled([10, 10], [10]), Iid(), 2, rng(), "proportional")


def test_other_words_are_refused() -> None:
    with pytest.raises(ConfigError, match="test samples must be one of 'owned', 'proportional', 'global', got 'all'"):
        partition(DATA, Iid(), 2, rng(), "all")  # type: ignore[arg-type]  # the mistake


KINDS = ("owned", "proportional", "global")


@pytest.mark.parametrize("kinds", list(itertools.permutations(KINDS)))
@pytest.mark.parametrize("scheme", [Dirichlet(0.5, 1), LabelSkew(0.4)], ids=["dirichlet", "label skew"])
@pytest.mark.parametrize("own", [True, False], ids=["own generator", "that of the scheme"])
def test_several_kinds_are_what_each_would_be_alone(kinds: tuple[TestSamples, ...], scheme: Scheme, own: bool) -> None:
    def drawn(test: TestSamples | tuple[TestSamples, ...]) -> Partition:
        return partition(DATA, scheme, 5, rng(3), test, rng(4) if own else None)

    clients = drawn(kinds)
    assert clients.tests == kinds
    of_kind = {clients.test: clients.test_indices, **clients.other_tests}
    for kind in kinds:
        alone = drawn(kind)
        assert not alone.other_tests
        for one, two in ((clients.train_indices, alone.train_indices), (of_kind[kind], alone.test_indices)):
            assert all(np.array_equal(a, b) for a, b in zip(one, two, strict=True))


def test_a_partition_shows_how_many_test_samples_of_each_kind_there_are() -> None:
    clients = partition(DATA, Given((range(100), range(100, 300))), 2, rng(), ["owned", "global"])
    assert "30..60 test samples each, 180 global test samples each" in repr(clients)
    assert "global test samples" in clients._repr_html_()


def test_kinds_are_different_and_known() -> None:
    for kinds, reason in ((["owned", "owned"], "different kinds"), ([], "at least one"), (["all"], "got .'all'")):
        with pytest.raises(ConfigError, match=reason):
            partition(DATA, Iid(), 2, rng(), kinds)  # type: ignore[arg-type]  # the mistake


def test_validation_samples_replace_one_kind_only() -> None:
    with pytest.raises(ConfigError, match="got owned and global test samples; use one kind"):
        validation_split(DATA, partition(DATA, Iid(), 2, rng(), ["owned", "global"]), 0.2, rng())
