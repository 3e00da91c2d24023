from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from scipy.io import loadmat, savemat
from writing import arrays, same, write_svhn

from pacfl.data import catalogue, load_dataset
from pacfl.data.readers.matlab import matrices
from pacfl.errors import DataError

DATA = arrays((32, 32, 3))
X = DATA.x_train.transpose(1, 2, 3, 0)
Y = DATA.y_train[:, None] + 1


@pytest.mark.parametrize("compressed", [True, False])
def test_what_was_written_is_read_with_ten_meaning_zero(tmp_path: Path, compressed: bool) -> None:
    write_svhn(tmp_path, DATA, compressed)
    dataset = load_dataset("svhn", tmp_path)
    assert same(dataset, DATA)
    assert dataset.x_train.flags.c_contiguous
    entry = next(entry for entry in catalogue(tmp_path) if entry.name == "svhn")
    assert (entry.n_train, entry.n_test, entry.format) == (30, 20, "MATLAB files")


@pytest.mark.parametrize("compressed", [True, False])
def test_numbers_of_every_kind_are_read_as_scipy_reads_them(tmp_path: Path, compressed: bool) -> None:
    path = tmp_path / "any.mat"
    kinds = ("i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f4", "f8")
    numbers = {f"of_{kind}": np.arange(24).reshape(2, 3, 4).astype(kind) for kind in kinds}
    savemat(path, {**numbers, "tiny": np.uint8([[3]]), "text": "words", "z": 1j}, do_compression=compressed)
    found = matrices(path)
    assert set(found) == {*numbers, "tiny"}
    theirs = loadmat(path)
    for name, matrix in found.items():
        assert np.array_equal(matrix.read(), theirs[name]), name


@pytest.mark.parametrize(
    ("variables", "reason"),
    [
        ({"X": X}, "one label y for each image"),
        ({"y": Y}, r"expected X \(32, 32, 3, n\) of uint8"),
        ({"X": X[:, :, 0], "y": Y}, r"expected X \(32, 32, 3, n\)"),
        ({"X": X.astype(np.float64), "y": Y}, r"got X \(32, 32, 3, 30\) of float64"),
        ({"X": X, "y": Y[:-1]}, r"y \(29, 1\) of int64"),
        ({"X": X, "y": Y + 5}, r"labels must lie in 0..9"),
        ({"X": X, "y": Y / 2}, "labels must be integers"),
        ({"X": X, "y": np.array([["a"]] * 30, dtype=object)}, "one label y for each image"),
    ],
)
def test_other_contents_are_refused_by_name(tmp_path: Path, variables: dict[str, object], reason: str) -> None:
    write_svhn(tmp_path, DATA)
    savemat(tmp_path / "train_32x32.mat", variables, do_compression=True)
    with pytest.raises(DataError, match=reason) as caught:
        load_dataset("svhn", tmp_path)
    assert "train_32x32.mat" in str(caught.value)


@pytest.mark.parametrize("compressed", [True, False])
@pytest.mark.parametrize("length", [0, 50, 130, 180, 3000, -10])
def test_truncated_files_are_refused_by_name(tmp_path: Path, length: int, compressed: bool) -> None:
    write_svhn(tmp_path, DATA, compressed)
    path = tmp_path / "test_32x32.mat"
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(DataError) as caught:
        load_dataset("svhn", tmp_path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("compressed", [True, False])
def test_a_file_with_any_one_of_its_first_bytes_damaged_is_read_or_refused(tmp_path: Path, compressed: bool) -> None:
    """With scipy, some of these end the process."""
    write_svhn(tmp_path, DATA, compressed)
    path = tmp_path / "train_32x32.mat"
    content = path.read_bytes()
    for at in range(120, 220):
        path.write_bytes(content[:at] + bytes([content[at] ^ 0xFF]) + content[at + 1 :])
        with suppress(DataError):
            load_dataset("svhn", tmp_path)


def test_a_change_of_one_compressed_byte_is_seen(tmp_path: Path) -> None:
    write_svhn(tmp_path, DATA)
    path = tmp_path / "train_32x32.mat"
    content = path.read_bytes()
    for at in range(1000, 60_000, 7000):
        path.write_bytes(content[:at] + bytes([content[at] ^ 0x10]) + content[at + 1 :])
        with pytest.raises(DataError, match=r"train_32x32\.mat"):
            load_dataset("svhn", tmp_path)


def test_more_images_than_the_file_can_contain_are_refused_before_memory_is_allocated(tmp_path: Path) -> None:
    write_svhn(tmp_path, DATA, compressed=False)
    path = tmp_path / "train_32x32.mat"
    shape = np.array([32, 32, 3, 30], dtype="<i4").tobytes()
    huge = np.array([32, 32, 3, 600_000], dtype="<i4").tobytes()
    path.write_bytes(path.read_bytes().replace(shape, huge))
    with pytest.raises(DataError, match=r"declares X as \(32, 32, 3, 600000\) in 92160 bytes"):
        load_dataset("svhn", tmp_path)
