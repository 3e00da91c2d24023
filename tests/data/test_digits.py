import sys

import numpy as np
import pytest

from pacfl.data import BySet, catalogue, digits, load_dataset, partition
from pacfl.errors import DataError, MissingLibraryError

pytest.importorskip("sklearn", reason="the data set digits needs scikit-learn")


def test_every_domain_has_the_same_digits_transformed() -> None:
    dataset = digits()
    assert dataset.source_names == ("upright", "turned", "negative", "mirrored")
    upright, turned, negative, mirrored = (dataset.x_train[dataset.source_train == i] for i in range(4))
    assert np.array_equal(turned, np.rot90(upright, axes=(1, 2)))
    assert np.array_equal(negative, 255 - upright)
    assert np.array_equal(mirrored, upright[:, :, ::-1])
    labels = [dataset.y_train[dataset.source_train == i] for i in range(4)]
    assert all(np.array_equal(labels[0], other) for other in labels)
    assert dataset.n_classes == 10


def test_one_fifth_of_every_class_is_for_testing_and_never_seen_in_training() -> None:
    dataset = digits(["upright"])
    train, test = np.bincount(dataset.y_train), np.bincount(dataset.y_test)
    assert np.abs(test / (train + test) - 0.2).max() < 0.01
    assert len(train) == len(test) == 10
    assert np.array_equal(digits(["upright"]).x_test, dataset.x_test)
    seen = {image.tobytes() for image in dataset.x_train}
    assert sum(image.tobytes() in seen for image in dataset.x_test) == 0


def test_labels_are_disjoint_on_request() -> None:
    dataset = load_dataset("digits", disjoint_labels=True, domains=["upright", "turned"])
    assert dataset.n_classes == 20
    assert set(dataset.y_test[dataset.source_test == 1]) == set(range(10, 20))


def test_domains_are_groups_of_clients() -> None:
    clients = partition(load_dataset("digits"), BySet((5, 5, 5, 5), 200), 20, np.random.default_rng(0))
    assert clients.true_cluster is not None
    assert clients.true_cluster.tolist() == sorted([0, 1, 2, 3] * 5)


def test_the_catalogue_counts_them() -> None:
    entry = next(entry for entry in catalogue() if entry.name == "digits")
    assert (entry.n_train, entry.n_test) == (len(digits().y_train), len(digits().y_test))


def test_an_unknown_domain_and_a_missing_library_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DataError, match=r"no domain 'mirored' .did you mean 'mirrored'"):
        digits(["mirored"])
    for domains in ([], "upright"):
        with pytest.raises(DataError, match="digits have no domain"):
            digits(domains)
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(MissingLibraryError, match=r"needs scikit-learn: pip install 'pacfl\[data\]'"):
        digits()
