from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from pacfl.data import (
    BySet,
    Dataset,
    Dirichlet,
    Given,
    Iid,
    LabelSkew,
    QuantitySkew,
    Scheme,
    from_arrays,
    load_dataset,
    mixture,
    normalised,
    partition,
    subsample,
    subset,
    validation_split,
)
from pacfl.errors import DataError
from pacfl.experiment import description

N, N_TEST = 120, 40
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N + N_TEST, 3)).astype(np.float32)
X[:, 0] = np.arange(N + N_TEST)  # samples are recognised by their index
VALUES = X[:, 0] * 2.5
SEVERAL = RNG.integers(0, 2, (N + N_TEST, 4))
OTHERS = {"values": VALUES, "labels": SEVERAL}


def data(y: NDArray[Any], name: str = "mine") -> Dataset:
    return from_arrays(X[:N], y[:N], X[N:], y[N:], name)


@pytest.mark.parametrize(
    ("y", "targets", "n_outputs", "n_classes", "dtype"),
    [
        (np.arange(N + N_TEST) % 7, "classes", 7, 7, np.int64),
        ((np.arange(N + N_TEST) % 7)[:, None].astype(np.uint8), "classes", 7, 7, np.int64),
        (SEVERAL, "labels", 4, 0, np.int64),
        (SEVERAL.astype(bool), "labels", 4, 0, np.int64),
        (SEVERAL[:, 0].astype(bool), "labels", 1, 0, np.int64),
        (VALUES.astype(np.float64), "values", 1, 0, np.float32),
        (VALUES[:, None], "values", 1, 0, np.float32),
        (X[:, :2].astype(np.float16), "values", 2, 0, np.float32),
    ],
)
def test_the_kind_of_targets_follows_from_their_type_and_shape(
    y: NDArray[Any], targets: str, n_outputs: int, n_classes: int, dtype: type
) -> None:
    dataset = data(y)
    assert (dataset.targets, dataset.n_outputs, dataset.n_classes) == (targets, n_outputs, n_classes)
    assert dataset.y_train.dtype == dataset.y_test.dtype == dtype


@pytest.mark.parametrize(
    ("y", "reason"),
    [
        (np.array(["cat"] * (N + N_TEST)), r"y_train has shape \(120,\) of <U3, which are no targets; classes are"),
        (SEVERAL[:, :, None], "no targets"),
        (SEVERAL + 1, r"several labels must be 0 or 1 each, got 1..2 in y_train; classes are \(n,\)"),
        (np.where(np.arange(N + N_TEST) == 3, np.nan, VALUES), "y_train must be finite, got NaN"),
        (VALUES[: N + 1], "same kind|y_test must be values of 40 samples"),
        (VALUES[1:], "y_test must be values of 40 samples, got shape .39,. of float32"),
    ],
)
def test_targets_that_cannot_be_are_refused_with_what_is_expected(y: NDArray[Any], reason: str) -> None:
    with pytest.raises(DataError, match=reason):
        data(y)


def test_training_and_test_samples_must_have_the_same_kind_of_targets() -> None:
    with pytest.raises(DataError, match=r"same kind of targets, got values, shape .120,. of float32, and labels"):
        from_arrays(X[:N], VALUES[:N], X[N:], SEVERAL[N:])
    with pytest.raises(DataError, match="same kind of targets"):
        from_arrays(X[:N], SEVERAL[:N], X[N:], SEVERAL[N:, :2])
    with pytest.raises(DataError, match="n_classes is for classes, got 3 with values; leave it out"):
        from_arrays(X[:N], VALUES[:N], X[N:], VALUES[N:], n_classes=3)


