"""Signature files: what a client shares instead of its data.

    PACFLSIG | version, 2 bytes | header length, 4 bytes | header, JSON | basis, float32, by columns | classes
             | columns of a table | SHA-256 of it all

Classes, of labelled data only: directions, float16, (rank, classes, features), then split-half angles, float32, (rank,
classes, splits). Columns, of tables signed with a schema only: means and variances of angles, float32, (classes, 2, 2,
columns). All numbers little-endian. The header describes the rest; nothing in the file is executed or
unpickled. Version 1 had no classes and none of the fields from `classes` on. Version 3 is that of keyed directions,
which earlier releases would compare with others.
"""

import hashlib
import json
import math
import re
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
from pacfl.signatures import column_arrays
from pacfl.signatures.class_arrays import check_names, restored, shapes, stored
from pacfl.signatures.keys import HASH_CHARACTERS
from pacfl.signatures.labels import MOST_NAME
from pacfl.subspace import MEASURES, ClassSignatures
from pacfl.subspace.classes import RANK, SPLITS
from pacfl.subspace.columns import ColumnAngles
from pacfl.subspace.proximity import ORTHONORMAL_WITHIN
from pacfl.subspace.split_half import SplitHalfAngles

MAGIC: Final = b"PACFLSIG"
VERSION: Final = 2
KEYED_VERSION: Final = 3
READABLE: Final = (1, 2, 3)
NAMES, DIRECTIONS = "names", "directions"  # what a key may be used for
PREFIX: Final = struct.Struct("<8sHI")
DIGEST_BYTES: Final = 32
MOST_HEADER_BYTES: Final = 1 << 20  # names of columns and classes are in it
MOST_FEATURES: Final = 1 << 24
MOST_DIRECTIONS: Final = 1 << 12
MOST_BASIS_BYTES: Final = 1 << 28
MOST_SPLIT_HALF_ANGLES: Final = 1024
MOST_REDUCTION: Final = 100  # characters
SHA256_CHARACTERS: Final = 64
NOT_LABELLED: Final = "none"
NOT_PRIVATE: Final = "not private"
MOST_AXES: Final = 8  # of one sample
LATER: Final = (
    "classes",
    "columns",
    "table",
    "shape",
    "key",
    "keyed",
    "schema",
    "encoder",
    "sketch",
)  # fields that version 1 did not have


@dataclass(frozen=True)
class SignatureSettings:
    """How signatures were made: those that differ in any of this cannot be compared."""

    features: int
    rank: int
    per_class: bool
    preprocess: str
    protection: str  # whether and how it was made private
    labels: str = NOT_LABELLED  # whether and how its classes are named; those without labels go with all others
    encoder: str | None = None
    sketch: str | None = None
    schema: str | None = None
    directions: str | None = None  # the key that transformed them

    @property
    def private(self) -> bool:
        """Whether they hide every sample."""
        return self.protection != NOT_PRIVATE


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
    classes: ClassSignatures | None = None  # of labelled data
    columns: tuple[str, ...] | None = None  # names of the features, where they have some
    key: str | None = None  # which key of the federation was used; None: none
    schema: str | None = None  # SHA-256 of what columns are, in hexadecimal digits
    encoder: str | None = None  # SHA-256 of what made the features of samples (pacfl.features.encoders)
    sketch: str | None = None  # how the basis was compressed; nothing writes it yet
    shape: tuple[int, ...] | None = None  # of one sample, where it has several axes, as images have
    table: ColumnAngles | None = None  # columns of a table that was signed with a schema
    keyed: tuple[str, ...] = ()  # what the key was used for: NAMES of classes, all DIRECTIONS (pacfl.privacy.keyed)

    @property
    def directions_key(self) -> str | None:
        """Which key the directions are transformed with; None: they are plain."""
        return self.key if DIRECTIONS in self.keyed else None

    @property
    def names_key(self) -> str | None:
        """Which key the names of classes are hashed with; None: they are plain."""
        return self.key if NAMES in self.keyed else None

    @property
    def settings(self) -> SignatureSettings:
        """How it was made."""
        protection = NOT_PRIVATE if self.privacy is None else f"private, reduced by {self.privacy.reduction}"
        labels = NOT_LABELLED
        if self.classes is not None:
            labels = "plain names" if self.names_key is None else f"names hashed with key {self.names_key}"
        return SignatureSettings(
            *(len(self.basis), self.rank, self.per_class, self.preprocess, protection),
            *(labels, self.encoder, self.sketch, self.schema, self.directions_key),
        )

    def contents(self) -> dict[str, Any]:
        """Everything in the file except the numbers of the basis and of the classes."""
        classes = self.classes
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
            "classes": None
            if classes is None
            else {"rank": RANK, "splits": SPLITS, "names": list(classes.names), "counts": classes.counts.tolist()},
            "columns": None if self.columns is None else list(self.columns),
            "table": None
            if self.table is None
            else {
                "classes": list(self.table.names),
                "counts": self.table.counts.tolist(),
                "zeros": column_arrays.zeros_as_json(self.table),
            },
            "shape": None if self.shape is None else list(self.shape),
            "key": self.key,
            "keyed": list(self.keyed),
            "schema": self.schema,
            "encoder": self.encoder,
            "sketch": self.sketch,
        }


