"""Items that need no training, on small files in the formats that are read."""

import json
import re
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pacfl.reproduce.curves import ORDER
from pacfl.reproduce.items import item
from pacfl.reproduce.kinds import kind_of, stored
from pacfl.reproduce.making import Request
from pacfl.reproduce.outcome import Outcome, merged, save
from pacfl.reproduce.page import write_page
from pacfl.reproduce.tables import markdown
from pacfl.reproduce.targets import reached

SETS = {"cifar10": (32, 32, 3), "svhn": (32, 32, 3), "fmnist": (28, 28), "usps": (16, 16), "mnist_m": (32, 32, 3)}


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """Five data sets of noise around a picture of their own, 400 images each."""
    rng = np.random.default_rng(0)
    for name, shape in SETS.items():
        x = rng.integers(0, 100, (400, *shape)) + rng.integers(0, 156, shape)
        y = np.arange(400) % 10
        np.savez(
            tmp_path / f"{name}.npz",
            x_train=x.astype(np.uint8),
            y_train=y,
            x_test=x[:50].astype(np.uint8),
            y_test=y[:50],
        )
    return tmp_path


def test_no_entry_of_the_product_of_bases_is_closer_than_the_smallest_principal_angle(small: Path) -> None:
    angles = item("angles")
    made = kind_of(angles).make(angles, Request(data=small))
    for angle in made["angles"].values():
        assert (np.array(angle["entrywise"]) >= np.array(angle["smallest"]) - 1e-3).all()
        assert (np.array(angle["sum"]) <= np.array(angle["trace"]) + 1e-3).all()
    sets, classes = kind_of(angles).tables(angles, made)
    assert len(sets.rows) == 10
    assert {row[0]: row[1] for row in sets.rows}["cifar10, usps"] == "66.26 (132.5)"
    assert len(classes.rows) == 4


def test_angles_without_data_say_so_beside_the_published_values(tmp_path: Path) -> None:
    angles = item("angles")
    made = kind_of(angles).make(angles, Request(data=tmp_path))
    sets, classes = kind_of(angles).tables(angles, made)
    assert len(sets.rows) == 6
    assert all("data not available here" in row[2] for row in sets.rows)
    assert "data not available here" in classes.rows[0][0]


def test_an_extract_does_not_pass_for_the_whole_data_set(small: Path) -> None:
    skew = item("label-skew-20")
    made = kind_of(skew).make(skew, Request(scale="paper", data=small, run=False))
    assert "cifar10 has 400 of 50,000 samples" in made["missing"]["cifar10"]
    assert set(made["missing"]) == set(skew.columns)


def test_divergences_stand_beside_all_published_ones() -> None:
    divergences = item("divergences")
    few = replace(divergences, quick=("item.settings.draws=3",))
    made = kind_of(few).make(few, Request())
    for table in kind_of(few).tables(few, made):
        assert [row[0] for row in table.rows] == list(divergences.published())
        assert "[10.73]" in {row[0]: row[1] for row in table.rows}["entrywise"]


