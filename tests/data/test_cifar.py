import gzip
import io
import os
import pickle
import struct
import tarfile
from pathlib import Path

import numpy as np
import pytest
from writing import arrays, cifar10_files, cifar100_files, same, write_archive, write_files

from pacfl.data import catalogue, load_dataset
from pacfl.data.readers.pickles import PickledArray, load_plain
from pacfl.errors import DataError

DATA = {"cifar10": arrays((32, 32, 3)), "cifar100": arrays((32, 32, 3), 200, 100, n_classes=100)}
FILES = {"cifar10": cifar10_files(DATA["cifar10"]), "cifar100": cifar100_files(DATA["cifar100"])}
ARCHIVES = {"cifar10": "cifar-10-python.tar.gz", "cifar100": "cifar-100-python.tar.gz"}
BATCH = "cifar-10-batches-py/data_batch_3"


@pytest.mark.parametrize("name", ["cifar10", "cifar100"])
def test_batches_as_python_2_pickled_them_are_read_from_the_folder_and_from_the_archive(
    tmp_path: Path, name: str
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "archive").mkdir()
    write_files(tmp_path / "folder", FILES[name])
    write_archive(tmp_path / "archive" / ARCHIVES[name], FILES[name])
    for place in ("folder", "archive"):
        dataset = load_dataset(name, tmp_path / place)
        assert same(dataset, DATA[name])
        assert dataset.x_train.flags.c_contiguous
        entry = next(entry for entry in catalogue(tmp_path / place) if entry.name == name)
        assert (entry.n_train, entry.n_test) == (len(DATA[name].y_train), len(DATA[name].y_test))
    assert [path.name for path in (tmp_path / "archive").iterdir()] == [ARCHIVES[name]]


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("order", ["C", "F"])
def test_arrays_pickled_by_any_python_come_out_as_they_went_in(protocol: int, order: str) -> None:
    for kind in ("u1", "<i8", ">f4"):
        array = np.arange(12).reshape(3, 4).astype(kind, order=order)  # type: ignore[call-overload]
        loaded = load_plain(pickle.dumps({"a": array, "b": [1, (2.5, "x", None, True)]}, protocol))
        assert isinstance(loaded, dict)
        assert isinstance(loaded["a"], PickledArray)
        assert loaded["a"].value is not None
        assert np.array_equal(loaded["a"].value, array)
        assert loaded["b"] == [1, (2.5, "x", None, True)]


