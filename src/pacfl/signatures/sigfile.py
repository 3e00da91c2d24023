"""Signature files: what a client shares instead of its data.

    PACFLSIG | version, 2 bytes | header length, 4 bytes | header, JSON | basis, float32, by columns | SHA-256 of it all

All numbers little-endian. The header describes the rest; nothing in the file is executed or unpickled.
"""

import hashlib
import json
import struct
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from pacfl.errors import SignatureError
from pacfl.files import write_atomically
from pacfl.privacy import Guarantee
from pacfl.privacy.gaussian import check_budget
from pacfl.subspace import MEASURES
from pacfl.subspace.proximity import ORTHONORMAL_WITHIN
from pacfl.subspace.split_half import SplitHalfAngles

MAGIC: Final = b"PACFLSIG"
VERSION: Final = 1
PREFIX: Final = struct.Struct("<8sHI")
DIGEST_BYTES: Final = 32
MOST_HEADER_BYTES: Final = 1 << 16
MOST_FEATURES: Final = 1 << 24
MOST_DIRECTIONS: Final = 1 << 12
MOST_BASIS_BYTES: Final = 1 << 28
MOST_SPLIT_HALF_ANGLES: Final = 1024
MOST_REDUCTION: Final = 100  # characters


@dataclass(frozen=True)
class SignatureSettings:
    """How signatures were made: those that differ in any of this cannot be compared."""

    features: int
    rank: int
    per_class: bool
    preprocess: str
    protection: str  # whether and how it was made private


@dataclass(frozen=True, eq=False)
class SignatureFile:
    """A signature and what must be known to compare it."""

    basis: NDArray[np.float32]  # (features, directions), orthonormal
    rank: int  # as requested; directions may be fewer, or more if per class
    per_class: bool
    preprocess: str
    samples: int | None  # None where even their number is private
    split_half_angles: SplitHalfAngles = field(default_factory=dict)
    privacy: Guarantee | None = None

    @property
    def settings(self) -> SignatureSettings:
        """How it was made."""
        protection = "not private" if self.privacy is None else f"private, reduced by {self.privacy.reduction}"
        return SignatureSettings(len(self.basis), self.rank, self.per_class, self.preprocess, protection)

    def contents(self) -> dict[str, Any]:
        """Everything in the file except the numbers of the basis."""
        return {
            "features": int(self.basis.shape[0]),
            "directions": int(self.basis.shape[1]),
            "rank": self.rank,
            "per_class": self.per_class,
            "preprocess": self.preprocess,
            "samples": self.samples,
            "privacy": None if self.privacy is None else asdict(self.privacy),
            "self_angles": {
                measure: [float(f"{a:.6g}") for a in angles] for measure, angles in self.split_half_angles.items()
            },
        }


def write(path: Path, signature: SignatureFile) -> int:
    """Write the file in one piece; its size in bytes."""
    header = json.dumps(signature.contents(), separators=(",", ":")).encode()
    body = PREFIX.pack(MAGIC, VERSION, len(header)) + header + signature.basis.astype("<f4").tobytes(order="F")
    return write_atomically(path, body + hashlib.sha256(body).digest())


def read(path: Path) -> SignatureFile:
    """Read and check a file that anybody may have made."""
    try:
        with path.open("rb") as file:
            size = path.stat().st_size
            header = _header(file.read(PREFIX.size), file.read(MOST_HEADER_BYTES + 1), size)
            file.seek(0)
            content = file.read(size)
        return _checked(content, header)
    except OSError as error:
        raise SignatureError(f"{path}: cannot be read: {error.strerror or error}") from None
    except SignatureError as error:
        raise SignatureError(f"{path}: {error}") from None


