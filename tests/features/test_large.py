"""Files and folders that are larger than memory are signed in blocks, and say what goes on."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from pacfl.errors import DataError
from pacfl.features import Reading, images, read_samples, reading
from pacfl.features.images import SkippedWarning
from pacfl.signatures import sign_file
from pacfl.subspace.stored import StoredSamples

Run = Callable[..., tuple[int, str, str]]
RNG = np.random.default_rng(0)


def write_images(folder: Path, sizes: list[tuple[int, int]]) -> Path:
    image = pytest.importorskip("PIL.Image", reason="reading images needs Pillow")
    for i, (width, height) in enumerate(sizes):
        (folder / f"class{i % 2}").mkdir(parents=True, exist_ok=True)
        pixels = RNG.integers(i % 2 * 30, 200, (height, width, 3)).astype(np.uint8)
        image.fromarray(pixels).save(folder / f"class{i % 2}" / f"{i:03}.png")
    return folder


@pytest.fixture
def low_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything counts as large."""
    monkeypatch.setattr(reading, "LARGE", 10)
    monkeypatch.setattr(images, "LARGE", 10)


@pytest.mark.usefixtures("low_limit")
@pytest.mark.parametrize(
    "how",
    [
        Reading(),
        Reading(preprocess="unit"),
        Reading(preprocess="normalise"),
        Reading(encoder="spectrum"),
        Reading(encoder="standardise", preprocess="unit"),
        Reading(blocks=10),
        Reading(per_class="y.npy"),
        Reading(labels="y.npy", preprocess="unit"),
    ],
    ids=lambda how: how.identity() + str(how.encoder),
)
def test_a_large_array_has_the_signature_of_a_small_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: Reading
) -> None:
    monkeypatch.chdir(tmp_path)
    x = RNG.normal(size=(240, 12, 3)) * [1.0, 5.0, 0.2] + RNG.normal(size=(12, 3))
    np.save("x.npy", x.astype(np.float32))
    np.save("y.npy", np.arange(240) % 2)
    assert isinstance(read_samples(Path("x.npy"), how).x, StoredSamples)
    large = sign_file(Path("x.npy"), tmp_path / "large.sig", reading=how)
    monkeypatch.setattr(reading, "LARGE", 1 << 25)
    small = sign_file(Path("x.npy"), tmp_path / "small.sig", reading=how)
    assert large.settings == small.settings
    assert (large.samples, large.shape, large.columns) == (small.samples, small.shape, small.columns)
    assert np.abs(large.basis - small.basis).max() < 1e-6
    for measure, angles in small.split_half_angles.items():
        assert np.abs(large.split_half_angles[measure] - angles).max() < 1e-4
    if small.classes is not None:
        assert large.classes is not None
        assert np.abs(large.classes.directions - small.classes.directions).max() < 1e-3  # stored with 16 bits


@pytest.mark.usefixtures("low_limit")
def test_a_large_folder_has_the_pixels_of_a_small_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_images(tmp_path / "images", [(5, 4)] * 60)
    steps: list[tuple[str, int, int]] = []
    how = Reading(labels="folders", on_progress=lambda *step: steps.append(step))
    large = read_samples(folder, how)
    assert isinstance(large.x, StoredSamples)
    assert steps == [("reading images", 1, 60)] * 60
    signed = sign_file(folder, tmp_path / "a.sig", reading=how)
    monkeypatch.setattr(images, "LARGE", 1 << 25)
    small = read_samples(folder, how)
    assert np.array_equal(np.concatenate(list(large.x.blocks())), small.x)
    assert np.array_equal(large.labels, small.labels)  # type: ignore[arg-type]
    assert np.abs(sign_file(folder, tmp_path / "b.sig", reading=how).basis - signed.basis).max() < 1e-6


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a disk that is always full is Linux's")
def test_a_full_disk_is_an_error_with_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    pixels = images.PixelFile((2, 2))
    with Path("/dev/full").open("wb", buffering=0) as full:
        monkeypatch.setattr(pixels, "_file", full)
        with pytest.raises(DataError, match=r"No space left on device.*TMPDIR.*--resize"):
            pixels.append(np.zeros((2, 2), np.uint8))


# Images that do not fit


