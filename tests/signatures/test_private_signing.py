import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pacfl.errors import DataError, SignatureError
from pacfl.privacy import Guarantee
from pacfl.signatures import SignatureFile, sigfile, sign_file
from pacfl.signatures.federation import check_comparable
from pacfl.signatures.folder import load
from tests.conftest import Run


@pytest.fixture
def images(tmp_path: Path) -> list[Path]:
    """Six clients, three with bright tops and three with bright left sides, 300 images of 8 × 8 each."""
    rng = np.random.default_rng(0)
    bright = np.repeat(np.linspace(0, 200, 8)[:, None], 8, axis=1)
    paths = [tmp_path / f"{side}-{i}.npy" for side in ("left", "top") for i in range(3)]
    for path in paths:
        mean = bright if path.name.startswith("top") else bright.T
        np.save(path, np.clip(mean + rng.normal(0, 40, (300, 8, 8)), 0, 255).astype(np.uint8))
    return paths


def privately_signed(folder: Path, epsilon: float = 1.0, n: int = 5) -> SignatureFile:
    np.save(folder / "a.npy", np.ones((n, 6, 6)))
    return sign_file(folder / "a.npy", folder / "a.sig", epsilon=epsilon)


def sign_privately(run: Run, images: list[Path]) -> list[Path]:
    for path in images:
        assert run("sign", path, "-o", path.with_suffix(".sig"), "--epsilon", 2, "--delta", 1e-5)[0] == 0
    return [path.with_suffix(".sig") for path in images]


def test_private_signatures_show_the_clusters(run: Run, images: list[Path]) -> None:
    files = sign_privately(run, images)
    found = json.loads(run("cluster", *files, "--json")[1])["clusters"]
    assert found == [[f"{side}-{i}" for i in range(3)] for side in ("left", "top")]


def test_the_file_has_the_guarantee_and_not_the_number_of_samples(run: Run, images: list[Path]) -> None:
    file = sign_privately(run, images[:1])[0]
    contents = json.loads(run("inspect", file, "--json")[1])
    assert contents["privacy"] == {"epsilon": 2.0, "delta": 1e-5, "reduction": "pool 4x4"}
    assert contents["samples"] is None
    shown = run("inspect", file)[1]
    for words in ("epsilon 2, delta 1e-05 for each sample", "not disclosed", "hides every single sample", "pool 4x4"):
        assert words in shown


def test_the_size_of_the_file_does_not_show_the_number_of_samples(tmp_path: Path) -> None:
    """Directions, features and comparisons are as many for one sample as for a thousand."""
    shapes = set()
    for n in (1, 5, 1000):
        made = privately_signed(tmp_path, n=n)
        shapes.add((made.basis.shape, *(len(angles) for angles in made.split_half_angles.values())))
    assert len(shapes) == 1


def test_the_same_data_never_give_the_same_bytes(run: Run, images: list[Path]) -> None:
    first = sign_privately(run, images[:1])[0].read_bytes()
    assert sign_privately(run, images[:1])[0].read_bytes() != first


def test_signatures_of_different_protection_are_refused_together(run: Run, images: list[Path], tmp_path: Path) -> None:
    files = sign_privately(run, images)
    run("sign", images[0], "-o", tmp_path / "plain.sig")
    code, _, error = run("cluster", *files, tmp_path / "plain.sig")
    assert code != 0
    assert "differ in privacy" in error
    assert "not private: plain" in error
    run("cluster", *files, "-o", tmp_path / "federation")
    code, _, error = run("join", tmp_path / "federation", tmp_path / "plain.sig")
    assert code != 0
    assert "not private" in error


def test_different_reductions_are_refused_together(tmp_path: Path) -> None:
    one = privately_signed(tmp_path)
    other = replace(one, privacy=Guarantee(1.0, 1e-5, "pool 2x8"))
    with pytest.raises(DataError, match="pool 4x4: a; private, reduced by pool 2x8: b"):
        check_comparable({"a": one.settings, "b": other.settings})


def test_different_epsilons_are_compared(tmp_path: Path) -> None:
    made = [privately_signed(tmp_path, epsilon).settings for epsilon in (1.0, 2.0)]
    check_comparable(dict(zip("ab", made, strict=True)))


@pytest.fixture
def labelled(tmp_path: Path) -> list[Path]:
    """Six clients with 600 images of three classes; the last three name them otherwise."""
    rng = np.random.default_rng(0)
    patterns = rng.uniform(0, 1, (3, 8, 8))
    paths = [tmp_path / f"{name}-{i}.npz" for name in ("these", "those") for i in range(3)]
    for path in paths:
        y = rng.integers(0, 3, 600)
        names = np.array(["ant", "bee", "cat"])[(y + path.name.startswith("those")) % 3]
        np.savez(path, x=patterns[y] + rng.normal(0, 0.5, (600, 8, 8)), y=names)
    return paths


def sign_classes(run: Run, paths: list[Path], *options: object) -> list[Path]:
    for path in paths:
        target = path.with_suffix(".sig")
        code, _, error = run("sign", path, "-o", target, "--labels", "y", "--epsilon", 4, *options)
        assert code == 0, error
    return [path.with_suffix(".sig") for path in paths]


def test_private_classes_show_who_labels_otherwise(run: Run, labelled: list[Path], tmp_path: Path) -> None:
    files = sign_classes(run, labelled, "--classes", "ant,bee,cat,dog")
    out = tmp_path / "federation"
    shown = json.loads(run("cluster", *files[:-1], "--json", "-o", out)[1])
    assert shown["clusters"] == [["these-0", "these-1", "these-2"], ["those-0", "those-1"]]
    assert shown["compare"] == "classes"
    assert all(own is not None and own.private for own in load(out).classes)
    assert json.loads(run("join", out, files[-1], "--json")[1])["placed"] == {"those-2": 1}


