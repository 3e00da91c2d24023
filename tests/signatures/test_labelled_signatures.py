"""Signatures with classes: what is in their files, and what is refused."""

import hashlib
import hmac
import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pacfl.errors import DataError, SignatureError
from pacfl.features.reading import Samples
from pacfl.signatures import Reading, sigfile, sign_file
from pacfl.signatures.commands import FewSamplesWarning
from pacfl.signatures.keys import key_id, read_key
from pacfl.signatures.labels import class_names
from pacfl.signatures.sigfile import DIGEST_BYTES, PREFIX, SignatureFile
from pacfl.signatures.signing import sign
from pacfl.subspace.classes import RANK, SPLITS
from tests.signatures.labelled import CLASSES, FEATURES, samples
from tests.signatures.test_sigfile import forged


def signed(**how: Any) -> SignatureFile:
    return sign("a client", Samples(*samples(0)), 3, Reading(labels="y", **how))


def parts(path: Path) -> tuple[dict[str, Any], bytes, bytes]:
    """Header, basis and classes of a file."""
    content = path.read_bytes()
    start = PREFIX.size + PREFIX.unpack(content[: PREFIX.size])[2]
    end = start + 4 * FEATURES * 3
    return json.loads(content[PREFIX.size : start]), content[start:end], content[end:-DIGEST_BYTES]


def test_a_labelled_signature_is_read_as_it_was_signed(tmp_path: Path) -> None:
    """Directions are rounded to float16 when they are signed, so that files change nothing."""
    written = signed()
    sigfile.write(tmp_path / "a.sig", written)
    read = sigfile.read(tmp_path / "a.sig")
    assert written.classes is not None
    assert read.classes is not None
    assert read.contents() == written.contents()
    assert read.classes.names == ("0", "1", "2", "3")
    assert read.classes.counts.tolist() == [30] * CLASSES
    assert np.array_equal(read.classes.directions, written.classes.directions)
    assert np.array_equal(read.classes.split_half_angles, written.classes.split_half_angles)
    assert np.allclose(np.linalg.norm(read.classes.directions, axis=1), 1, atol=1e-12)


def test_the_basis_is_the_same_with_and_without_labels() -> None:
    plain = sign("a client", Samples(samples(0)[0]), 3, Reading())
    assert np.array_equal(plain.basis, signed().basis)
    assert plain.contents()["self_angles"] == signed().contents()["self_angles"]
    assert (plain.settings.labels, signed().settings.labels) == ("none", "plain names")


def test_digits_of_ten_classes_take_less_than_64_kilobytes(tmp_path: Path) -> None:
    """784 × 3 × 4 bytes of basis, 784 × 2 × 10 × 2 of directions and 2 × 10 × 16 × 4 of angles are 42,048."""
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(10), 60)
    x = np.clip(rng.normal(100, 60, (10, 784))[y] + rng.normal(0, 50, (600, 784)), 0, 255).astype(np.uint8)
    made = sign("digits", Samples(x.reshape(-1, 28, 28), y), 3, Reading(labels="y"))
    size = sigfile.write(tmp_path / "a.sig", made)
    assert 42_048 < size < 64_000


def test_files_of_version_1_are_read(tmp_path: Path) -> None:
    """They have no fields of version 2; what they have under these names means nothing."""
    made = sign("a client", Samples(samples(0)[0]), 3, Reading())
    header = {key: value for key, value in made.contents().items() if key not in sigfile.LATER}
    body = made.basis.tobytes(order="F")
    for extra in ({}, {"classes": 7, "key": 3, "columns": "many"}):
        read = sigfile.read(forged(tmp_path / "a.sig", header | extra, body, version=1))
        assert read.contents() == made.contents()
        assert read.classes is None


def test_fields_for_later_are_read_and_compared_where_they_matter(tmp_path: Path) -> None:
    later = {"columns": [f"c{i}" for i in range(FEATURES)], "schema": "a" * 64, "encoder": "0" * 64, "sketch": "none"}
    sigfile.write(tmp_path / "a.sig", signed())
    header, basis, classes = parts(tmp_path / "a.sig")
    read = sigfile.read(forged(tmp_path / "b.sig", header | later, basis + classes, version=2))
    assert {key: read.contents()[key] for key in later} == later
    assert (read.settings.encoder, read.settings.sketch) == ("0" * 64, "none")


def changed(key: str, value: Any) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda header: {**header, key: value}


def in_classes(key: str, value: Any) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda header: {**header, "classes": {**header["classes"], key: value}}