def write(path: Path, signature: SignatureFile) -> int:
    """Write the file in one piece; its size in bytes."""
    header = json.dumps(signature.contents(), separators=(",", ":"), ensure_ascii=False).encode()
    if len(header) > MOST_HEADER_BYTES:
        raise SignatureError(
            f"{path}: names of columns and classes take {len(header)} bytes, at most {MOST_HEADER_BYTES} are stored; "
            "shorten them"
        )
    version = VERSION if signature.directions_key is None else KEYED_VERSION
    body = PREFIX.pack(MAGIC, version, len(header)) + header + signature.basis.astype("<f4").tobytes(order="F")
    if signature.classes is not None:
        body += b"".join(part.tobytes() for part in stored(signature.classes))
    if signature.table is not None:
        body += column_arrays.stored(signature.table).tobytes()
    return write_atomically(path, body + hashlib.sha256(body).digest())


def read(path: Path) -> SignatureFile:
    """Read and check a file that anybody may have made."""
    try:
        with path.open("rb") as file:
            size = path.stat().st_size
            header = _header(file.read(PREFIX.size), file.read(min(MOST_HEADER_BYTES + 1, size)), size)
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
    if version not in READABLE:
        known = ", ".join(map(str, READABLE))
        raise SignatureError(f"has format version {version}, this pacfl reads versions {known}; use matching releases")
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
    if version == 1:
        header = {key: value for key, value in header.items() if key not in LATER}
    n_classes = _class_count(header.get("classes"), features)
    of_classes = 2 * math.prod(shapes(n_classes, features)[0]) + 4 * math.prod(shapes(n_classes, features)[1])
    of_table = column_arrays.n_bytes(_table_classes(header.get("table"), features), features - 1)
    wanted = PREFIX.size + length + 4 * features * directions + of_classes + of_table + DIGEST_BYTES
    if size != wanted:
        raise SignatureError(f"has {size} bytes where its header promises {wanted}; it is cut short or damaged")
    header["offset"] = PREFIX.size + length
    header["keyed"] = _keyed(header, version)
    return header


def _keyed(header: dict[str, Any], version: int) -> tuple[str, ...]:
    """What the key was used for: in files that do not say it, for names."""
    has_key = _hexadecimal(header, "key", HASH_CHARACTERS) is not None
    used = header.get("keyed", [NAMES] if has_key else [])
    if used not in ([], [NAMES], [DIRECTIONS], [NAMES, DIRECTIONS]) or bool(used) != has_key:
        raise SignatureError(f"has a key for {used!r}, one for {NAMES} or {DIRECTIONS} was wanted; it is damaged")
    if (DIRECTIONS in used) != (version == KEYED_VERSION):
        raise SignatureError(f"has a key for {used!r} in format version {version}; it is damaged")
    return tuple(used)


def _class_count(table: Any, features: int) -> int:
    """How many classes the file holds; refuses impossible names before memory is taken for their directions."""
    if table is None:
        return 0
    if not isinstance(table, dict) or set(table) != {"rank", "splits", "names", "counts"}:
        raise SignatureError("has classes that are not rank, splits, names and counts; it is damaged")
    if (table["rank"], table["splits"]) != (RANK, SPLITS):
        raise SignatureError(
            f"has {table['rank']!r} directions and {table['splits']!r} split-half angles for each class, this pacfl "
            f"compares {RANK} and {SPLITS}; use matching releases"
        )
    try:
        check_names(table["names"], table["counts"])
    except ValueError as error:
        raise SignatureError(f"has {error}; it is damaged") from None
    n_classes = len(table["names"])
    if 2 * RANK * features * n_classes > MOST_BASIS_BYTES:
        raise SignatureError(f"claims {n_classes} classes in {features} features, which no signature has")
    return n_classes


def _table_classes(table: Any, features: int) -> int:
    """How many classes of a table's columns the file holds; refuses impossible ones before memory is taken."""
    if table is None:
        return 0
    if not isinstance(table, dict) or set(table) - {"zeros"} != {"classes", "counts"} or features < 2:
        raise SignatureError("has columns of a table that are not classes and counts; it is damaged")
    try:
        column_arrays.check_classes(table["classes"], table["counts"])
    except ValueError as error:
        raise SignatureError(f"has {error}; it is damaged") from None
    if column_arrays.n_bytes(len(table["classes"]), features - 1) > MOST_BASIS_BYTES:
        raise SignatureError(f"claims {len(table['classes'])} classes of {features} features, which no signature has")
    return len(table["classes"])