@pytest.mark.parametrize("kind", OTHERS)
def test_values_and_labels_stay_with_their_samples(kind: str) -> None:
    y = OTHERS[kind]
    dataset = data(y)
    clients = partition(dataset, Iid(), 5, np.random.default_rng(0))
    validated, _ = validation_split(dataset, clients, 0.25, np.random.default_rng(0))
    mixed = mixture([("a", dataset), ("b", dataset)], disjoint_labels=False)
    drawn = subsample(dataset, 30, np.random.default_rng(0))
    assert (len(drawn.y_train), len(drawn.y_test)) == (30, 10)
    for some in (dataset, validated, mixed, drawn, subset(dataset, np.array([7, 3]), np.array([1]))):
        assert some.targets == kind
        for x, own in ((some.x_train, some.y_train), (some.x_test, some.y_test)):
            np.testing.assert_array_equal(own, y[x[:, 0].astype(int)])


@pytest.mark.parametrize("kind", OTHERS)
@pytest.mark.parametrize("scheme", [Iid(), QuantitySkew(2.0), BySet((4,), 30, per_class=False), Given(((1,), (2, 3)))])
def test_clients_without_classes_are_tested_on_all_test_samples(kind: str, scheme: Scheme) -> None:
    n_clients = 2 if isinstance(scheme, Given) else 4
    clients = partition(data(OTHERS[kind]), scheme, n_clients, np.random.default_rng(0))
    assert clients.owned == ((),) * n_clients
    assert len({id(test) for test in clients.test_indices}) == 1
    assert np.array_equal(clients.test_indices[0], np.arange(N_TEST))
    together = np.concatenate(clients.train_indices)
    assert len(np.unique(together)) == len(together)


@pytest.mark.parametrize(
    ("scheme", "reason"),
    [
        (LabelSkew(0.2), "label-skew splits samples by their class, and mine has values; use iid or quantity-skew"),
        (Dirichlet(0.5), "dirichlet splits samples by their class, and mine has values; use iid or quantity-skew"),
        (BySet((4,), 30), "by-set divides samples by their class, and mine has values; use per-class = false"),
    ],
)
def test_schemes_by_class_refuse_other_targets(scheme: Scheme, reason: str) -> None:
    with pytest.raises(DataError, match=reason):
        partition(data(VALUES), scheme, 4, np.random.default_rng(0))


def test_only_classes_can_be_disjoint_and_only_one_kind_can_be_mixed() -> None:
    with pytest.raises(DataError, match=r"only classes can be disjoint, .* have values; say disjoint_labels=False"):
        mixture([("a", data(VALUES)), ("b", data(VALUES))])
    with pytest.raises(DataError, match=r"same kind of targets, got a values of shape \(\), b labels of shape \(4,\)"):
        mixture([("a", data(VALUES)), ("b", data(SEVERAL))], disjoint_labels=False)


def test_values_are_not_normalised() -> None:
    assert np.array_equal(normalised(data(VALUES)).y_train, VALUES[:N])


@pytest.mark.parametrize("kind", OTHERS)
def test_a_file_may_have_any_targets(tmp_path: Any, kind: str) -> None:
    y = OTHERS[kind]
    np.savez(tmp_path / "mine.npz", x_train=X[:N], y_train=y[:N], x_test=X[N:], y_test=y[N:])
    dataset = load_dataset("mine", tmp_path)
    assert dataset.targets == kind
    assert np.array_equal(dataset.y_test, y[N:].astype(dataset.y_test.dtype))


def test_the_digest_depends_on_the_targets() -> None:
    assert data(VALUES).digest != data(VALUES + 1).digest != data(SEVERAL).digest


def test_clients_are_described_by_how_many_samples_have_each_label() -> None:
    clients = Given((range(10), range(10, 40)))
    for y, counts in ((SEVERAL, SEVERAL[10:40].sum(axis=0).tolist()), (VALUES, [])):
        dataset = data(y)
        divided = partition(dataset, clients, 2, np.random.default_rng(0))
        described = description.clients(dataset, divided, "")
        assert described["targets"] == dataset.targets
        assert described["clients"][1]["labels"] == counts
