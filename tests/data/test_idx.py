import gzip
from pathlib import Path

import numpy as np
import pytest
from writing import arrays, idx_bytes, same, write_idx

from pacfl.data import load_dataset
from pacfl.data.readers.idx import FIRST_LABELS
from pacfl.errors import DataError

DATA = arrays((28, 28))
IMAGES = "train-images-idx3-ubyte"
LABELS = "train-labels-idx1-ubyte"


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize(
    ("name", "subfolder"),
    [
        ("fmnist", "FashionMNIST/raw"),
        ("fmnist", "fashion-mnist"),
        ("fmnist", ""),
        ("mnist", "MNIST/raw"),
        ("mnist", ""),
    ],
)
def test_what_was_written_is_read(tmp_path: Path, name: str, subfolder: str, zipped: bool) -> None:
    write_idx(tmp_path / subfolder, DATA, zipped)
    dataset = load_dataset(name, tmp_path)
    assert same(dataset, DATA)
    assert (dataset.name, dataset.n_classes, dataset.x_train.dtype) == (name, 10, np.uint8)


def test_plain_and_gzipped_files_may_be_mixed(tmp_path: Path) -> None:
    write_idx(tmp_path, DATA, zipped=True)
    contents = gzip.decompress((tmp_path / f"{IMAGES}.gz").read_bytes())
    (tmp_path / f"{IMAGES}.gz").unlink()
    (tmp_path / IMAGES).write_bytes(contents)
    assert same(load_dataset("mnist", tmp_path), DATA)


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize(
    ("file", "contents", "reason"),
    [
        (IMAGES, b"", "starts with nothing, expected 00 00 08 03"),
        (IMAGES, idx_bytes(DATA.y_train), "starts with 00 00 08 01, expected 00 00 08 03"),
        (LABELS, idx_bytes(DATA.x_train), "expected 00 00 08 01: an idx file of bytes in 1 dimension"),
        (IMAGES, bytes((0, 0, 13, 3)) + bytes(12), "starts with 00 00 0d 03"),
        (IMAGES, idx_bytes(DATA.x_train)[:10], "cannot be read as an idx file"),
        (IMAGES, idx_bytes(DATA.x_train)[:-1], "declares 23520 bytes"),
        (IMAGES, idx_bytes(DATA.x_train) + b"x", "has more"),
        (IMAGES, bytes((0, 0, 8, 3)) + b"\x7f\xff\xff\xff" * 3, "cannot contain them"),
        (LABELS, idx_bytes(DATA.y_train[:-1]), r"labels of shape \(29,\) for 30 samples"),
        (LABELS, idx_bytes(DATA.y_train + 1), r"labels must lie in 0..9, got 1..10"),
    ],
)
def test_damaged_files_are_refused_by_name(
    tmp_path: Path, file: str, contents: bytes, reason: str, zipped: bool
) -> None:
    write_idx(tmp_path, DATA, zipped)
    path = tmp_path / (f"{file}.gz" if zipped else file)
    path.write_bytes(gzip.compress(contents) if zipped else contents)
    with pytest.raises(DataError, match=reason) as caught:
        load_dataset("mnist", tmp_path)
    assert str(path) in str(caught.value)


def test_damaged_gzip_is_refused_by_name(tmp_path: Path) -> None:
    write_idx(tmp_path, DATA, zipped=True)
    path = tmp_path / f"{IMAGES}.gz"
    content = path.read_bytes()
    for contents in (content[:-9], content[:40], content[:60] + content[90:], b"no gzip"):
        path.write_bytes(contents)
        with pytest.raises(DataError, match="cannot be read as an idx file") as caught:
            load_dataset("mnist", tmp_path)
        assert str(path) in str(caught.value)


def test_one_set_is_not_taken_for_the_other_by_its_file_names(tmp_path: Path) -> None:
    labels = np.concatenate([np.array(FIRST_LABELS["fmnist"]), DATA.y_train[16:]])
    write_idx(tmp_path, DATA._replace(y_train=labels), zipped=True)
    assert load_dataset("fmnist", tmp_path).name == "fmnist"
    with pytest.raises(DataError, match=r"mnist is not complete.*is of fmnist"):
        load_dataset("mnist", tmp_path)


def test_a_missing_file_is_named_with_the_way_to_get_it(tmp_path: Path) -> None:
    write_idx(tmp_path / "MNIST/raw", DATA, zipped=False)
    (tmp_path / "MNIST/raw" / LABELS).unlink()
    with pytest.raises(DataError, match=rf"missing MNIST/raw/{LABELS}\. .*download\('mnist'\)"):
        load_dataset("mnist", tmp_path)