class Command:
    """Runs a command when it is unpickled by anybody who trusts it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, (f"touch {self.path}",)


def hostile(tmp_path: Path) -> dict[str, bytes]:
    array = pickle.dumps(np.zeros(3, dtype=np.uint8), 2)
    reconstruct = b"\x80\x02cnumpy.core.multiarray\n_reconstruct\n"
    return {
        "command": pickle.dumps({"data": Command(tmp_path / "harm")}),
        "evaluation": b"cbuiltins\neval\n(S'1+1'\ntR.",
        "import": b"cimportlib\nimport_module\n(S'os'\ntR.",
        "numpy loader": b"cnumpy\nload\n(S'x'\ntR.",
        "another codec": b"c_codecs\ndecode\n(S'x'\ntR.",
        "dotted name": b"\x80\x04\x8c\x05numpy\x8c\x0dndarray.dumps\x93.",
        "called type": b"\x80\x02cnumpy\nndarray\nJ\xff\xff\xff\x7f\x85R.",
        "changed maker": reconstruct + b"N}U\x0d__kwdefaults__}s\x86b.",
        "memo of 32 gigabytes": b"\x80\x02K\x00r\xff\xff\xff\x7f.",
        "long string": b"\x80\x02T\xff\xff\xff\x7fabc.",
        "objects": pickle.dumps(np.array([{}, []], dtype=object), 2),
        "wrong shape": array.replace(b"K\x03\x85", b"K\x04\x85"),
        "huge shape": array.replace(b"K\x03\x85", b"J\xff\xff\xff\x7f\x85"),
        "no tuple": reconstruct + b"N\x85R]b.",
        "persistent": b"P1\n.",
        "nothing": b"",
        "no end": array[:-1],
    }


@pytest.mark.parametrize("kind", hostile(Path()))
def test_a_hostile_pickle_is_refused_by_name_and_does_nothing(tmp_path: Path, kind: str) -> None:
    files = {**FILES["cifar10"], BATCH: hostile(tmp_path)[kind]}
    write_files(tmp_path, files)
    with pytest.raises(DataError) as caught:
        load_dataset("cifar10", tmp_path)
    assert BATCH in str(caught.value)
    assert not (tmp_path / "harm").exists()
    write_files(tmp_path, FILES["cifar10"])
    assert same(load_dataset("cifar10", tmp_path), DATA["cifar10"])


def test_a_refused_name_is_in_the_message(tmp_path: Path) -> None:
    write_files(tmp_path, {**FILES["cifar10"], BATCH: hostile(tmp_path)["command"]})
    with pytest.raises(DataError, match=r"data_batch_3: needs \w+\.system.*it was not executed"):
        load_dataset("cifar10", tmp_path)


def pickled(**changes: object) -> bytes:
    contents = {"data": np.zeros((2, 3072), dtype=np.uint8), "labels": [0, 1], **changes}
    return pickle.dumps({key: value for key, value in contents.items() if value is not None}, 2)


@pytest.mark.parametrize(
    ("contents", "reason"),
    [
        (pickle.dumps([1, 2]), "contains no dictionary"),
        (pickled(data=None), r"expected 'data' of shape \(n, 3072\) of uint8, got no array"),
        (pickled(data=np.zeros((2, 3000), dtype=np.uint8)), r"got shape \(2, 3000\) of uint8"),
        (pickled(data=np.zeros((2, 3072), dtype=np.int64)), r"got shape \(2, 3072\) of int64"),
        (pickled(labels=None), "has no 'labels', only data"),
        (pickled(labels=[1]), r"labels of shape \(1,\) for 2 samples"),
        (pickled(labels=[1, 10]), r"labels must lie in 0..9, got 1..10"),
        (pickled(labels=["a", "b"]), "has no 'labels'"),
        (FILES["cifar10"][BATCH][:-100], "cannot be read as a CIFAR batch"),
        (b"not a pickle", "cannot be read as a CIFAR batch"),
    ],
)
def test_damaged_batches_are_refused_by_name(tmp_path: Path, contents: bytes, reason: str) -> None:
    files = {**FILES["cifar10"], BATCH: contents}
    write_files(tmp_path, files)
    (tmp_path / "archive").mkdir()
    write_archive(tmp_path / "archive" / ARCHIVES["cifar10"], files)
    for place in (tmp_path, tmp_path / "archive"):
        with pytest.raises(DataError, match=reason) as caught:
            load_dataset("cifar10", place)
        assert BATCH in str(caught.value)


def test_keys_may_be_bytes(tmp_path: Path) -> None:
    data = DATA["cifar10"]
    pixels = data.x_train[:6].transpose(0, 3, 1, 2).reshape(6, -1)
    batch = pickle.dumps({b"data": pixels, b"labels": [int(label) for label in data.y_train[:6]]})
    write_files(tmp_path, {**FILES["cifar10"], "cifar-10-batches-py/data_batch_1": batch})
    assert same(load_dataset("cifar10", tmp_path), data)


def test_damaged_archives_are_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / ARCHIVES["cifar10"]
    write_archive(path, FILES["cifar10"])
    content = path.read_bytes()
    lacking = {name: contents for name, contents in FILES["cifar10"].items() if name != BATCH}
    link = tarfile.TarInfo(BATCH)
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/hostname"
    linked = io.BytesIO()
    with tarfile.open(fileobj=linked, mode="w:gz") as archive:
        archive.addfile(link)
    write_archive(path, lacking)
    for contents, reason in (
        (path.read_bytes(), f"lacks {BATCH}"),
        (content[:-8] + b"\x00\x00\x00\x00" + content[-4:], "cannot be read as a gzipped tar archive: CRC"),
        (content[: len(content) // 2], "cannot be read as a gzipped tar archive"),
        (b"no archive", "cannot be read as a gzipped tar archive"),
        (gzip.compress(b"no tar" * 1000), "cannot be read as a gzipped tar archive"),
        (linked.getvalue(), f"{BATCH} is not a file in the archive"),
        (gzip.compress(_declaring(1 << 40)), "in one piece|cannot contain them|cannot be read"),
        (gzip.compress(_declaring(1 << 20)), "cannot contain them|cannot be read"),
    ):
        path.write_bytes(contents)
        with pytest.raises(DataError, match=reason) as caught:
            load_dataset("cifar10", tmp_path)
        assert str(path) in str(caught.value)


def _declaring(size: int) -> bytes:
    """A tar archive with one member, whose header declares a size that it does not have."""
    member = tarfile.TarInfo(BATCH)
    member.size = size
    return member.tobuf(tarfile.GNU_FORMAT) + bytes(2048)


def test_members_with_paths_outside_are_not_read(tmp_path: Path) -> None:
    path = tmp_path / "data" / ARCHIVES["cifar10"]
    path.parent.mkdir()
    write_archive(path, {"../outside": b"harm", "/tmp/outside": b"harm", **FILES["cifar10"]})
    assert same(load_dataset("cifar10", path.parent), DATA["cifar10"])
    assert not (tmp_path / "outside").exists()


def test_the_memo_of_a_true_batch_is_within_bounds() -> None:
    assert isinstance(load_plain(FILES["cifar100"]["cifar-100-python/train"]), dict)
    with pytest.raises(DataError, match="memo"):
        load_plain(b"\x80\x02K\x00r" + struct.pack("<I", 5) + b".")
