import sys
from pathlib import Path

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

from pacfl.errors import DataError, MissingLibraryError
from pacfl.features.reading import Reading, read

X = np.random.default_rng(0).integers(0, 256, (6, 4)).astype(np.uint8)
Y = np.array([0, 0, 1, 1, 2, 2])


def write_csv(path: Path, header: str = "", delimiter: str = ",") -> Path:
    rows = [delimiter.join(str(v) for v in row) for row in X]
    path.write_text("\n".join([*([header] if header else []), *rows]) + "\n")
    return path


def write_images(folder: Path, sizes: list[tuple[int, int]]) -> Path:
    image = pytest.importorskip("PIL.Image", reason="reading images needs Pillow")
    for i, (width, height) in enumerate(sizes):
        (folder / f"class{i % 2}").mkdir(parents=True, exist_ok=True)
        pixels = np.full((height, width, 3), i, dtype=np.uint8)
        image.fromarray(pixels).save(folder / f"class{i % 2}" / f"{i}.png")
    return folder


def test_npy_npz_csv_and_parquet_give_the_same_samples(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", X)
    np.savez(tmp_path / "a.npz", x=X, y=Y)
    write_csv(tmp_path / "a.csv")
    parquet.write_table(pyarrow.table({f"f{i}": X[:, i] for i in range(4)}), tmp_path / "a.parquet")
    for suffix in ("npy", "npz", "csv", "parquet"):
        samples, labels = read(tmp_path / f"a.{suffix}", Reading())
        assert np.array_equal(samples, X), suffix
        assert labels is None


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_a_header_and_any_common_delimiter_are_recognised(tmp_path: Path, delimiter: str) -> None:
    path = write_csv(tmp_path / "a.csv", delimiter.join("abcd"), delimiter)
    assert np.array_equal(read(path, Reading())[0], X)
    samples, labels = read(path, Reading(per_class="b", drop=("d",)))
    assert np.array_equal(samples, X[:, [0, 2]])
    assert labels is not None
    assert labels.tolist() == [str(v) for v in X[:, 1]]


def test_a_number_sign_is_text_like_any_other(tmp_path: Path) -> None:
    """It once began a comment: rows whose label or note has one were lost."""
    (tmp_path / "a.csv").write_text("a,b,label\n1,2,#1\n3,5,class #2\n4,1,#1\n")
    samples, labels = read(tmp_path / "a.csv", Reading(per_class="label"))
    assert samples.tolist() == [[1, 2], [3, 5], [4, 1]]
    assert labels is not None
    assert labels.tolist() == ["#1", "class #2", "#1"]
    (tmp_path / "b.csv").write_text("#,b\n1,2\n3,5\n")
    assert read(tmp_path / "b.csv", Reading(drop=("#",)))[0].tolist() == [[2], [5]]


@pytest.mark.parametrize("header", ["", "a,b,c,d"])
def test_a_byte_order_mark_is_skipped(tmp_path: Path, header: str) -> None:
    path = write_csv(tmp_path / "a.csv", header)
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert np.array_equal(read(path, Reading())[0], X)
    if header:
        assert np.array_equal(read(path, Reading(drop=("a",)))[0], X[:, 1:])


@pytest.mark.parametrize("header", ["2019,2020,2021,2022", "0,1,2,3", "1,2,3,4", "1990,2000,2020,2021"])
def test_a_header_of_numbers_is_neither_guessed_nor_read_as_a_sample(tmp_path: Path, header: str) -> None:
    path = write_csv(tmp_path / "a.csv", header)
    with pytest.raises(DataError, match=r"a\.csv: the first row .* --header or --no-header"):
        read(path, Reading())
    assert np.array_equal(read(path, Reading(header=True))[0], X)
    assert np.array_equal(read(path, Reading(header=True, drop=(header.split(",")[0],)))[0], X[:, 1:])
    assert np.array_equal(read(path, Reading(header=False))[0], [[float(v) for v in header.split(",")], *X])


def test_samples_of_integers_are_not_taken_for_a_header(tmp_path: Path) -> None:
    """Over many tables without a header, none is refused."""
    for seed in range(50):
        x = np.random.default_rng(seed).integers(0, 256, (20, 3))
        np.savetxt(tmp_path / "a.csv", x, fmt="%d", delimiter=",")
        assert np.array_equal(read(tmp_path / "a.csv", Reading())[0], x)


def test_quoted_cells_may_have_delimiters_and_line_ends(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('"a, in m","b",label\n"1",2,"x, y"\n3,"4","two\nlines"\n')
    samples, labels = read(tmp_path / "a.csv", Reading(per_class="label"))
    assert samples.tolist() == [[1, 2], [3, 4]]
    assert labels is not None
    assert labels.tolist() == ["x, y", "two\nlines"]
    assert read(tmp_path / "a.csv", Reading(drop=("a, in m", "label")))[0].tolist() == [[2], [4]]


def test_numbers_are_read_however_they_are_written(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a,b\n+1, 2.5\n-3e2,1E-3\n")
    assert read(tmp_path / "a.csv", Reading())[0].tolist() == [[1, 2.5], [-300, 0.001]]


def test_rows_of_any_length_are_read(tmp_path: Path) -> None:
    """A row of 2 MB is longer than the blocks that pyarrow reads by default."""
    wide = np.random.default_rng(0).normal(size=(2, 100_000)).round(14)
    np.savetxt(tmp_path / "a.csv", wide, delimiter=",", fmt="%.17g")
    assert np.array_equal(read(tmp_path / "a.csv", Reading())[0], wide)


def test_labels_are_read_from_the_given_place(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x_train=X, y_train=Y)
    np.save(tmp_path / "x.npy", X)
    np.save(tmp_path / "y.npy", Y)
    for path, where in ((tmp_path / "a.npz", "y_train"), (tmp_path / "x.npy", str(tmp_path / "y.npy"))):
        labels = read(path, Reading(per_class=where))[1]
        assert labels is not None
        assert np.array_equal(labels, Y)


def test_images_are_read_in_order_with_their_folders_as_labels(tmp_path: Path) -> None:
    folder = write_images(tmp_path / "images", [(5, 3)] * 4)
    samples, labels = read(folder, Reading(per_class="folders"))
    assert samples.shape == (4, 3, 5, 3)
    assert samples[:, 0, 0, 0].tolist() == [0, 2, 1, 3]
    assert labels is not None
    assert labels.tolist() == ["class0", "class0", "class1", "class1"]
    assert read(folder, Reading(grey=True, resize=(2, 2)))[0].shape == (4, 2, 2)


def save_image(folder: Path, pixels: np.ndarray, name: str = "a.png", **options: object) -> Path:
    image = pytest.importorskip("PIL.Image", reason="reading images needs Pillow")
    folder.mkdir(exist_ok=True)
    image.fromarray(pixels).save(folder / name, **options)
    return folder


@pytest.mark.parametrize("name", ["a.png", "a.tiff", "a.pgm"])
def test_levels_of_16_bits_are_scaled_to_8(tmp_path: Path, name: str) -> None:
    """255 = 65535 / 257: each level is divided by 257."""
    levels = np.array([[0, 257, 300], [32768, 65535, 65300]], dtype=np.uint16)
    folder = save_image(tmp_path / "images", levels, name)
    assert read(folder, Reading(grey=True))[0].tolist() == [[[0, 1, 1], [128, 255, 254]]]
    assert read(folder, Reading())[0][0, :, :, 2].tolist() == [[0, 1, 1], [128, 255, 254]]


def test_levels_of_unknown_range_are_refused(tmp_path: Path) -> None:
    folder = save_image(tmp_path / "images", np.array([[0.5, 2.0]], dtype=np.float32), "a.tiff")
    with pytest.raises(DataError, match=r"a\.tiff: has levels of 32 bits.*8 or 16 bits"):
        read(folder, Reading())


@pytest.mark.parametrize("orientation", range(1, 9))
def test_images_are_read_as_their_orientation_says(tmp_path: Path, orientation: int) -> None:
    """The eight orientations of EXIF, by what a viewer does with the stored rows and columns."""
    image = pytest.importorskip("PIL.Image", reason="reading images needs Pillow")
    stored = np.array([[10, 20, 30], [40, 50, 60]], dtype=np.uint8)
    exif = image.Exif()
    exif[0x0112] = orientation
    flip, mirror, turn = np.flipud, np.fliplr, np.transpose
    shown = {
        1: stored, 2: mirror(stored), 3: flip(mirror(stored)), 4: flip(stored),
        5: turn(stored), 6: mirror(turn(stored)), 7: flip(mirror(turn(stored))), 8: flip(turn(stored)),
    }[orientation]  # fmt: skip
    folder = save_image(tmp_path / "images", stored, exif=exif)
    assert read(folder, Reading(grey=True))[0][0].tolist() == shown.tolist()


def test_transparent_pixels_are_white(tmp_path: Path) -> None:
    """Half transparent black is the grey between black and white."""
    pixels = np.zeros((1, 3, 4), dtype=np.uint8)
    pixels[0, :, 3] = 0, 127, 255
    assert read(save_image(tmp_path / "rgba", pixels), Reading(grey=True))[0].tolist() == [[[255, 128, 0]]]
    two = np.array([[[7, 0], [7, 255]]], dtype=np.uint8)
    assert read(save_image(tmp_path / "la", two), Reading(grey=True))[0].tolist() == [[[255, 7]]]
    key = save_image(tmp_path / "key", np.array([[0, 9]], dtype=np.uint8), transparency=0)
    assert read(key, Reading(grey=True))[0].tolist() == [[[255, 9]]]


@pytest.mark.parametrize(
    ("name", "how", "why"),
    [
        ("a.npy", Reading(resize=(2, 2)), "--resize applies to folders of images only"),
        ("a.npy", Reading(grey=True), "--grey applies to folders of images only"),
        ("a.npy", Reading(array="x"), r"--array applies to \.npz files only"),
        ("a.csv", Reading(array="x"), r"--array applies to \.npz files only"),
        ("a.npz", Reading(drop=("x",)), r"--drop applies to \.csv, \.tsv, \.parquet, \.pq files only"),
        ("images", Reading(drop=("x",)), "--drop applies to"),
        ("a.parquet", Reading(header=True), r"--header applies to \.csv, \.tsv files only"),
        ("a.npy", Reading(header=False), "--header applies to"),
    ],
    ids=str,
)
def test_options_that_do_not_apply_are_refused(tmp_path: Path, name: str, how: Reading, why: str) -> None:
    path = tmp_path / name
    if path.suffix:
        path.touch()
    else:
        path.mkdir()
    with pytest.raises(DataError, match=why):
        read(path, how)


def test_normalise_gives_mean_0_and_standard_deviation_1_per_channel(tmp_path: Path) -> None:
    images = np.random.default_rng(0).integers(0, 256, (8, 5, 5, 3)).astype(np.uint8)
    images[..., 1] //= 3
    np.save(tmp_path / "a.npy", images)
    samples, _ = read(tmp_path / "a.npy", Reading(preprocess="normalise"))
    assert np.allclose(samples.mean(axis=(0, 1, 2)), 0, atol=1e-12)
    assert np.allclose(samples.std(axis=(0, 1, 2)), 1)


def test_unit_gives_samples_of_length_1_and_leaves_zeros(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.vstack([X, np.zeros((1, 4))]))
    samples, _ = read(tmp_path / "a.npy", Reading(preprocess="unit"))
    assert np.allclose(np.linalg.norm(samples, axis=1), [1, 1, 1, 1, 1, 1, 0])


@pytest.mark.parametrize(
    ("how", "identity"),
    [
        (Reading(), "raw"),
        (Reading(grey=True, preprocess="normalise"), "grey, normalise"),
        (Reading(preprocess="unit", grey=True, resize=(32, 16)), "resize 32x16, grey, unit"),
    ],
)
def test_the_identity_has_everything_that_changes_pixels(how: Reading, identity: str) -> None:
    assert how.identity() == identity
    assert Reading().prepared_as(identity) == how


@pytest.mark.parametrize("identity", ["", "unit, grey", "resize 3x, raw", "sharpen, raw"])
def test_an_unknown_identity_is_refused(identity: str) -> None:
    with pytest.raises(DataError, match="cannot be prepared"):
        Reading().prepared_as(identity)


def test_pickled_arrays_are_never_loaded(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(DataError, match="cannot be read"):
        read(tmp_path / "a.npy", Reading())


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("empty.csv", "", "empty"),
        ("words.csv", "a,b\n1,2\n2,y\n", r"a column is not all numbers: 'b' \('y' in row 3\); .*--drop.*schema"),
        ("gaps.csv", "a,b\n1,\n2,3\n", r"a column is not all numbers: 'b' \(an empty cell in row 2\)"),
        ("ragged.csv", "a,b\n1,2\n3\n", "Row #3: Expected 2 columns, got 1"),
        ("data.xyz", "1 2 3", "wanted a file of kind"),
        ("bad.npy", "no numpy", "cannot be read"),
        ("bad.npz", "no zip", "cannot be read"),
        ("bad.parquet", "no parquet", "cannot be read"),
    ],
)
def test_unreadable_files_are_refused_by_name(tmp_path: Path, name: str, text: str, why: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(DataError, match=why) as caught:
        read(tmp_path / name, Reading())
    assert name in str(caught.value)


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", one=X, two=X)
    path = write_csv(tmp_path / "a.csv", "a,b,c,d")
    (tmp_path / "none").mkdir()
    for file, how, why in (
        (tmp_path / "nowhere.npy", Reading(), "no such file"),
        (tmp_path / "a.npz", Reading(), "name one with --array"),
        (tmp_path / "a.npz", Reading(array="three"), "holds the arrays one, two"),
        (tmp_path / "a.npz", Reading(array="one", per_class="y"), "no array 'y'"),
        (path, Reading(drop=("e",)), "no column 'e'"),
        (path, Reading(drop=("a", "b", "c", "d")), "no columns left"),
        (tmp_path / "none", Reading(), "no images|needs Pillow"),
    ):
        with pytest.raises(DataError, match=why):
            read(file, how)


def test_images_of_unequal_size_are_refused_with_the_remedy(tmp_path: Path) -> None:
    folder = write_images(tmp_path / "images", [(5, 3), (5, 3), (4, 3)])
    with pytest.raises(DataError, match=r"is 5x3, 0.png is 4x3|is 4x3, 0.png is 5x3.*--resize"):
        read(folder, Reading())
    (folder / "class0" / "z.png").write_bytes(b"not an image")
    with pytest.raises(DataError, match=r"z\.png: is not an image"):
        read(folder, Reading(resize=(2, 2)))


def test_a_missing_library_is_named_with_its_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    monkeypatch.delitem(sys.modules, "PIL.Image", raising=False)
    with pytest.raises(MissingLibraryError, match=r"Pillow: pip install 'pacfl\[images\]'"):
        read(tmp_path, Reading())


@pytest.mark.parametrize("version", [b"\x00\x00", b"\x02\x00", b"\x03\x00"])
def test_an_array_with_a_header_of_gigabytes_is_refused_before_it_is_read(tmp_path: Path, version: bytes) -> None:
    """Found by fuzzing: numpy makes room for as many bytes as the length of the header says."""
    (tmp_path / "a.npy").write_bytes(b"\x93NUMPY" + version + b"\xff\xff\xff\x7f" + bytes(100))
    with pytest.raises(DataError, match="another format"):
        read(tmp_path / "a.npy", Reading())


def test_an_array_that_declares_more_than_its_file_is_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.zeros((3, 4)))
    content = (tmp_path / "a.npy").read_bytes().replace(b"(3, 4), }         ", b"(3, 4000000000), }")
    (tmp_path / "a.npy").write_bytes(content)
    with pytest.raises(DataError, match="cannot"):
        read(tmp_path / "a.npy", Reading())


@pytest.mark.parametrize("header", [b"{'descr': '<f8', 'shape': (3, 4(, }", b"\x00" * 20, b"(((((("])
def test_an_array_whose_header_is_no_python_is_refused(tmp_path: Path, header: bytes) -> None:
    """Found by fuzzing: numpy's parser has errors of its own."""
    padded = header.ljust(117) + b"\n"
    (tmp_path / "a.npy").write_bytes(b"\x93NUMPY\x01\x00" + len(padded).to_bytes(2, "little") + padded + bytes(96))
    with pytest.raises(DataError, match="cannot be read"):
        read(tmp_path / "a.npy", Reading())