def _header(prefix: bytes, following: bytes, size: int) -> dict[str, Any]:
    if len(prefix) < PREFIX.size or not prefix.startswith(MAGIC):
        raise SignatureError("is not a signature file; make one with 'pacfl sign DATA -o NAME.sig'")
    _, version, length = PREFIX.unpack(prefix)
    if version != VERSION:
        raise SignatureError(f"has format version {version}, this pacfl reads version {VERSION}; use matching releases")
    if length > MOST_HEADER_BYTES or length > len(following):
        raise SignatureError("has a header longer than itself; it is damaged or cut short")
    try:
        header = json.loads(following[:length])
    except (ValueError, RecursionError):
        raise SignatureError("has a header that is not JSON; it is damaged") from None
    if not isinstance(header, dict):
        raise SignatureError("has a header that is not a table; it is damaged")
    features = _integer(header, "features", MOST_FEATURES)
    directions = _integer(header, "directions", MOST_DIRECTIONS)
    if directions > features or 4 * features * directions > MOST_BASIS_BYTES:
        raise SignatureError(f"claims {directions} directions in {features} features, which no signature has")
    wanted = PREFIX.size + length + 4 * features * directions + DIGEST_BYTES
    if size != wanted:
        raise SignatureError(f"has {size} bytes where its header promises {wanted}; it is cut short or damaged")
    header["offset"] = PREFIX.size + length
    return header


def _checked(content: bytes, header: dict[str, Any]) -> SignatureFile:
    body, digest = content[:-DIGEST_BYTES], content[-DIGEST_BYTES:]
    if hashlib.sha256(body).digest() != digest:
        raise SignatureError("does not match its checksum; it was damaged or changed in transfer")
    numbers = np.frombuffer(body, dtype="<f4", offset=header["offset"])
    basis = numbers.reshape(header["features"], header["directions"], order="F").astype(np.float32)
    if not np.isfinite(basis).all():
        raise SignatureError("has NaN or infinity in its basis")
    gram = basis.T.astype(np.float64) @ basis
    if np.abs(gram - np.eye(len(gram))).max() > ORTHONORMAL_WITHIN:
        raise SignatureError("has a basis that is not orthonormal; it was not made by 'pacfl sign'")
    if not isinstance(header.get("per_class"), bool) or not isinstance(header.get("preprocess"), str):
        raise SignatureError("does not say how its data were prepared; it is damaged")
    rank = _integer(header, "rank", MOST_DIRECTIONS)
    if header["directions"] > rank and not header["per_class"]:
        raise SignatureError(f"has {header['directions']} directions at rank {rank}; it was not made by 'pacfl sign'")
    privacy = _privacy(header.get("privacy"))
    return SignatureFile(
        basis=basis,
        rank=rank,
        per_class=header["per_class"],
        preprocess=header["preprocess"],
        samples=_integer(header, "samples", 1 << 48) if privacy is None else None,
        split_half_angles=_split_half_angles(header.get("self_angles")),
        privacy=privacy,
    )


def _privacy(table: Any) -> Guarantee | None:
    if table is None:
        return None
    if not isinstance(table, dict) or set(table) != {"epsilon", "delta", "reduction"}:
        raise SignatureError("has a privacy guarantee that is not epsilon, delta and reduction; it is damaged")
    epsilon, delta, reduction = table["epsilon"], table["delta"], table["reduction"]
    if not isinstance(epsilon, float) or not isinstance(delta, float) or not isinstance(reduction, str):
        raise SignatureError("has a privacy guarantee that is not two numbers and a text; it is damaged")
    try:
        check_budget(epsilon, delta)
    except ValueError as error:
        raise SignatureError(f"has an impossible privacy guarantee: {error}") from None
    return Guarantee(epsilon, delta, reduction[:MOST_REDUCTION])


def _split_half_angles(table: Any) -> SplitHalfAngles:
    if not isinstance(table, dict) or not set(table) <= set(MEASURES):
        raise SignatureError("has split-half angles that are not a table of measures; it is damaged")
    angles = {}
    for measure in MEASURES:
        listed = table.get(measure, [])
        if not isinstance(listed, list) or len(listed) > MOST_SPLIT_HALF_ANGLES:
            raise SignatureError(f"has split-half angles for {measure} that are not a short list; it is damaged")
        if not all(isinstance(a, int | float) and not isinstance(a, bool) for a in listed):
            raise SignatureError(f"has split-half angles for {measure} that are not numbers; it is damaged")
        array = np.asarray(listed, dtype=np.float64)
        if not (np.isfinite(array) & (array >= 0) & (array <= 90 * MOST_DIRECTIONS)).all():
            raise SignatureError(f"has split-half angles for {measure} that are not angles; it is damaged")
        angles[measure] = array
    return angles


def _integer(header: dict[str, Any], key: str, most: int) -> int:
    value = header.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
        raise SignatureError(f"has {key} = {value!r}, an integer from 1 to {most} was wanted; it is damaged")
    return value