HEADERS: dict[str, tuple[Callable[[dict[str, Any]], dict[str, Any]], str]] = {
    "classes a list": (changed("classes", [1]), "not rank, splits, names and counts"),
    "classes without counts": (changed("classes", {"rank": 2, "splits": 16, "names": []}), "not rank, splits"),
    "classes left out": (changed("classes", None), "cut short or damaged"),
    "more names": (in_classes("names", list("01234")), "not one integer"),
    "names not sorted": (in_classes("names", list("1023")), "distinct texts in order"),
    "a name twice": (in_classes("names", list("0012")), "distinct texts in order"),
    "a name not text": (in_classes("names", [0, 1, 2, 3]), "distinct texts"),
    "an empty name": (in_classes("names", ["", "1", "2", "3"]), "distinct texts"),
    "a name that moves the cursor": (in_classes("names", ["\x1b[2J", "1", "2", "3"]), "distinct texts"),
    "a name that is no character": (in_classes("names", ["0", "1", "2", "\ud800"]), "distinct texts"),
    "a long name": (in_classes("names", ["0" * 201, "1", "2", "3"]), "distinct texts"),
    "names a text": (in_classes("names", "0123"), "not a list of at most"),
    "too many names": (in_classes("names", [f"{i:05}" for i in range(5000)]), "not a list of at most 4096"),
    "a count of 0": (in_classes("counts", [30, 30, 30, 0]), "at least 4"),
    "a count of 3": (in_classes("counts", [30, 30, 30, 3]), "at least 4"),
    "a negative count": (in_classes("counts", [30, 30, 30, -30]), "at least 4"),
    "a count with a fraction": (in_classes("counts", [30, 30, 30, 30.5]), "at least 4"),
    "a count that is true": (in_classes("counts", [30, 30, 30, True]), "at least 4"),
    "an absurd count": (in_classes("counts", [30, 30, 30, 1 << 60]), "at least 4"),
    "more samples than there are": (
        in_classes("counts", [30, 30, 30, 31]),
        "121 samples in its classes and 120 in all",
    ),
    "another rank": (in_classes("rank", 3), "use matching releases"),
    "other splits": (in_classes("splits", "16"), "use matching releases"),
    "per class as well": (changed("per_class", True), "beside a decomposition per class"),
    "private as well": (
        changed("privacy", {"epsilon": 1.0, "delta": 1e-5, "reduction": "none"}),
        "second directions of classes beside a guarantee",
    ),
    "columns of another number": (changed("columns", ["a"]), "not a list of 20 names"),
    "columns not text": (changed("columns", [1] * FEATURES), "printable"),
    "long columns": (changed("columns", ["a" * 201] * FEATURES), "up to 200 printable"),
    "a key of another length": (changed("key", "abc"), "key that is not 16 hexadecimal digits"),
    "a key in capitals": (changed("key", "A" * 16), "hexadecimal"),
    "a key not text": (changed("key", 5), "hexadecimal"),
    "a schema not hexadecimal": (changed("schema", "x" * 64), "schema that is not 64"),
    "an encoder not text": (changed("encoder", {}), "encoder that is not 64"),
    "a long sketch": (changed("sketch", "s" * 201), "sketch"),
    "a sketch not text": (changed("sketch", 1.0), "sketch"),
}


@pytest.mark.parametrize("name", HEADERS)
def test_a_hostile_header_of_classes_is_refused(name: str, tmp_path: Path) -> None:
    change, why = HEADERS[name]
    sigfile.write(tmp_path / "a.sig", signed())
    header, basis, classes = parts(tmp_path / "a.sig")
    with pytest.raises(SignatureError, match=why):
        sigfile.read(forged(tmp_path / "b.sig", change(header), basis + classes, version=2))


def test_classes_that_would_fill_memory_are_refused_by_the_header(tmp_path: Path) -> None:
    sigfile.write(tmp_path / "a.sig", signed())
    header, _, _ = parts(tmp_path / "a.sig")
    names = [f"{i:04}" for i in range(4096)]
    many = {"rank": RANK, "splits": SPLITS, "names": names, "counts": [4] * 4096}
    hostile = {**header, "features": 1 << 24, "directions": 1, "classes": many}
    with pytest.raises(SignatureError, match="4096 classes in 16777216 features, which no signature has"):
        sigfile.read(forged(tmp_path / "b.sig", hostile, b"", version=2))


def of_directions(change: Callable[[np.ndarray], None]) -> Callable[[np.ndarray, np.ndarray], None]:
    return lambda directions, _: change(directions)


def of_angles(change: Callable[[np.ndarray], None]) -> Callable[[np.ndarray, np.ndarray], None]:
    return lambda _, angles: change(angles)