def test_the_agreed_classes_can_be_in_a_file_and_names_hashed(run: Run, labelled: list[Path], tmp_path: Path) -> None:
    (tmp_path / "classes.txt").write_text("ant\nbee\n\ncat\n")
    (tmp_path / "key").write_text("k" * 32)
    options = ("--classes", tmp_path / "classes.txt", "--hash-labels", tmp_path / "key")
    files = sign_classes(run, labelled[:1], *options)
    made = sigfile.read(files[0])
    assert made.classes is not None
    assert len(made.classes) == 3
    assert not {"ant", "bee", "cat"} & set(made.classes.names)
    assert "names hashed" in made.settings.labels


def test_inspect_says_that_counts_have_noise(run: Run, labelled: list[Path]) -> None:
    shown = run("inspect", sign_classes(run, labelled[:1], "--classes", "ant,bee,cat")[0])[1]
    for words in ("ant (about ", "epsilon 4, delta 1e-05", "hides every single sample and its label"):
        assert words in " ".join(shown.split())


def test_agreed_classes_without_samples_are_not_in_the_file(run: Run, labelled: list[Path]) -> None:
    made = sigfile.read(sign_classes(run, labelled[:1], "--classes", "ant,bee,cat,dog")[0])
    assert made.classes is not None
    assert made.classes.names == ("ant", "bee", "cat")


def test_private_images_with_and_without_labels_are_refused_together(run: Run, labelled: list[Path]) -> None:
    """Those with labels are signed by their contrast."""
    files = sign_classes(run, labelled[:1], "--classes", "ant,bee,cat")
    run("sign", labelled[1], "-o", labelled[1].with_suffix(".sig"), "--epsilon", 4)
    code, _, error = run("cluster", *files, labelled[1].with_suffix(".sig"))
    assert code != 0
    assert "differ in privacy" in error


def test_private_signatures_of_wide_tables_can_be_read_again(tmp_path: Path) -> None:
    """Columns that were projected have no names."""
    names = ",".join(f"column {k}" for k in range(60))
    rows = np.random.default_rng(0).normal(size=(50, 60))
    np.savetxt(tmp_path / "a.csv", rows, delimiter=",", header=names, comments="")
    sign_file(tmp_path / "a.csv", tmp_path / "a.sig", epsilon=1.0)
    assert sigfile.read(tmp_path / "a.sig").columns is None


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--labels", "y"), "agreed on"),
        (("--classes", "ant,bee"), "agreed on"),
        (("--labels", "y", "--classes", "ant,bee"), "'cat' is not among the 2 agreed classes"),
        (("--labels", "y", "--classes", "ant,bee,cat,cat"), "different classes"),
        (("--labels", "y", "--classes", ","), "different classes"),
        (("--labels", "y", "--classes", "ant,bee,cat", "--minimum-count", "9"), "counts, which are private"),
    ],
)
def test_classes_that_would_not_be_private_are_refused(
    run: Run, labelled: list[Path], options: tuple[str, ...], words: str
) -> None:
    target = labelled[0].with_suffix(".sig")
    code, _, error = run("sign", labelled[0], "-o", target, "--epsilon", 1, *options)
    assert code != 0
    assert words in " ".join(error.split())
    assert not target.exists()


def test_agreed_classes_without_a_guarantee_are_refused(run: Run, labelled: list[Path]) -> None:
    target = labelled[0].with_suffix(".sig")
    code, _, error = run("sign", labelled[0], "-o", target, "--labels", "y", "--classes", "ant,bee,cat")
    assert code != 0
    assert "for a guarantee of privacy" in " ".join(error.split())


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--epsilon", "0"), "epsilon must be"),
        (("--epsilon", "1", "--delta", "2"), "delta must"),
        (("--epsilon", "1", "--preprocess", "normalise"), "would not be private"),
        (("--epsilon", "1", "--per-class", "y.npy"), "per class"),
        (("--delta", "1e-6"), "--epsilon"),
    ],
)
def test_what_would_not_be_private_is_refused(
    run: Run, images: list[Path], options: tuple[str, ...], words: str
) -> None:
    target = images[0].with_suffix(".sig")
    code, _, error = run("sign", images[0], "-o", target, *options)
    assert code != 0
    assert words in error
    assert not target.exists()


@pytest.mark.parametrize(
    "privacy",
    [
        1,
        [],
        {},
        {"epsilon": 1.0, "delta": 1e-5},
        {"epsilon": "1", "delta": 1e-5, "reduction": "none"},
        {"epsilon": 1.0, "delta": 1e-5, "reduction": 4},
        {"epsilon": -1.0, "delta": 1e-5, "reduction": "none"},
        {"epsilon": float("nan"), "delta": 1e-5, "reduction": "none"},
        {"epsilon": 1.0, "delta": 1.0, "reduction": "none"},
        {"epsilon": True, "delta": 1e-5, "reduction": "none"},
    ],
    ids=repr,
)
def test_a_file_with_an_impossible_guarantee_is_refused(tmp_path: Path, privacy: object) -> None:
    made = privately_signed(tmp_path)
    contents = made.contents() | {"privacy": privacy}

    class Forged(sigfile.SignatureFile):
        def contents(self) -> dict[str, object]:
            return contents

    sigfile.write(tmp_path / "a.sig", Forged(made.basis, 3, False, "raw", None))
    with pytest.raises(SignatureError, match="privacy"):
        sigfile.read(tmp_path / "a.sig")