def test_pictures_without_umap_name_what_is_missing_and_draw_the_rest(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("matplotlib")
    monkeypatch.setitem(sys.modules, "umap", None)
    quick = ("item.settings.points=50", "data.clients=8", 'data.scheme={kind="by-set", counts=[2, 2, 2, 2], size=100}')
    pictures = replace(item("pictures"), quick=quick)
    made = kind_of(pictures).make(pictures, Request(data=small, on=("mix4",)))
    (table,) = kind_of(pictures).tables(pictures, made)
    row = {row[0]: row for row in table.rows}["mix4"]
    assert "pip install 'pacfl[umap]'" in row[1]
    assert row[2] == "8 clients"
    (path,) = kind_of(pictures).figures(pictures, made, tmp_path / "figures")
    assert path.read_text().startswith("<?xml")


def write_faces(folder: Path, n: int = 60) -> None:
    """CelebA as it is published: JPEG images, a list of attributes and a list of parts. A third has each attribute."""
    image = pytest.importorskip("PIL.Image", reason="reading images needs Pillow")
    place = folder / "celeba"
    (place / "img_align_celeba").mkdir(parents=True)
    rng = np.random.default_rng(0)
    looks = rng.integers(0, 200, (3, 218, 178, 3))
    names = [f"{i + 1:06d}.jpg" for i in range(n + 3)]
    for i, name in enumerate(names):
        pixels = (looks[i % 3] + rng.integers(0, 55, (218, 178, 3))).astype(np.uint8)
        image.fromarray(pixels).save(place / "img_align_celeba" / name, quality=90)
    flags = [" ".join("1" if i % 3 == a else "-1" for a in range(3)) for i in range(len(names))]
    rows = [f"{name} {words}" for name, words in zip(names, flags, strict=True)]
    header = [str(len(names)), "Smiling Wavy_Hair Wearing_Hat"]
    (place / "list_attr_celeba.txt").write_text("\n".join([*header, *rows]) + "\n")
    parts = [f"{name} {0 if i < n else 2}" for i, name in enumerate(names)]
    (place / "list_eval_partition.txt").write_text("\n".join(parts) + "\n")


def test_faces_of_one_look_each_are_found_by_their_attribute(tmp_path: Path) -> None:
    write_faces(tmp_path)
    faces = replace(item("celeba"), quick=("data.samples=60", "data.clients=6", "seeds=[0]"))
    made = kind_of(faces).make(faces, Request(data=tmp_path))
    (clustered,) = made["clusters"]
    assert clustered["given"]["ari"] == 1.0
    (table,) = kind_of(faces).tables(faces, made)
    assert [row[1] for row in table.rows] == ["automatic", "given"]
    pytest.importorskip("matplotlib")
    (path,) = kind_of(faces).figures(faces, made, tmp_path / "figures")
    assert path.stat().st_size > 1000


def test_faces_that_are_not_here_are_not_made_up(tmp_path: Path) -> None:
    faces = item("celeba")
    made = kind_of(faces).make(faces, Request(data=tmp_path))
    (table,) = kind_of(faces).tables(faces, made)
    assert table.rows[0][1] == "data not available here: celeba has 0 of 600 samples"


def test_a_target_is_reached_where_it_is_first_seen() -> None:
    curve = {
        "rounds": [5, 10, 15],
        "megabits": [1.5, 3.0, 4.5],
        "received": [0.5, 0.8, 0.7],
        "last_trained": [None, 0.6, 0.9],
    }
    assert reached(curve, "received", 0.75, "rounds") == 10
    assert reached(curve, "received", 0.75, "megabits") == 3.0
    assert reached(curve, "last_trained", 0.75, "rounds") == 15
    assert reached(curve, "received", 0.81, "rounds") is None
    assert reached(curve, "personal", 0.1, "rounds") is None


def run_of(method: str, seed: int, curve: dict[str, list[float]]) -> dict[str, object]:
    return {"column": "fmnist", "method": method, "seed": seed, "hash": "0123456789abcdef", "curve": curve}


def test_items_that_show_the_runs_of_others_are_made_from_their_exports(tmp_path: Path) -> None:
    curve = {"rounds": [10, 20], "megabits": [2.0, 4.0], "received": [0.7, 0.76], "last_trained": [0.8, 0.9]}
    never = {**curve, "received": [0.1, 0.2]}
    runs = [
        run_of("pacfl(paper)", 0, curve),
        run_of("pacfl(paper)", 1, {**curve, "rounds": [10, 30]}),
        run_of("fedavg", 0, never),
    ]
    runs += [{**run_of("scaffold", 0, curve), "diverged": "in round 20"}]
    runs += [{**run_of("fednova", 0, never), "diverged": "in round 20"}]
    save({"item": "label-skew-20", "scale": "paper", "missing": {}, "tuning": [], "runs": runs}, tmp_path)
    wanted = item("rounds-to-target")
    made = stored(wanted, tmp_path, "paper")
    assert made is not None
    table = next(t for t in kind_of(wanted).tables(wanted, made) if "fmnist" in t.title)
    rows = {row[0]: row for row in table.rows}
    assert rows["pacfl(paper)"][1:4] == ("12", "25 ± 5", "10 ± 0")  # the target is 75 %
    assert rows["fedavg"][1:3] == ("200", "never")
    assert rows["ifca"][2] == "not run"
    assert rows["scaffold"][2] == "20, then diverged"
    assert rows["fednova"][2] == "diverged"
    curves = item("curves")
    shown = kind_of(curves).tables(curves, made)
    assert ("fedavg", "10.00", "20.00", "-", "-") in shown[0].rows
    assert ("scaffold", "70.00", "76.00", "-", "-") in shown[0].rows  # as far as it came


def test_no_two_curves_of_a_picture_look_the_same(tmp_path: Path) -> None:
    """Ten algorithms and two variants, in whatever order they were run: as many pairs of colour and dashes."""
    pytest.importorskip("matplotlib")
    curve = {"rounds": [10, 20], "received": [0.7, 0.76], "last_trained": [0.8, 0.9]}
    methods = [name for name in ORDER if name != "fedavg-ft"]
    methods = [*reversed(methods), "pacfl(clusters=2)", "pacfl(clusters=1)"]
    runs = [run_of(method, 0, curve) for method in methods]
    curves = item("curves")
    made: Outcome = {"item": "curves", "scale": "paper", "missing": {}, "tuning": [], "runs": runs}
    shown = kind_of(curves).tables(curves, made)
    assert [row[0] for row in shown[0].rows][-3:] == ["pacfl", "pacfl(clusters=2)", "pacfl(clusters=1)"]
    for path in kind_of(curves).figures(curves, made, tmp_path):
        lines = re.findall(r'clip-path="[^"]*" style="fill: none; (stroke[^"]*)"', path.read_text())
        assert len(lines) == len(set(lines)) == 12


def test_an_item_of_others_that_were_never_exported_has_no_outcome(tmp_path: Path) -> None:
    assert stored(item("curves"), tmp_path, "paper") is None
    assert stored(item("angles"), tmp_path, "paper") is None


def test_the_page_has_every_item_and_says_which_were_not_run(tmp_path: Path) -> None:
    divergences = replace(item("divergences"), quick=("item.settings.draws=2",))
    made = kind_of(divergences).make(divergences, Request())
    save({**made, "scale": "paper"}, tmp_path / "results")
    (tmp_path / "results" / "mix4.md").write_text("What it means.\n", encoding="utf-8")
    (tmp_path / "results" / "summary.md").write_text("In short.\n", encoding="utf-8")
    write_page(tmp_path / "docs" / "results.md", tmp_path / "results")
    page = (tmp_path / "docs" / "results.md").read_text(encoding="utf-8")
    assert page.count("\n## ") == 14
    assert page.count("Not run yet.") == 13
    assert "What it means.\n" in page
    assert page.index("In short.\n") < page.index("\n## 1. ")
    assert markdown(kind_of(divergences).tables(divergences, made)[0]) in page


def test_a_later_export_does_not_remove_other_columns(small: Path) -> None:
    angles = item("angles")
    both = [kind_of(angles).make(angles, Request(data=small, on=(column,))) for column in ("sets", "classes")]
    joined = merged(json.loads(json.dumps(both[0])), both[1])
    assert set(joined["angles"]) == {"sets", "classes"}
