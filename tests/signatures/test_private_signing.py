import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pacfl.errors import DataError, SignatureError
from pacfl.privacy import Guarantee
from pacfl.signatures import SignatureFile, sigfile, sign_file
from pacfl.signatures.federation import check_comparable
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