def test_unequal_images_are_refused_with_their_median_size(tmp_path: Path) -> None:
    folder = write_images(tmp_path / "images", [(10, 8), (20, 30), (30, 20), (20, 30), (40, 60)])
    with pytest.raises(
        DataError, match=r"002.png: is 30x20, 000.png is 10x8; .* with --resize 20x30, their median size"
    ):
        read_samples(folder, Reading())
    assert read_samples(folder, Reading(resize=(20, 30))).x.shape == (5, 30, 20, 3)


def test_newcomers_are_not_told_to_resize_where_the_federation_did_not(tmp_path: Path, run: Run) -> None:
    """`join` has no --resize: newcomers are prepared as the federation was."""
    sites = [write_images(tmp_path / name, [(10, 8)] * 40) for name in "ab"]
    assert run("cluster", *sites, "-o", tmp_path / "f")[0] == 0
    odd = write_images(tmp_path / "odd", [(10, 8), (20, 30)])
    code, _, err = run("join", tmp_path / "f", odd)
    assert code == 1
    assert "--resize" not in err
    assert "save all of" in err
    assert "size of the federation's images" in " ".join(err.split())


def test_the_suggested_size_is_that_of_images_as_they_are_shown(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image", reason="reading images needs Pillow")
    folder = write_images(tmp_path / "images", [(10, 8)])
    turned = image.Exif()
    turned[0x0112] = 6
    for i in range(2):
        image.new("RGB", (30, 20)).save(folder / f"{i}.jpg", exif=turned)
    with pytest.raises(DataError, match="--resize 20x30"):
        read_samples(folder, Reading())


def test_images_that_cannot_be_read_are_left_out_and_listed(tmp_path: Path, run: Run) -> None:
    folder = write_images(tmp_path / "images", [(5, 4)] * 40)
    for name in ("class0/000.png", "class1/zz.png"):
        (folder / name).write_bytes(b"not an image")
    with pytest.raises(DataError, match=r"000\.png: is not an image .* leave out such files with --skip-unreadable"):
        read_samples(folder, Reading())
    with pytest.warns(
        SkippedWarning, match="2 of 41 images cannot be read and were left out: class0/000.png, class1/zz"
    ):
        found = read_samples(folder, Reading(skip_unreadable=True, labels="folders"))
    assert len(found.x) == len(found.labels) == 39  # type: ignore[arg-type]
    code, out, err = run("sign", folder, "-o", tmp_path / "a.sig", "--skip-unreadable", "--json")
    assert code == 0, err
    listed = json.loads(out)
    assert listed["samples"] == 39
    assert listed["left_out"] == [str(folder / "class0/000.png"), str(folder / "class1/zz.png")]
    assert "2 of 41 images cannot be read" in " ".join(err.split())
    code, out, _ = run("cluster", folder, tmp_path / "a.sig", "--skip-unreadable", "--json")
    assert json.loads(out)["left_out"] == listed["left_out"]


def test_a_folder_without_any_readable_image_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("PIL.Image", reason="reading images needs Pillow")
    (tmp_path / "a.png").write_bytes(b"not an image")
    with pytest.raises(DataError, match=r"none of its 1 images can be read: .*a\.png"):
        read_samples(tmp_path, Reading(skip_unreadable=True))
    np.save(tmp_path / "x.npy", np.ones((5, 5)))
    with pytest.raises(DataError, match="--skip-unreadable applies to folders of images only"):
        read_samples(tmp_path / "x.npy", Reading(skip_unreadable=True))


def test_a_large_file_takes_little_memory(tmp_path: Path) -> None:
    """160 MB of 32 bits would be 320 MB of 64 bits; scattered samples must not leave the file mapped either."""
    program = f"""
import resource, numpy as np
from pathlib import Path
from pacfl.signatures import sign_file
path = Path({str(tmp_path)!r}) / "x.npy"
array = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(625_000, 64))
rng = np.random.default_rng(0)
block = (rng.normal(size=(12_500, 64)) * np.geomspace(3, 0.1, 64) + 1).astype(np.float32)
with path.open("r+b") as file:
    file.seek(array.offset)
    del array
    for _ in range(50):
        file.write(rng.permutation(block).tobytes())
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
sign_file(path, path.with_name("x.sig"))
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 150, "megabytes"
