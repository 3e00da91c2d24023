"""--group and --blocks: where groups are read from, what they change, and the warning where they are missing."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from pacfl import PACFLClustering
from pacfl.cli import app
from pacfl.errors import DataError
from pacfl.features.reading import read_samples
from pacfl.signatures import DependenceWarning, Reading, cluster_files, join_files, sign_file
from pacfl.subspace import split_half_angles

N, FEATURES = 240, 6
GROUPS = np.repeat(np.arange(N // 5), 5)


def patients(seed: int = 0) -> np.ndarray[Any, Any]:
    """Five equal rows for each patient."""
    rng = np.random.default_rng(seed)
    return np.repeat(rng.standard_normal((N // 5, FEATURES)) * [9, 4, 2, 1, 1, 1] + 8 * np.eye(FEATURES)[0], 5, axis=0)


def write_csv(path: Path, seed: int = 0) -> Path:
    lines = [
        ",".join([f"patient {g}", *map(repr, row.tolist()), str(k % 2)])
        for k, (g, row) in enumerate(zip(GROUPS, patients(seed), strict=True))
    ]
    path.write_text("\n".join(["patient,a,b,c,d,e,f,sick", *lines]))
    return path


def test_groups_are_read_from_a_column_an_array_or_a_file_and_are_no_feature(tmp_path: Path) -> None:
    write_csv(tmp_path / "a.csv")
    np.savez(tmp_path / "a.npz", x=patients(), patient=GROUPS)
    np.save(tmp_path / "a.npy", patients())
    np.save(tmp_path / "groups.npy", GROUPS)
    expected = split_half_angles(patients(), 3, groups=GROUPS)["smallest"]
    for name, how in (
        ("a.csv", Reading(group="patient", drop=("sick",))),
        ("a.npz", Reading(group="patient")),
        ("a.npy", Reading(group=str(tmp_path / "groups.npy"))),
        ("a.npy", Reading(blocks=5)),
    ):
        made = sign_file(tmp_path / name, tmp_path / "a.sig", reading=how)
        np.testing.assert_array_equal(made.split_half_angles["smallest"], expected)
        assert made.basis.shape == (FEATURES, 3)
        assert made.samples == N


def test_groups_of_images_are_their_folders(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for patient in range(7):
        (tmp_path / "data" / f"p{patient}").mkdir(parents=True)
        for k in range(3):
            pixels = rng.integers(0, 255, (4, 4), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "data" / f"p{patient}" / f"{k}.png")
    groups = read_samples(tmp_path / "data", Reading(group="folders")).groups
    assert groups is not None
    assert groups.tolist() == [f"p{k}" for k in range(7) for _ in range(3)]
    with pytest.raises(DataError, match="use --group folders"):
        read_samples(tmp_path / "data", Reading(group="patient"))


@pytest.mark.parametrize(
    ("how", "why"),
    [
        (Reading(group="doctor"), "has no column 'doctor'"),
        (Reading(group="patient", blocks=5), "give one of them"),
        (Reading(blocks=0), "at least 1, got 0"),
        (Reading(group="sick", labels="sick"), "both 'sick'"),
    ],
)
def test_impossible_groups_are_refused(tmp_path: Path, how: Reading, why: str) -> None:
    with pytest.raises(DataError, match=why):
        sign_file(write_csv(tmp_path / "a.csv"), tmp_path / "a.sig", reading=how)


def test_missing_groups_and_private_signatures_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("g,a,b\n" + "p,1,2\n,3,4\n" * 20)
    with pytest.raises(DataError, match="some groups are missing"):
        sign_file(tmp_path / "a.csv", tmp_path / "a.sig", rank=1, reading=Reading(group="g"))
    with pytest.raises(DataError, match="hides single samples, not groups"):
        sign_file(tmp_path / "a.csv", tmp_path / "a.sig", rank=1, reading=Reading(blocks=5, drop=("g",)), epsilon=1.0)


def test_classes_count_groups(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=patients(), patient=GROUPS, y=np.repeat(np.arange(2), N // 2))
    made = sign_file(tmp_path / "a.npz", tmp_path / "a.sig", reading=Reading(labels="y", group="patient"))
    assert made.classes is not None
    assert made.classes.counts.tolist() == [24, 24]


def test_sign_warns_of_dependent_neighbours_and_changes_nothing(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", patients())
    runner = CliRunner()
    loud = runner.invoke(app, ["sign", str(tmp_path / "a.npy"), "-o", str(tmp_path / "a.sig"), "--json"])
    assert loud.exit_code == 0, loud.output
    assert "neighbouring samples depend on each other" in loud.stderr
    assert "--group or --blocks" in " ".join(loud.stderr.split())
    expected = split_half_angles(patients(), 3)["smallest"]
    np.testing.assert_allclose(json.loads(loud.stdout)["self_angles"]["smallest"], expected, rtol=1e-5)
    quiet = runner.invoke(app, ["sign", str(tmp_path / "a.npy"), "-o", str(tmp_path / "b.sig"), "--blocks", "5"])
    assert quiet.exit_code == 0, quiet.output
    assert "depend" not in quiet.stderr
    short = runner.invoke(app, ["sign", str(tmp_path / "a.npy"), "-o", str(tmp_path / "c.sig"), "--blocks", "2"])
    assert "neighbouring blocks of 2 samples" in short.stderr


def test_clients_with_repeated_rows_are_one_cluster_with_groups_only(tmp_path: Path) -> None:
    paths = []
    for k in range(8):
        np.save(tmp_path / f"p{k}.npy", patients(k))
        paths.append(tmp_path / f"p{k}.npy")
    with pytest.warns(DependenceWarning, match="p0.npy and in 7 of 7 others"):
        without = cluster_files(paths)
    assert without.clustering.labels.max() > 0
    found = cluster_files(paths, reading=Reading(blocks=5), output=tmp_path / "f")
    assert found.clustering.labels.tolist() == [0] * 8
    xs = [patients(k) for k in range(8)]
    fitted = PACFLClustering().fit(xs, groups=[GROUPS] * 8)
    assert fitted.labels_.tolist() == [0] * 8
    np.testing.assert_array_equal(fitted.proximity_, found.clustering.proximity)
    np.save(tmp_path / "late.npy", patients(9))
    joined = join_files(tmp_path / "f", [tmp_path / "late.npy"], reading=Reading(blocks=5))
    assert joined.placed == {"late": 0}
    assert fitted.predict({"late": patients(9)}, groups={"late": GROUPS}).tolist() == [0]


def test_groups_that_do_not_belong_to_the_clients_are_refused() -> None:
    xs = {"a": patients(0), "b": patients(1)}
    with pytest.raises(DataError, match="groups of 1 clients were given for 2"):
        PACFLClustering().fit(xs, groups=[GROUPS])
    with pytest.raises(DataError, match="b: has no groups"):
        PACFLClustering().fit(xs, groups={"a": GROUPS})
    with pytest.raises(DataError, match=r"b: groups must be one per sample, got shape \(3,\)"):
        PACFLClustering().fit(xs, groups=[GROUPS, GROUPS[:3]])
