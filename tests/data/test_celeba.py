import sys
from pathlib import Path

import numpy as np
import pytest

from pacfl.data import ByAttribute, catalogue, load_dataset, partition
from pacfl.errors import DataError, MissingLibraryError

ATTRIBUTES = ("Bald", "Eyeglasses", "Smiling")
SPLITS = "0" * 12 + "1" * 3 + "2" * 6
FLAGS = np.random.default_rng(1).random((len(SPLITS), 3)) < 0.5
FLAGS[:6] = np.eye(3, dtype=bool)[[0, 1, 2, 0, 1, 2]]


def write_celeba(folder: Path) -> Path:
    image = pytest.importorskip("PIL.Image", reason="reading images needs Pillow")
    place = folder / "celeba"
    (place / "img_align_celeba").mkdir(parents=True)
    names = [f"{i + 1:06d}.jpg" for i in range(len(SPLITS))]
    for i, name in enumerate(names):
        pixels = np.full((218, 178, 3), 255, dtype=np.uint8)  # white above and below the central square
        pixels[20:198] = 10 * i
        image.fromarray(pixels).save(place / "img_align_celeba" / name, quality=95)
    rows = [" ".join([name, *(" 1" if flag else "-1" for flag in flags)]) for name, flags in zip(names, FLAGS)]  # noqa: B905
    header = [str(len(names)), " ".join(ATTRIBUTES) + " "]
    (place / "list_attr_celeba.txt").write_text("\n".join([*header, *rows]) + "\n")
    splits = [f"{name} {split}" for name, split in zip(names, SPLITS, strict=True)]
    (place / "list_eval_partition.txt").write_text("\n".join(splits) + "\n")
    return place


def test_faces_labels_and_attributes_are_read(tmp_path: Path) -> None:
    write_celeba(tmp_path)
    dataset = load_dataset("celeba", tmp_path)
    assert dataset.x_train.shape == (12, 32, 32, 3)
    assert dataset.x_test.shape == (6, 32, 32, 3)
    assert np.array_equal(dataset.y_train, FLAGS[:12, 2])
    assert np.array_equal(dataset.y_test, FLAGS[15:, 2])
    for i, name in enumerate(ATTRIBUTES):
        assert np.array_equal(dataset.attributes_train[name], FLAGS[:12, i])
        assert np.array_equal(dataset.attributes_test[name], FLAGS[15:, i])
    brightness = dataset.x_train.mean(axis=(1, 2, 3))
    assert np.allclose(brightness, 10 * np.arange(12), atol=2)  # the white above and below is cut away


def test_label_size_and_numbers_can_be_chosen(tmp_path: Path) -> None:
    write_celeba(tmp_path)
    dataset = load_dataset("celeba", tmp_path, label="Bald", size=20, n_train=5, n_test=2)
    assert dataset.x_train.shape == (5, 20, 20, 3)
    assert dataset.x_test.shape == (2, 20, 20, 3)
    assert np.array_equal(dataset.y_train, FLAGS[:5, 0])
    with pytest.raises(DataError, match="did you mean 'Smiling'"):
        load_dataset("celeba", tmp_path, label="smiling")
    with pytest.raises(DataError, match=r"no option 'labels' .did you mean 'label'"):
        load_dataset("celeba", tmp_path, labels="Bald")
    with pytest.raises(DataError, match="size must be at least 1"):
        load_dataset("celeba", tmp_path, size=0)


def test_clients_have_one_attribute_and_none_of_the_others(tmp_path: Path) -> None:
    write_celeba(tmp_path)
    dataset = load_dataset("celeba", tmp_path, size=4)
    clients = partition(dataset, ByAttribute(ATTRIBUTES), 6, np.random.default_rng(0))
    assert clients.true_cluster is not None
    assert clients.true_cluster.tolist() == [0, 0, 1, 1, 2, 2]
    for indices, test, group in zip(clients.train_indices, clients.test_indices, clients.true_cluster, strict=True):
        assert (FLAGS[:12][indices] == np.eye(3, dtype=bool)[group]).all()
        alone = (FLAGS[15:] == np.eye(3, dtype=bool)[group]).all(axis=1)
        assert np.array_equal(test, np.flatnonzero(alone))


def test_the_catalogue_counts_without_reading_images(tmp_path: Path) -> None:
    place = write_celeba(tmp_path)
    for file in (place / "img_align_celeba").iterdir():
        file.write_bytes(b"")
    entry = next(entry for entry in catalogue(tmp_path) if entry.name == "celeba")
    assert (entry.found, entry.n_train, entry.n_test) == (True, 12, 6)


@pytest.mark.parametrize(
    ("file", "old", "new", "reason"),
    [
        ("list_attr_celeba.txt", "21\n", "22\n", "declares 22 images and lists 21"),
        ("list_attr_celeba.txt", "000002.jpg -1", "000002.jpg 2", "line 4 is not an image and 3 values"),
        ("list_attr_celeba.txt", "000002.jpg", "elsewhere.jpg", None),
        ("list_attr_celeba.txt", "21\n", "", "cannot be read"),
        ("list_eval_partition.txt", "000001.jpg", "../../x.jpg", "line 1 is not the name of an image"),
        ("list_eval_partition.txt", "000001.jpg 0", "000001.jpg 7", "line 1 is not"),
        ("list_eval_partition.txt", " 2", " 1", "has no images of split 2"),
    ],
)
def test_damaged_lists_are_refused_by_name(tmp_path: Path, file: str, old: str, new: str, reason: str | None) -> None:
    path = write_celeba(tmp_path) / file
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(DataError, match=reason or "lists 000002.jpg, which has no attributes") as caught:
        load_dataset("celeba", tmp_path)
    assert (file if reason else "list_eval_partition.txt") in str(caught.value)


def test_damaged_images_are_refused_by_name(tmp_path: Path) -> None:
    place = write_celeba(tmp_path) / "img_align_celeba"
    image = pytest.importorskip("PIL.Image")
    path = place / "000003.jpg"
    content = path.read_bytes()
    image.fromarray(np.zeros((2, 5000), dtype=np.uint8)).save(place / "wide.jpg")
    wide = (place / "wide.jpg").read_bytes()
    for contents in (b"", b"no image", content[:300], wide):
        path.write_bytes(contents)
        with pytest.raises(DataError, match=r"000003\.jpg: (cannot be read as a JPEG|is 5000x2, far larger)"):
            load_dataset("celeba", tmp_path)
    path.unlink()
    with pytest.raises(DataError, match=r"000003\.jpg: cannot be read"):
        load_dataset("celeba", tmp_path)


def test_what_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = write_celeba(tmp_path)
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "PIL.Image", None)
        with pytest.raises(MissingLibraryError, match=r"needs Pillow: pip install 'pacfl\[data\]'"):
            load_dataset("celeba", tmp_path)
    (place / "img_align_celeba").rename(place / "img")
    with pytest.raises(DataError, match="missing celeba/img_align_celeba/"):
        load_dataset("celeba", tmp_path)
