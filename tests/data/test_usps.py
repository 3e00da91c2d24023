import bz2
import sys
from pathlib import Path

import numpy as np
import pytest
from writing import Arrays, arrays, same, usps_text, write_usps

from pacfl.data import catalogue, load_dataset
from pacfl.errors import DataError, MissingLibraryError

DATA = arrays((16, 16))
LINE = usps_text(DATA.x_train[:1], DATA.y_train[:1])


def test_libsvm_text_is_read_with_one_meaning_zero(tmp_path: Path) -> None:
    write_usps(tmp_path, DATA)
    assert same(load_dataset("usps", tmp_path), DATA)
    entry = next(entry for entry in catalogue(tmp_path) if entry.name == "usps")
    assert (entry.n_train, entry.n_test, entry.format) == (30, 20, "LIBSVM text")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "has no samples"),
        ("\n\n", "has no samples"),
        (LINE.replace(" 7:", " 8:"), "line 1 is not a label and the pixels"),
        (LINE[:100] + "\n", "line 1 is not"),
        (LINE + "3 1:2:3\n", "line 2 is not"),
        (LINE.replace("1:", "one:", 1), "line 1 is not"),
        (" ".join(["11", *LINE.split()[1:]]) + "\n", r"labels must lie in 0..9, got 10..10"),
        (" ".join(["1", "1:1.5", *LINE.split()[2:]]) + "\n", "pixels outside the range"),
        (" ".join(["1", "1:nan", *LINE.split()[2:]]) + "\n", "pixels outside the range"),
        ("1 " * 20_000, "line 1 is more than USPS can have"),
        ("\n" * 100_001, "line 100001 is more than USPS can have"),
    ],
)
def test_other_text_is_refused_by_name(tmp_path: Path, text: str, reason: str) -> None:
    write_usps(tmp_path, DATA)
    (tmp_path / "usps.t.bz2").write_bytes(bz2.compress(text.encode()))
    with pytest.raises(DataError, match=reason) as caught:
        load_dataset("usps", tmp_path)
    assert "usps.t.bz2" in str(caught.value)


def test_damaged_bzip2_is_refused_by_name(tmp_path: Path) -> None:
    write_usps(tmp_path, DATA)
    path = tmp_path / "usps.bz2"
    content = path.read_bytes()
    for contents in (content[:-20], b"no bzip2"):
        path.write_bytes(contents)
        with pytest.raises(DataError, match=r"usps\.bz2: cannot be read as bzip2 text"):
            load_dataset("usps", tmp_path)


def write_h5(path: Path, data: Arrays) -> None:
    h5py = pytest.importorskip("h5py", reason="reading HDF5 needs h5py")
    with h5py.File(path, "w") as file:
        for part, x, y in (("train", data.x_train, data.y_train), ("test", data.x_test, data.y_test)):
            group = file.create_group(part)
            group["data"] = (x.reshape(len(x), -1) / 255).astype(np.float32)
            group["target"] = y


def test_hdf5_is_read(tmp_path: Path) -> None:
    write_h5(tmp_path / "usps.h5", DATA)
    assert same(load_dataset("usps", tmp_path), DATA)
    entry = next(entry for entry in catalogue(tmp_path) if entry.name == "usps")
    assert (entry.n_train, entry.n_test, entry.format) == (30, 20, "HDF5")


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        ("no test", "has no test/data of its own"),
        ("wrong width", r"expected train/data \(n, 256\)"),
        ("too bright", "pixels outside the range"),
        ("few labels", r"labels of shape \(3,\) for 30 samples"),
        ("link elsewhere", "has no train/data of its own"),
        ("data elsewhere", "is not an array of 2 dimensions inside the file"),
        ("unwritten", "cannot contain them"),
        ("group for array", "is not an array"),
    ],
)
def test_other_hdf5_is_refused_by_name(tmp_path: Path, damage: str, reason: str) -> None:
    h5py = pytest.importorskip("h5py", reason="reading HDF5 needs h5py")
    path = tmp_path / "usps.h5"
    write_h5(path, DATA)
    with h5py.File(path, "a") as file:
        train = file["train"]
        removed = "target" if damage == "few labels" else "data"
        pixels = train["data"][:]
        del train[removed]
        if damage == "no test":
            train["data"] = pixels
            del file["test"]
        elif damage == "wrong width":
            train["data"] = pixels[:, :200]
        elif damage == "too bright":
            train["data"] = pixels * 2
        elif damage == "few labels":
            train["target"] = [1, 2, 3]
        elif damage == "link elsewhere":
            train["data"] = h5py.ExternalLink("other.h5", "/data")
        elif damage == "data elsewhere":
            train.create_dataset("data", (30, 256), "f4", external=[("/etc/hostname", 0, 30 * 256 * 4)])
        elif damage == "unwritten":
            train.create_dataset("data", (1 << 40, 256), "f4", chunks=(1, 256))
        else:
            train.create_group("data")
    with pytest.raises(DataError, match=reason) as caught:
        load_dataset("usps", tmp_path)
    assert str(path) in str(caught.value)


def test_truncated_hdf5_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "usps.h5"
    write_h5(path, DATA)
    content = path.read_bytes()
    for contents in (content[: len(content) // 2], b"no hdf5", b""):
        path.write_bytes(contents)
        with pytest.raises(DataError, match=r"usps\.h5: cannot be read as an HDF5 file"):
            load_dataset("usps", tmp_path)


def test_without_h5py_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "usps.h5").write_bytes(b"")
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(MissingLibraryError, match=r"needs h5py: pip install 'pacfl\[data\]'"):
        load_dataset("usps", tmp_path)