NUMBERS: dict[str, tuple[Callable[[np.ndarray, np.ndarray], None], str]] = {
    "NaN": (of_directions(lambda d: d.fill(np.nan)), "NaN or infinity in directions"),
    "infinity": (of_directions(lambda d: d.put(0, np.inf)), "NaN or infinity in directions"),
    "too long": (of_directions(lambda d: d.__imul__(np.float16(1.01))), "length 1"),
    "no first direction": (of_directions(lambda d: d[0].fill(0)), "length 1"),
    "twice the same direction": (of_directions(lambda d: d.__setitem__(1, d[0])), "not orthogonal"),
    "angle NaN": (of_angles(lambda a: a.put(3, np.nan)), "not 0 to 90 degrees"),
    "angle negative": (of_angles(lambda a: a.put(3, -1e-3)), "not 0 to 90 degrees"),
    "angle beyond 90": (of_angles(lambda a: a.put(3, 90.01)), "not 0 to 90 degrees"),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_hostile_numbers_of_classes_are_refused(name: str, tmp_path: Path) -> None:
    change, why = NUMBERS[name]
    sigfile.write(tmp_path / "a.sig", signed())
    header, basis, classes = parts(tmp_path / "a.sig")
    n = RANK * CLASSES * FEATURES
    directions = np.frombuffer(classes, "<f2", count=n).reshape(RANK, CLASSES, FEATURES).copy()
    angles = np.frombuffer(classes, "<f4", offset=2 * n).copy()
    change(directions, angles)
    with pytest.raises(SignatureError, match=why):
        sigfile.read(forged(tmp_path / "b.sig", header, basis + directions.tobytes() + angles.tobytes(), version=2))


def test_a_class_may_lack_its_second_direction(tmp_path: Path) -> None:
    """All samples of a class are equal: they span one direction."""
    x = np.vstack([np.tile(np.arange(1.0, 7), (5, 1)), np.random.default_rng(0).normal(size=(9, 6))])
    made = sign("a client", Samples(x, np.repeat(["same", "other"], [5, 9])), 2, Reading(labels="y"))
    sigfile.write(tmp_path / "a.sig", made)
    read = sigfile.read(tmp_path / "a.sig").classes
    assert read is not None
    assert np.linalg.norm(read.directions, axis=1)[:, read.names.index("same")].tolist() == pytest.approx([1, 0])


@pytest.mark.parametrize(
    ("labels", "wanted"),
    [
        (np.array([3.0, 10.0]), ["3", "10"]),
        (np.array([3, 10], dtype=np.uint8), ["3", "10"]),
        (["3 ", " 10"], ["3", "10"]),
        (np.array(["a", 7], dtype=object), ["a", "7"]),
        (np.array([b"a", b"b"]), ["a", "b"]),
        ([True, False], ["True", "False"]),
    ],
    ids=str,
)
def test_classes_have_the_same_names_wherever_they_are_read(labels: Any, wanted: list[str]) -> None:
    assert class_names(labels, 2).tolist() == wanted


@pytest.mark.parametrize(
    ("labels", "why"),
    [
        ([0.5, 1.0], "got 0.5: values are not classes"),
        ([np.nan, 1.0], "NaN or infinite"),
        (["a", ""], "labels are empty"),
        (np.array(["a", None], dtype=object), "labels are missing"),
        (np.array(["a", float("nan")], dtype=object), "labels are missing"),
        (["a", "b\tc"], "printable characters"),
        (["a", "b" * 201], "up to 200"),
        ([[1], [2]], r"one per sample, got shape \(2, 1\) for 2 samples"),
        ([1, 2, 3], r"got shape \(3,\) for 2 samples"),
    ],
    ids=str,
)
def test_labels_that_name_no_classes_are_refused(labels: Any, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        class_names(labels, 2)


KEY = b"0123456789abcdef"


@pytest.fixture
def key(tmp_path: Path) -> Path:
    (tmp_path / "key").write_bytes(KEY + b"\n")
    return tmp_path / "key"


def test_hashed_names_are_keyed_and_sorted_by_hash(key: Path) -> None:
    """HMAC-SHA256 by the standard library, its first 64 bits; each class has its own numbers still."""
    plain, hashed = signed(), signed(hash_labels=key)
    assert plain.classes is not None
    assert hashed.classes is not None
    for name, k in zip(plain.classes.names, range(CLASSES), strict=True):
        wanted = hmac.new(KEY, b"pacfl class\0" + name.encode(), hashlib.sha256).hexdigest()[:16]
        at = hashed.classes.names.index(wanted)
        assert np.array_equal(hashed.classes.directions[:, :, at], plain.classes.directions[:, :, k])
        assert np.array_equal(hashed.classes.split_half_angles[:, at], plain.classes.split_half_angles[:, k])
    assert list(hashed.classes.names) == sorted(hashed.classes.names)
    assert hashed.key == key_id(KEY)
    assert hashed.settings.labels == f"names hashed with key {key_id(KEY)}"


@pytest.mark.parametrize("content", [b"", b"short", b" " * 40, b"x" * 70_000])
def test_a_key_that_is_none_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "key").write_bytes(content)
    with pytest.raises(DataError, match="a key has 16 to 65536 bytes"):
        read_key(tmp_path / "key")
    with pytest.raises(DataError, match="the key cannot be read"):
        read_key(tmp_path / "none")


def test_classes_below_the_minimum_count_are_left_out() -> None:
    x, y = samples(0, counts=(30, 12, 5, 3))
    for minimum, wanted in ((None, "012"), (4, "012"), (6, "01"), (13, "0"), (31, "")):
        made = sign("a client", Samples(x, y), 3, Reading(labels="y", minimum_count=minimum)).classes
        assert made is not None
        assert made.names == tuple(wanted)


@pytest.mark.parametrize(
    ("how", "why"),
    [
        (Reading(labels="y", per_class="y"), "give one of them"),
        (Reading(hash_labels=Path("key")), "--hash-labels applies to classes"),
        (Reading(minimum_count=5), "--minimum-count applies to classes"),
        (Reading(labels="y", minimum_count=3), "--minimum-count must be at least 4, got 3"),
    ],
    ids=str,
)
def test_options_that_do_not_go_together_are_refused(how: Reading, why: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=why):
        sign_file(tmp_path / "x.npz", tmp_path / "a.sig", reading=how)


def test_labels_come_from_arrays_columns_files_and_folders(tmp_path: Path) -> None:
    x, y = samples(0)
    np.savez(tmp_path / "a.npz", x=x, y=y)
    np.save(tmp_path / "a.npy", x)
    np.save(tmp_path / "y.npy", y)
    columns = [f"c{i}" for i in range(FEATURES)]
    rows = [",".join([*map(repr, row), f"{label}"]) for row, label in zip(x.tolist(), y.tolist(), strict=True)]
    (tmp_path / "a.csv").write_text("\n".join([",".join([*columns, "y"]), *rows]))
    wanted = signed()
    for name, where in (("a.npz", "y"), ("a.npy", str(tmp_path / "y.npy")), ("a.csv", "y")):
        made = sign_file(tmp_path / name, tmp_path / "a.sig", reading=Reading(labels=where))
        assert made.classes is not None
        assert wanted.classes is not None
        assert made.classes.names == wanted.classes.names
        assert np.array_equal(made.classes.directions, wanted.classes.directions)
        assert made.columns == (tuple(columns) if name == "a.csv" else None)


def test_folders_of_images_are_classes(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image", reason="an extra")
    rng = np.random.default_rng(0)
    for name in ("cats", "dogs"):
        (tmp_path / "images" / name).mkdir(parents=True)
        for i in range(6):
            image.fromarray(rng.integers(0, 255, (4, 4, 3)).astype(np.uint8)).save(tmp_path / f"images/{name}/{i}.png")
    how = Reading(labels="folders")
    with pytest.warns(FewSamplesWarning):
        made = sign_file(tmp_path / "images", tmp_path / "a.sig", reading=how).classes
    assert made is not None
    assert (made.names, made.counts.tolist()) == (("cats", "dogs"), [6, 6])
    with pytest.raises(DataError, match="use --labels folders"):
        sign_file(tmp_path / "images", tmp_path / "a.sig", reading=Reading(labels="y"))


def test_names_of_columns_are_stored_on_one_line(tmp_path: Path) -> None:
    """A column of a CSV may be named over two lines; without a header columns have no names."""
    (tmp_path / "a.csv").write_text('"weight  (kg)",größe,' + "z" * 300 + "\n" + "1,2,3\n4,5,7\n" * 20)
    made = sign_file(tmp_path / "a.csv", tmp_path / "a.sig", rank=1)
    assert sigfile.read(tmp_path / "a.sig").columns == made.columns == ("weight (kg)", "größe", "z" * 200)
    (tmp_path / "b.csv").write_text("1.5,2,3\n4,5,7\n" * 20)
    assert sign_file(tmp_path / "b.csv", tmp_path / "b.sig", rank=1).columns is None


def test_small_classes_are_warned_of(tmp_path: Path) -> None:
    x, y = samples(0, counts=(30, 25, 9, 5))
    np.savez(tmp_path / "a.npz", x=x, y=y)
    few = r"2 of 4 classes have fewer than 20 samples, class 3 has 5: .* --minimum-count 20"
    with pytest.warns(FewSamplesWarning, match=few):
        sign_file(tmp_path / "a.npz", tmp_path / "a.sig", reading=Reading(labels="y"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sign_file(tmp_path / "a.npz", tmp_path / "a.sig", reading=Reading(labels="y", minimum_count=20))
