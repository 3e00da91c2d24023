import hashlib
import json
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pacfl.errors import SignatureError
from pacfl.signatures import sigfile
from pacfl.signatures.sigfile import MAGIC, PREFIX, SignatureFile
from pacfl.subspace import MEASURES, signature, split_half_angles


def example(features: int = 12, rank: int = 3) -> SignatureFile:
    x = np.random.default_rng(0).normal(size=(40, features)) + 2
    return SignatureFile(
        basis=signature(x, rank).astype(np.float32),
        rank=rank,
        per_class=False,
        preprocess="raw",
        samples=40,
        split_half_angles=split_half_angles(x, rank),
    )


def forged(path: Path, header: object, body: bytes, version: int = 1, magic: bytes = MAGIC) -> Path:
    """A file with a valid checksum and whatever else."""
    text = json.dumps(header).encode() if not isinstance(header, bytes) else header
    content = struct.pack("<8sHI", magic, version, len(text)) + text + body
    path.write_bytes(content + hashlib.sha256(content).digest())
    return path


def honest_header() -> dict[str, object]:
    return example().contents()


def basis_bytes(basis: np.ndarray | None = None) -> bytes:
    return (example().basis if basis is None else basis.astype("<f4")).tobytes(order="F")


def test_a_written_file_is_read_unchanged(tmp_path: Path) -> None:
    written = example()
    size = sigfile.write(tmp_path / "a.sig", written)
    read = sigfile.read(tmp_path / "a.sig")
    assert size == (tmp_path / "a.sig").stat().st_size
    assert np.array_equal(read.basis, written.basis)
    assert read.contents() == written.contents()
    assert set(read.split_half_angles) == set(MEASURES)


def test_a_signature_of_a_small_image_is_a_few_kilobytes(tmp_path: Path) -> None:
    """784 × 3 × 4 bytes of basis are 9,408; 4 × 32 split-half angles in text at about 8 bytes are another kilobyte."""
    assert sigfile.write(tmp_path / "a.sig", example(784)) < 12_000


def test_the_file_has_prefix_header_basis_and_digest(tmp_path: Path) -> None:
    sigfile.write(tmp_path / "a.sig", example())
    content = (tmp_path / "a.sig").read_bytes()
    _, _, length = PREFIX.unpack(content[: PREFIX.size])
    assert len(content) == PREFIX.size + length + 4 * 12 * 3 + 32


REFUSED = {
    "foreign": (lambda p: p.write_bytes(b"PK\x03\x04" + bytes(100)), "not a signature file"),
    "empty": (lambda p: p.write_bytes(b""), "not a signature file"),
    "wrong magic": (lambda p: forged(p, honest_header(), basis_bytes(), magic=b"PACFLSIX"), "not a signature file"),
    "later version": (lambda p: forged(p, honest_header(), basis_bytes(), version=9), "version 9"),
    "header not JSON": (lambda p: forged(p, b"{]", basis_bytes()), "not JSON"),
    "header not a table": (lambda p: forged(p, [1, 2], basis_bytes()), "not a table"),
    "nested header": (lambda p: forged(p, b"[" * 50_000, basis_bytes()), "not JSON"),
    "absurd features": (lambda p: forged(p, {**honest_header(), "features": 10**12}, b""), "features"),
    "absurd directions": (lambda p: forged(p, {**honest_header(), "directions": 4000}, b""), "which no signature has"),
    "features as text": (lambda p: forged(p, {**honest_header(), "features": "12"}, basis_bytes()), "features"),
    "too short": (lambda p: forged(p, honest_header(), basis_bytes()[:-4]), "cut short"),
    "too long": (lambda p: forged(p, honest_header(), basis_bytes() + b"more"), "cut short or damaged"),
    "NaN": (lambda p: forged(p, honest_header(), basis_bytes(np.full((12, 3), np.nan))), "NaN"),
    "not orthonormal": (lambda p: forged(p, honest_header(), basis_bytes(np.ones((12, 3)))), "not orthonormal"),
    "more directions than its rank": (lambda p: forged(p, {**honest_header(), "rank": 2}, basis_bytes()), "at rank 2"),
    "no samples": (lambda p: forged(p, {**honest_header(), "samples": 0}, basis_bytes()), "samples"),
    "no preprocessing": (lambda p: forged(p, {**honest_header(), "preprocess": 3}, basis_bytes()), "prepared"),
    "split-half angles not a table": (
        lambda p: forged(p, {**honest_header(), "self_angles": 1}, basis_bytes()),
        "split-half angles",
    ),
    "split-half angles not angles": (
        lambda p: forged(p, {**honest_header(), "self_angles": {"sum": [-1.0]}}, basis_bytes()),
        "not angles",
    ),
    "split-half angles NaN": (
        lambda p: forged(p, {**honest_header(), "self_angles": {"sum": [float("nan")]}}, basis_bytes()),
        "not angles",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_hostile_file_is_refused_by_name(name: str, tmp_path: Path) -> None:
    make, why = REFUSED[name]
    path = tmp_path / "bad.sig"
    make(path)
    with pytest.raises(SignatureError, match=why) as caught:
        sigfile.read(path)
    assert str(path) in str(caught.value)


def test_a_missing_file_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(SignatureError, match=r"none\.sig: cannot be read"):
        sigfile.read(tmp_path / "none.sig")


@given(position=st.integers(min_value=0, max_value=10**9), flip=st.integers(min_value=1, max_value=255))
@settings(max_examples=60)
def test_any_changed_byte_is_noticed(tmp_path_factory: pytest.TempPathFactory, position: int, flip: int) -> None:
    path = tmp_path_factory.mktemp("sig") / "a.sig"
    sigfile.write(path, example())
    content = bytearray(path.read_bytes())
    content[position % len(content)] ^= flip
    path.write_bytes(content)
    with pytest.raises(SignatureError):
        sigfile.read(path)


@given(cut=st.integers(min_value=0, max_value=10**9))
@settings(max_examples=40)
def test_any_truncation_is_noticed(tmp_path_factory: pytest.TempPathFactory, cut: int) -> None:
    path = tmp_path_factory.mktemp("sig") / "a.sig"
    sigfile.write(path, example())
    content = path.read_bytes()
    path.write_bytes(content[: cut % len(content)])
    with pytest.raises(SignatureError):
        sigfile.read(path)


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.sig"
    sigfile.write(path, example())
    before = path.read_bytes()

    def full_disk(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full_disk)
    with pytest.raises(OSError, match="No space left"):
        sigfile.write(path, example(20))
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["a.sig"]
