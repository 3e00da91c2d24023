import sys
from pathlib import Path

import numpy as np
import pytest

from pacfl.errors import DataError
from pacfl.signatures.reading import Reading, read

X = np.arange(24, dtype=np.uint8).reshape(6, 4)
Y = np.array([0, 0, 1, 1, 2, 2])


def written_csv(path: Path, header: str = "", delimiter: str = ",") -> Path:
    rows = [delimiter.join(str(v) for v in row) for row in X]
    path.write_text("\n".join([*([header] if header else []), *rows]) + "\n")
    return path


def written_images(folder: Path, sizes: list[tuple[int, int]]) -> Path:
    image = pytest.importorskip("PIL.Image", reason="reading images needs Pillow")
    for i, (width, height) in enumerate(sizes):
        (folder / f"class{i % 2}").mkdir(parents=True, exist_ok=True)
        pixels = np.full((height, width, 3), i, dtype=np.uint8)
        image.fromarray(pixels).save(folder / f"class{i % 2}" / f"{i}.png")
    return folder


def test_npy_npz_csv_and_parquet_give_the_same_samples(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="reading Parquet needs pyarrow")
    pyarrow = pytest.importorskip("pyarrow")
    np.save(tmp_path / "a.npy", X)
    np.savez(tmp_path / "a.npz", x=X, y=Y)
    written_csv(tmp_path / "a.csv")
    parquet.write_table(pyarrow.table({f"f{i}": X[:, i] for i in range(4)}), tmp_path / "a.parquet")
    for suffix in ("npy", "npz", "csv", "parquet"):
        samples, labels = read(tmp_path / f"a.{suffix}", Reading())
        assert np.array_equal(samples, X), suffix
        assert labels is None


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_a_header_and_any_common_delimiter_are_seen(tmp_path: Path, delimiter: str) -> None:
    path = written_csv(tmp_path / "a.csv", delimiter.join("abcd"), delimiter)
    assert np.array_equal(read(path, Reading())[0], X)
    samples, labels = read(path, Reading(per_class="b", drop=("d",)))
    assert np.array_equal(samples, X[:, [0, 2]])
    assert labels is not None
    assert labels.tolist() == [str(v) for v in X[:, 1]]


def test_labels_come_from_where_they_are_said_to_be(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x_train=X, y_train=Y)
    np.save(tmp_path / "x.npy", X)
    np.save(tmp_path / "y.npy", Y)
    for path, where in ((tmp_path / "a.npz", "y_train"), (tmp_path / "x.npy", str(tmp_path / "y.npy"))):
        labels = read(path, Reading(per_class=where))[1]
        assert labels is not None
        assert np.array_equal(labels, Y)


def test_images_are_read_in_order_with_their_folders_as_labels(tmp_path: Path) -> None:
    folder = written_images(tmp_path / "images", [(5, 3)] * 4)
    samples, labels = read(folder, Reading(per_class="folders"))
    assert samples.shape == (4, 3, 5, 3)
    assert samples[:, 0, 0, 0].tolist() == [0, 2, 1, 3]
    assert labels is not None
    assert labels.tolist() == ["class0", "class0", "class1", "class1"]
    assert read(folder, Reading(grey=True, resize=(2, 2)))[0].shape == (4, 2, 2)


def test_normalise_gives_mean_0_and_deviation_1_per_channel(tmp_path: Path) -> None:
    images = np.random.default_rng(0).integers(0, 256, (8, 5, 5, 3)).astype(np.uint8)
    images[..., 1] //= 3
    np.save(tmp_path / "a.npy", images)
    samples, _ = read(tmp_path / "a.npy", Reading(preprocess="normalise"))
    assert np.allclose(samples.mean(axis=(0, 1, 2)), 0, atol=1e-12)
    assert np.allclose(samples.std(axis=(0, 1, 2)), 1)


def test_unit_gives_samples_of_length_1_and_leaves_blank_ones(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.vstack([X, np.zeros((1, 4))]))
    samples, _ = read(tmp_path / "a.npy", Reading(preprocess="unit"))
    assert np.allclose(np.linalg.norm(samples, axis=1), [1, 1, 1, 1, 1, 1, 0])


def test_the_identity_tells_everything_that_changes_pixels() -> None:
    assert Reading().identity() == "raw"
    assert Reading(preprocess="unit", grey=True, resize=(32, 16)).identity() == "resize 32x16, grey, unit"


def test_pickled_arrays_are_never_loaded(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(DataError, match="cannot be read"):
        read(tmp_path / "a.npy", Reading())


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("empty.csv", "", "empty"),
        ("words.csv", "a,b\n1,x\n2,y\n", "'x' to float64 at row 0, column 2.*--drop"),
        ("gaps.csv", "a,b\n1,\n2,3\n", "fill empty cells"),
        ("ragged.csv", "a,b\n1,2\n3\n", "invalid column index 1 at row 2"),
        ("data.xyz", "1 2 3", "wanted a file of kind"),
        ("bad.npy", "no numpy", "cannot be read"),
        ("bad.npz", "no zip", "cannot be read"),
        ("bad.parquet", "no parquet", "cannot be read|needs pyarrow"),
    ],
)
def test_unreadable_files_are_refused_by_name(tmp_path: Path, name: str, text: str, why: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(DataError, match=why) as caught:
        read(tmp_path / name, Reading())
    assert name in str(caught.value)


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", one=X, two=X)
    path = written_csv(tmp_path / "a.csv", "a,b,c,d")
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
    folder = written_images(tmp_path / "images", [(5, 3), (5, 3), (4, 3)])
    with pytest.raises(DataError, match=r"is 5x3, 0.png is 4x3|is 4x3, 0.png is 5x3.*--resize"):
        read(folder, Reading())
    (folder / "class0" / "z.png").write_bytes(b"not an image")
    with pytest.raises(DataError, match=r"z\.png: is not an image"):
        read(folder, Reading(resize=(2, 2)))


@pytest.mark.parametrize(
    ("library", "name", "extra"), [("pyarrow", "a.parquet", "parquet"), ("PIL", "images", "images")]
)
def test_a_missing_library_is_named_with_its_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, library: str, name: str, extra: str
) -> None:
    path = tmp_path / name
    if extra == "images":
        path.mkdir()
    else:
        path.write_bytes(b"PAR1")
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(DataError, match=rf"pip install 'pacfl\[{extra}\]'"):
        read(path, Reading())


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
