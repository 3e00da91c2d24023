import io
import zipfile
from pathlib import Path

import numpy as np
import pytest
from writing import arrays, same, write_idx

from pacfl.data import load_dataset
from pacfl.errors import DataError

DATA = arrays((5, 6))


def write_npz(path: Path, **changes: object) -> None:
    contents = {**DATA._asdict(), **changes}
    np.savez_compressed(path, **{key: np.asarray(value) for key, value in contents.items() if value is not None})


@pytest.mark.parametrize("form", ["compressed", "stored"])
def test_any_npz_is_found_by_name_and_by_path(tmp_path: Path, form: str) -> None:
    save = np.savez_compressed if form == "compressed" else np.savez
    save(tmp_path / "mine.npz", **DATA._asdict())
    for name, folder in (("mine", tmp_path), ("mine.npz", tmp_path), (str(tmp_path / "mine.npz"), None)):
        dataset = load_dataset(name, folder)
        assert same(dataset, DATA)
        assert dataset.name == "mine"


def test_a_named_data_set_has_its_own_number_of_classes(tmp_path: Path) -> None:
    write_npz(tmp_path / "cifar100.npz")
    assert load_dataset("cifar100", tmp_path).n_classes == 100
    write_npz(tmp_path / "usps.npz", y_train=DATA.y_train + 1)
    with pytest.raises(DataError, match=r"usps\.npz: .*must lie in 0..9"):
        load_dataset("usps", tmp_path)


def test_the_published_format_is_preferred_if_it_is_complete(tmp_path: Path) -> None:
    true = arrays((28, 28))
    write_idx(tmp_path / "MNIST/raw", true, zipped=True)
    write_npz(tmp_path / "mnist.npz")
    assert same(load_dataset("mnist", tmp_path), true)
    (tmp_path / "MNIST/raw/t10k-labels-idx1-ubyte.gz").unlink()
    assert same(load_dataset("mnist", tmp_path), DATA)


def test_a_file_says_where_the_channels_of_its_images_are(tmp_path: Path) -> None:
    images = arrays((5, 6, 3))
    first = {"x_train": np.moveaxis(images.x_train, -1, 1), "x_test": np.moveaxis(images.x_test, -1, 1)}
    np.savez(tmp_path / "mine.npz", **{**images._asdict(), **first}, channels="first")
    assert same(load_dataset("mine", tmp_path), images)
    np.savez(tmp_path / "mine.npz", **{**images._asdict(), **first})
    with pytest.raises(DataError, match=r"mine\.npz: .*give channels='first'"):
        load_dataset("mine", tmp_path)
    np.savez(tmp_path / "mine.npz", **images._asdict(), channels=3)
    with pytest.raises(DataError, match=r"mine\.npz: .*channels must be 'last' or 'first', got '3'"):
        load_dataset("mine", tmp_path)


def with_header(shape: tuple[int, ...]) -> bytes:
    """The start of an array that declares a shape and has no data."""
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(buffer, {"descr": "|u1", "fortran_order": False, "shape": shape})
    return buffer.getvalue()


def test_other_contents_are_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "mine.npz"
    for changes, reason in (
        ({"x_test": None}, "lacks x_test; expected the arrays x_train, y_train, x_test, y_test"),
        ({"y_train": DATA.y_train[:-1]}, "y_train must be one integer for each of 30"),
        ({"y_train": 3}, "y_train is a single number"),
        ({"x_train": np.array([{}] * 30, dtype=object)}, "cannot"),
        ({"x_test": DATA.x_test[:, :2]}, "must have the same shape and type"),
    ):
        write_npz(path, **changes)
        with pytest.raises(DataError, match=reason) as caught:
            load_dataset("mine", tmp_path)
        assert str(path) in str(caught.value)


def test_damaged_files_and_false_headers_are_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "mine.npz"
    write_npz(path)
    content = path.read_bytes()
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, contents in {**members, "x_train.npy": with_header((1 << 40, 5, 6))}.items():
            archive.writestr(name, contents)
    for contents in (content[:-30], content[:200] + content[300:], b"no zip", b"", buffer.getvalue()):
        path.write_bytes(contents)
        with pytest.raises(DataError, match=r"cannot be read|cannot hold") as caught:
            load_dataset("mine", tmp_path)
        assert str(path) in str(caught.value)
