"""Signature files, data files, and the folder of a federation, damaged or forged."""

import csv
import hashlib
import io
import json
import struct
import warnings
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pacfl.errors import DataError, SignatureError
from pacfl.features.reading import Reading, Samples, read
from pacfl.signatures import cluster_files, sigfile, sign_file
from pacfl.signatures import federation as federations
from pacfl.signatures import folder as folders
from pacfl.signatures.commands import FewSamplesWarning
from pacfl.signatures.federation import Federation
from pacfl.signatures.sigfile import MAGIC, PREFIX, SignatureFile
from pacfl.signatures.signing import sign
from pacfl.subspace import proximity
from tests.fuzz.damage import damaged, examples, refused_or_read, rewritten, within

often = examples(60)

RNG = np.random.default_rng(0)
X = RNG.normal(size=(30, 6)) + 2
Y = np.repeat(["a", "b", "c"], 10)
LABELLED = sign("x", Samples(X, Y), 2, Reading(labels="y"))
PIXELS = RNG.integers(0, 255, (8, 9, 3)).astype(np.uint8)


def npy(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def npz(**members: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in members.items():
            archive.writestr(f"{name}.npy", content)
    return buffer.getvalue()


@pytest.fixture(scope="module", params=["plain", "private", "labelled"])
def whole(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    folder = tmp_path_factory.mktemp("signed")
    np.savez(folder / "x.npz", x=X, y=Y)
    how = Reading(labels="y", minimum_count=5) if request.param == "labelled" else None
    epsilon = 1.0 if request.param == "private" else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FewSamplesWarning)
        sign_file(folder / "x.npz", folder / "a.sig", rank=2, reading=how, epsilon=epsilon)
    return (folder / "a.sig").read_bytes()


@often
@given(data=st.data())
def test_a_damaged_signature_is_refused_or_whole(whole: bytes, tmp_path: Path, data: st.DataObject) -> None:
    (tmp_path / "a.sig").write_bytes(data.draw(damaged(whole)))
    refused_or_read(lambda: sigfile.read(tmp_path / "a.sig"), SignatureError)


@often
@given(data=st.data())
def test_a_signature_forged_under_a_right_checksum_is_refused_or_usable(
    whole: bytes, tmp_path: Path, data: st.DataObject
) -> None:
    length = PREFIX.unpack(whole[: PREFIX.size])[2]
    header = data.draw(rewritten(json.loads(whole[PREFIX.size : PREFIX.size + length])))
    basis = whole[PREFIX.size + length : -sigfile.DIGEST_BYTES]
    text = json.dumps(header).encode()
    version = data.draw(st.sampled_from([2, 2, 2, 1]))
    body = struct.pack("<8sHI", MAGIC, version, len(text)) + text + data.draw(st.just(basis) | damaged(basis))
    (tmp_path / "a.sig").write_bytes(body + hashlib.sha256(body).digest())
    signature = refused_or_read(lambda: sigfile.read(tmp_path / "a.sig"), SignatureError)
    if signature is not None:
        json.dumps(signature.contents(), allow_nan=False)
        refused_or_read(lambda: federations.federate({"a": signature, "b": signature}, threshold=1.0), DataError)
        assert proximity([signature.basis, signature.basis]).max() < 0.1
        if signature.classes is not None:
            refused_or_read(lambda: federations.federate(dict.fromkeys("abc", signature)), DataError)


def parquet(folder: Path) -> bytes:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet as pq

    pq.write_table(pyarrow.table({"a": X[:, 0], "b": X[:, 1]}), folder / "x.parquet")
    return (folder / "x.parquet").read_bytes()


def text(folder: Path) -> bytes:
    with (folder / "x.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["a", "b", "c"], *X[:8, :3].tolist()])
    return (folder / "x.csv").read_bytes()


FILES = {
    "x.npy": lambda folder: npy(X),  # noqa: ARG005 - one form for all
    "x.npz": lambda folder: npz(x=npy(X)),  # noqa: ARG005
    "x.csv": text,
    "x.parquet": parquet,
}


@pytest.mark.parametrize("name", FILES)
@often
@given(data=st.data())
def test_damaged_data_are_refused_or_read(name: str, tmp_path: Path, data: st.DataObject) -> None:
    (tmp_path / name).write_bytes(data.draw(damaged(FILES[name](tmp_path))))
    refused_or_read(lambda: cluster_files([tmp_path / name], rank=2), DataError)


@often
@given(data=st.data())
def test_an_archive_of_damaged_arrays_is_refused_or_read(tmp_path: Path, data: st.DataObject) -> None:
    """The archive itself is whole, so that its checksums show nothing."""
    (tmp_path / "x.npz").write_bytes(npz(x=data.draw(damaged(npy(X)))))
    refused_or_read(lambda: read(tmp_path / "x.npz", Reading()), DataError)


@pytest.mark.parametrize("suffix", ["png", "jpg", "gif", "bmp", "tiff", "webp", "ppm"])
@examples(25)
@given(data=st.data())
def test_damaged_images_are_refused_or_read(suffix: str, tmp_path: Path, data: st.DataObject) -> None:
    image = pytest.importorskip("PIL.Image")
    folder = tmp_path / "images"
    folder.mkdir(exist_ok=True)
    path = folder / f"a.{suffix}"
    image.fromarray(PIXELS).save(path)
    path.write_bytes(data.draw(damaged(path.read_bytes())))
    refused_or_read(lambda: read(folder, Reading()), DataError)


def test_an_image_takes_no_more_memory_than_it_has_bytes(tmp_path: Path) -> None:
    """A chunk of a PNG that declares 134 MB: asked for them, a file takes them before it has read one."""
    image = pytest.importorskip("PIL.Image")
    image.fromarray(PIXELS).save(tmp_path / "a.png")
    whole = (tmp_path / "a.png").read_bytes()
    at = whole.index(b"IDAT") - 4
    (tmp_path / "a.png").write_bytes(whole[:at] + struct.pack(">I", 134_000_000) + whole[at + 4 :])
    refused_or_read(lambda: read(tmp_path, Reading()), DataError)


def test_an_image_that_would_fill_memory_is_refused(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    image.new("1", (10_000, 8_000)).save(tmp_path / "a.png")  # 10 kB, and 240 MB in colour
    with within(64), pytest.raises(DataError, match=r"a\.png: is 10000x8000, at most 67,108,864 pixels are read"):
        read(tmp_path, Reading())


@pytest.fixture(scope="module", params=["plain", "labelled"])
def stored(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a federation of four, one of them without labels."""
    folder = tmp_path_factory.mktemp("stored")
    plain = sign("x", Samples(X), 2, Reading())
    signature = plain if request.param == "plain" else LABELLED
    folders.save(federations.federate({**dict.fromkeys("abc", signature), "d": plain}), folder)
    return folder


def used(federation: Federation) -> None:
    """All that commands do with a federation that they have read."""
    federation.summary()
    federation.mean_angles()
    angles = {federation.clustering.measure: np.ones(3)}
    newcomer = SignatureFile(federation.bases[0], 2, False, "raw", 9, angles)
    for classes in (None, LABELLED.classes):
        one = replace(newcomer, classes=classes)
        refused_or_read(lambda one=one: federations.join(federation, {"a newcomer": one}), DataError)


@often
@given(data=st.data())
def test_a_damaged_federation_is_refused_or_usable(stored: Path, tmp_path: Path, data: st.DataObject) -> None:
    content = data.draw(damaged((stored / folders.STATE).read_bytes()))
    (tmp_path / folders.STATE).write_bytes(content)
    federation = refused_or_read(lambda: folders.load(tmp_path), DataError)
    if federation is not None:
        used(federation)


@often
@given(data=st.data())
def test_a_forged_federation_is_refused_or_usable(stored: Path, tmp_path: Path, data: st.DataObject) -> None:
    """One array of the archive is another."""
    with np.load(stored / folders.STATE) as state:
        arrays: dict[str, Any] = dict(state)
    name = data.draw(st.sampled_from(sorted(arrays)))
    if name == "settings":
        arrays[name] = np.array(json.dumps(data.draw(rewritten(json.loads(str(arrays[name]))))))
    else:
        arrays[name] = data.draw(
            st.sampled_from(
                [
                    np.zeros(0),
                    np.zeros((4, 4)),
                    np.full(6, np.nan),
                    np.ones(6),
                    np.arange(4),
                    np.arange(5.0),
                    -np.ones(4, dtype=int),
                    np.array(["a", "b", "c", "d"]),
                    np.array(["a", "a", "a", "a"]),
                    np.full((4, 6, 2), 7.0),
                    np.array(3),
                    np.full((2, 9, 6), 0.5, np.float16),
                    np.zeros((2, 9, 16), np.float32),
                    np.full((3, 6), np.inf),
                    np.zeros((3, 6)),
                    np.full((4, 3, 2), np.nan),
                    np.full((4, 3, 2), 1e-300),
                    np.full((3, 2), 1e300),
                    np.ones((3, 2)),
                    np.array([1e-300, 1e-300]),
                    np.full(9, 4),
                    arrays[name][:-1] if arrays[name].ndim else arrays[name],
                ]
            )
        )
    with (tmp_path / folders.STATE).open("wb") as file:
        np.savez(file, **arrays)
    federation = refused_or_read(lambda: folders.load(tmp_path), DataError)
    if federation is not None:
        used(federation)