def _checked(content: bytes, header: dict[str, Any]) -> SignatureFile:
    body, digest = content[:-DIGEST_BYTES], content[-DIGEST_BYTES:]
    if hashlib.sha256(body).digest() != digest:
        raise SignatureError("does not match its checksum; it was damaged or changed in transfer")
    features, directions = header["features"], header["directions"]
    numbers = np.frombuffer(body, dtype="<f4", count=features * directions, offset=header["offset"])
    basis = numbers.reshape(features, directions, order="F").astype(np.float32)
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
    samples = _integer(header, "samples", 1 << 48) if privacy is None else None
    return SignatureFile(
        basis=basis,
        rank=rank,
        per_class=header["per_class"],
        preprocess=header["preprocess"],
        samples=samples,
        split_half_angles=_split_half_angles(header.get("self_angles")),
        privacy=privacy,
        classes=_classes(body, header, samples),
        columns=_columns(header.get("columns"), features),
        key=_hexadecimal(header, "key", HASH_CHARACTERS),
        schema=_hexadecimal(header, "schema", SHA256_CHARACTERS),
        encoder=_hexadecimal(header, "encoder", SHA256_CHARACTERS),
        sketch=_sketch(header.get("sketch")),
        shape=_shape(header.get("shape"), features),
        table=_table(body, header, samples),
        keyed=header["keyed"],
    )


def _classes(body: bytes, header: dict[str, Any], samples: int | None) -> ClassSignatures | None:
    table, features = header.get("classes"), header["features"]
    if table is None:
        return None
    if header["per_class"]:
        raise SignatureError("has classes beside a decomposition per class; it is damaged")
    if samples is not None and sum(table["counts"]) > samples:
        raise SignatureError(f"has {sum(table['counts'])} samples in its classes and {samples} in all; it is damaged")
    of_directions, of_angles = shapes(len(table["names"]), features)
    start = header["offset"] + 4 * features * header["directions"]
    directions = np.frombuffer(body, dtype="<f2", count=math.prod(of_directions), offset=start)
    angles = np.frombuffer(body, dtype="<f4", count=math.prod(of_angles), offset=start + directions.nbytes)
    try:
        arrays = directions.reshape(of_directions), angles.reshape(of_angles)
        if samples is None and arrays[0][1:].any():
            raise ValueError("second directions of classes beside a guarantee, which has none")
        return restored(table["names"], table["counts"], *arrays, private=samples is None)
    except ValueError as error:
        raise SignatureError(f"has {error}; it was not made by 'pacfl sign'") from None


def _table(body: bytes, header: dict[str, Any], samples: int | None) -> ColumnAngles | None:
    table = header.get("table")
    if table is None:
        return None
    shape = column_arrays.shape_of(len(table["classes"]), header["features"] - 1)
    angles = np.frombuffer(body, dtype="<f4", offset=len(body) - 4 * math.prod(shape))
    if header.get("schema") is None or samples is None or sum(table["counts"]) > samples:
        raise SignatureError("has columns of a table without a schema, or of more samples than it has; it is damaged")
    try:
        return column_arrays.restored(table["classes"], table["counts"], angles.reshape(shape), table.get("zeros"))
    except ValueError as error:
        raise SignatureError(f"has {error}; it was not made by 'pacfl sign'") from None


def _columns(listed: Any, features: int) -> tuple[str, ...] | None:
    if listed is None:
        return None
    if not isinstance(listed, list) or len(listed) != features:
        raise SignatureError(f"has columns that are not a list of {features} names; it is damaged")
    if not all(isinstance(name, str) and len(name) <= MOST_NAME and name.isprintable() for name in listed):
        raise SignatureError(f"has columns whose names are not up to {MOST_NAME} printable characters; it is damaged")
    return tuple(listed)


def _shape(listed: Any, features: int) -> tuple[int, ...] | None:
    if listed is None:
        return None
    if not isinstance(listed, list) or not 2 <= len(listed) <= MOST_AXES:
        raise SignatureError(f"has a shape that is not a list of 2 to {MOST_AXES} lengths; it is damaged")
    if not all(type(n) is int and 0 < n <= features for n in listed) or math.prod(listed) != features:
        raise SignatureError(f"has a shape whose lengths do not make {features} features; it is damaged")
    return tuple(listed)


def _hexadecimal(header: dict[str, Any], key: str, length: int) -> str | None:
    value = header.get(key)
    if value is not None and not (isinstance(value, str) and re.fullmatch(f"[0-9a-f]{{{length}}}", value)):
        raise SignatureError(f"has a {key} that is not {length} hexadecimal digits; it is damaged")
    return value


def _sketch(text: Any) -> str | None:
    if text is not None and not (isinstance(text, str) and len(text) <= MOST_NAME and text.isprintable()):
        raise SignatureError(f"has a sketch that is not up to {MOST_NAME} printable characters; it is damaged")
    return text


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
