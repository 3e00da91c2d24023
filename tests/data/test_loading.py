from pathlib import Path

import numpy as np
import pytest
from writing import arrays, write_idx

from pacfl.data import MIX4, BySet, catalogue, data_folder, load_dataset, partition
from pacfl.errors import DataError


def test_the_folder_is_the_given_one_then_that_of_the_environment_then_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PACFL_DATA", "elsewhere")
    assert data_folder("here") == Path("here")
    assert data_folder() == Path("elsewhere")
    monkeypatch.delenv("PACFL_DATA")
    assert data_folder() == Path("data")


def test_an_unknown_name_is_refused_with_the_nearest_one(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no data set 'cifar-10', and no cifar-10\.npz in .* .did you mean 'cifar10'"):
        load_dataset("cifar-10", tmp_path)
    with pytest.raises(DataError, match=r"mnist has no option 'size'; there are none"):
        load_dataset("mnist", tmp_path, size=3)
    with pytest.raises(DataError, match=r"mnist_m is not complete in .*missing mnist_m\.npz"):
        load_dataset("mnist_m", tmp_path)
    with pytest.raises(DataError, match="needs a list of data sets"):
        load_dataset("mixture", tmp_path)


def test_a_mixture_is_loaded_by_the_names_of_its_sets(tmp_path: Path) -> None:
    write_idx(tmp_path / "MNIST/raw", arrays((28, 28)), zipped=True)
    np.savez(tmp_path / "colour.npz", **arrays((32, 32, 3))._asdict())
    dataset = load_dataset("mixture", tmp_path, sets=["mnist", "colour"])
    assert (dataset.x_train.shape, dataset.n_classes) == ((60, 32, 32, 3), 20)
    assert load_dataset("mix4", tmp_path, sets=["mnist", "colour"], disjoint_labels=False).n_classes == 10


def test_the_catalogue_lists_found_missing_and_unreadable(tmp_path: Path) -> None:
    write_idx(tmp_path / "MNIST/raw", arrays((28, 28)), zipped=True)
    write_idx(tmp_path / "FashionMNIST/raw", arrays((28, 28)), zipped=True)
    (tmp_path / "FashionMNIST/raw/t10k-labels-idx1-ubyte.gz").unlink()
    (tmp_path / "usps.npz").write_bytes(b"no zip")
    np.savez(tmp_path / "mine.npz", **arrays((5, 6))._asdict())
    np.savez(tmp_path / "other.npz", x=np.zeros(3))
    entries = {entry.name: entry for entry in catalogue(tmp_path)}
    mnist, fmnist, usps, svhn = (entries[name] for name in ("mnist", "fmnist", "usps", "svhn"))
    assert mnist.found
    assert (mnist.where, mnist.format, mnist.n_train, mnist.n_test) == (tmp_path / "MNIST/raw", "idx files", 30, 20)
    assert not fmnist.found
    assert fmnist.missing == ("FashionMNIST/raw/t10k-labels-idx1-ubyte",)
    assert not usps.found
    assert usps.where == tmp_path / "usps.npz"
    assert usps.problem is not None
    assert svhn.missing == ("train_32x32.mat", "test_32x32.mat")
    assert {file.url for file in svhn.files} >= {"http://ufldl.stanford.edu/housenumbers/train_32x32.mat"}
    assert all(entry.how for entry in entries.values() if not entry.found)
    assert (entries["mine"].n_train, entries["mine"].n_test) == (30, 20)
    assert "other" not in entries
    assert set(entries["mix4"].missing) == set(MIX4)


def test_a_missing_folder_is_an_empty_folder(tmp_path: Path) -> None:
    found = [entry.name for entry in catalogue(tmp_path / "nowhere") if entry.found]
    assert set(found) <= {"digits"}


def test_the_folder_of_real_data_is_a_data_folder(shared: Path) -> None:
    entries = {entry.name: entry for entry in catalogue(shared)}
    names = [name for name in ("fmnist", "mnist_m", "svhn", "usps", "cifar100") if entries[name].found]
    if not names:
        pytest.skip(f"none of the data sets is in {shared}")
    for name in names:
        dataset = load_dataset(name, shared)
        assert (len(dataset.y_train), len(dataset.y_test)) == (entries[name].n_train, entries[name].n_test)
        assert dataset.x_train.dtype == np.uint8
        assert dataset.n_classes == (100 if name == "cifar100" else 10)


def test_real_usps_is_split_in_its_own_proportions(shared: Path) -> None:
    if not (shared / "usps.npz").exists():
        pytest.skip("no usps.npz there")
    dataset = load_dataset("usps", shared)
    clients = partition(dataset, BySet((14,), 500), 14, np.random.default_rng(0))
    expected = np.bincount(dataset.y_train, minlength=10) / len(dataset.y_train) * 500
    for indices in clients.train_indices:
        assert len(indices) == 500
        assert np.abs(np.bincount(dataset.y_train[indices], minlength=10) - expected).max() <= 1.5
