"""Small data sets written in the formats in which the true ones are published."""

import bz2
import gzip
import io
import struct
import tarfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Images = NDArray[Any]


class Arrays(NamedTuple):
    x_train: Images
    y_train: Images
    x_test: Images
    y_test: Images


def arrays(shape: tuple[int, ...], n_train: int = 30, n_test: int = 20, n_classes: int = 10) -> Arrays:
    """Random images; every class occurs in training and test."""
    rng = np.random.default_rng(len(shape) * 1000 + n_train)
    x = rng.integers(0, 256, (n_train + n_test, *shape)).astype(np.uint8)
    y_train, y_test = (rng.permutation(np.arange(n) % n_classes) for n in (n_train, n_test))
    return Arrays(x[:n_train], y_train, x[n_train:], y_test)


def same(dataset: Any, expected: Arrays) -> bool:
    return all(np.array_equal(getattr(dataset, name), getattr(expected, name)) for name in Arrays._fields)


def idx_bytes(array: Images) -> bytes:
    header = bytes((0, 0, 8, array.ndim)) + struct.pack(f">{array.ndim}I", *array.shape)
    return header + array.astype(np.uint8).tobytes()


def write_idx(folder: Path, data: Arrays, zipped: bool) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for part, x, y in (("train", data.x_train, data.y_train), ("t10k", data.x_test, data.y_test)):
        for name, array in ((f"{part}-images-idx3-ubyte", x), (f"{part}-labels-idx1-ubyte", y)):
            contents = idx_bytes(array)
            if zipped:
                (folder / f"{name}.gz").write_bytes(gzip.compress(contents))
            else:
                (folder / name).write_bytes(contents)


class Python2Pickle:
    """The steps by which Python 2 pickled the CIFAR batches, with its strings of bytes and its numbered memo."""

    def __init__(self) -> None:
        self.n_kept = 0

    def memoise(self) -> bytes:
        self.n_kept += 1
        return b"q" + bytes([self.n_kept]) if self.n_kept < 256 else b"r" + struct.pack("<I", self.n_kept)

    def text(self, value: bytes) -> bytes:
        size = b"U" + bytes([len(value)]) if len(value) < 256 else b"T" + struct.pack("<i", len(value))
        return size + value + self.memoise()

    def number(self, value: int) -> bytes:
        return b"J" + struct.pack("<i", value)

    def listed(self, items: list[bytes]) -> bytes:
        return b"]" + self.memoise() + b"(" + b"".join(items) + b"e"

    def names(self, n: int) -> bytes:
        return b"]" + self.memoise() + b"(" + b"".join(self.text(b"image_%d.png" % i) for i in range(n)) + b"e"

    def array(self, pixels: Images) -> bytes:
        made = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R" + self.memoise()
        shape = b"(K\x01" + b"".join(self.number(n) for n in pixels.shape) + b"\x86"
        kind = b"cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
        return made + shape + kind + b"\x89" + self.text(pixels.tobytes()) + b"tb"

    def batch(self, x: Images, y: Images, labels: bytes) -> bytes:
        pixels = np.ascontiguousarray(x.transpose(0, 3, 1, 2)).reshape(len(x), -1)
        return b"".join(
            [
                b"\x80\x02}" + self.memoise() + b"(",
                self.text(b"batch_label") + self.text(b"a batch"),
                self.text(labels) + self.listed([self.number(int(label)) for label in y]),
                self.text(b"data") + self.array(pixels),
                self.text(b"filenames") + self.names(len(x)),
                b"u.",
            ]
        )


def cifar10_files(data: Arrays) -> dict[str, bytes]:
    """File names and contents; the training set in five batches."""
    parts = np.array_split(np.arange(len(data.x_train)), 5)
    batches = {f"data_batch_{i + 1}": (data.x_train[part], data.y_train[part]) for i, part in enumerate(parts)}
    batches["test_batch"] = (data.x_test, data.y_test)
    return {f"cifar-10-batches-py/{n}": Python2Pickle().batch(x, y, b"labels") for n, (x, y) in batches.items()}


def cifar100_files(data: Arrays) -> dict[str, bytes]:
    batches = {"train": (data.x_train, data.y_train), "test": (data.x_test, data.y_test)}
    return {f"cifar-100-python/{n}": Python2Pickle().batch(x, y, b"fine_labels") for n, (x, y) in batches.items()}


def write_files(folder: Path, files: dict[str, bytes]) -> None:
    for name, contents in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(contents)


def write_archive(path: Path, files: dict[str, bytes]) -> None:
    with tarfile.open(path, "w:gz") as archive:
        for name, contents in reversed(files.items()):  # the true archives are in no order either
            member = tarfile.TarInfo(name)
            member.size = len(contents)
            archive.addfile(member, io.BytesIO(contents))


def write_svhn(folder: Path, data: Arrays, compressed: bool = True) -> None:
    from scipy.io import savemat

    for part, x, y in (("train", data.x_train, data.y_train), ("test", data.x_test, data.y_test)):
        digits = np.where(y == 0, 10, y).astype(np.uint8)[:, None]
        variables = {"X": x.transpose(1, 2, 3, 0), "y": digits}
        savemat(folder / f"{part}_32x32.mat", variables, do_compression=compressed)


def usps_text(x: Images, y: Images) -> str:
    lines = []
    for image, label in zip(x, y, strict=True):
        pixels = " ".join(f"{i + 1}:{value:.6f}" for i, value in enumerate(image.reshape(-1) / 127.5 - 1))
        lines.append(f"{label + 1} {pixels} \n")
    return "".join(lines)


def write_usps(folder: Path, data: Arrays) -> None:
    (folder / "usps.bz2").write_bytes(bz2.compress(usps_text(data.x_train, data.y_train).encode()))
    (folder / "usps.t.bz2").write_bytes(bz2.compress(usps_text(data.x_test, data.y_test).encode()))
