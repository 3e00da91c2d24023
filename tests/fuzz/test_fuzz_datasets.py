"""Data sets in their published formats, damaged."""

import bz2
import gzip
import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pacfl.data import load_dataset
from pacfl.errors import DataError
from tests.data.writing import (
    arrays,
    cifar10_files,
    usps_text,
    write_archive,
    write_files,
    write_idx,
    write_svhn,
    write_usps,
)
from tests.fuzz.damage import damaged, examples, refused_or_read

often = examples(40)

COLOUR, GREY = arrays((32, 32, 3), 10, 10), arrays((16, 16), 10, 10)


def write_npz(folder: Path) -> None:
    np.savez(folder / "own.npz", **GREY._asdict())


def write_h5(folder: Path) -> None:
    h5py = pytest.importorskip("h5py")
    with h5py.File(folder / "usps.h5", "w") as file:
        for part, x, y in (("train", GREY.x_train, GREY.y_train), ("test", GREY.x_test, GREY.y_test)):
            file[f"{part}/data"] = x.reshape(len(x), -1) / 255
            file[f"{part}/target"] = y


WRITERS: dict[str, tuple[str, Callable[[Path], None]]] = {
    "idx": ("mnist", lambda folder: write_idx(folder, GREY, zipped=False)),
    "gzipped idx": ("mnist", lambda folder: write_idx(folder, GREY, zipped=True)),
    "pickles": ("cifar10", lambda folder: write_files(folder, cifar10_files(COLOUR))),
    "archive": ("cifar10", lambda folder: write_archive(folder / "cifar-10-python.tar.gz", cifar10_files(COLOUR))),
    "MATLAB": ("svhn", lambda folder: write_svhn(folder, COLOUR)),
    "plain MATLAB": ("svhn", lambda folder: write_svhn(folder, COLOUR, compressed=False)),
    "text": ("usps", lambda folder: write_usps(folder, GREY)),
    "HDF5": ("usps", write_h5),
    "npz": ("own", write_npz),
}


@pytest.fixture(scope="module", params=WRITERS)
def written(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, bytes]]:
    """The name of a set, and its files."""
    name, write = WRITERS[request.param]
    folder = tmp_path_factory.mktemp("written")
    write(folder)
    load_dataset(name, folder)
    return name, {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def tried(name: str, files: dict[str, bytes], folder: Path) -> None:
    write_files(folder, files)
    refused_or_read(lambda: load_dataset(name, folder), DataError)


@often
@given(data=st.data())
def test_a_damaged_data_set_is_refused_or_read(
    written: tuple[str, dict[str, bytes]], tmp_path: Path, data: st.DataObject
) -> None:
    name, files = written
    path = data.draw(st.sampled_from(sorted(files)))
    tried(name, {**files, path: data.draw(damaged(files[path]))}, tmp_path)


@often
@given(data=st.data())
def test_damage_under_a_right_checksum_is_refused_or_read(tmp_path: Path, data: st.DataObject) -> None:
    """What is inside a compressed file is damaged, and compressed again."""
    header = gzip.decompress(idx_images())
    files = {"t10k-images-idx3-ubyte.gz": gzip.compress(data.draw(damaged(header)))}
    write_idx(tmp_path, GREY, zipped=True)
    tried("mnist", files, tmp_path)
    text = usps_text(GREY.x_train[:2], GREY.y_train[:2]).encode()
    write_usps(tmp_path, GREY)
    tried("usps", {"usps.bz2": bz2.compress(data.draw(damaged(text)))}, tmp_path)


def idx_images() -> bytes:
    buffer = io.BytesIO()
    with gzip.GzipFile(fileobj=buffer, mode="wb", mtime=0) as file:
        file.write(bytes((0, 0, 8, 3)) + b"".join(n.to_bytes(4, "big") for n in GREY.x_test.shape))
        file.write(GREY.x_test.tobytes())
    return buffer.getvalue()
