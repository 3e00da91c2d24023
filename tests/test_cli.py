import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import Run


def samples(group: int, seed: int, n: int = 80) -> np.ndarray:
    """Images of 5 × 6 pixels, bright in one of three places."""
    rng = np.random.default_rng([group, seed])
    x = rng.normal(size=(n, 30)) * np.linspace(1.5, 0.3, 30)
    x[:, 10 * group : 10 * group + 3] += 4
    return x.reshape(n, 5, 6)


@pytest.fixture
def sites(tmp_path: Path) -> list[Path]:
    """Data files of ten parties in two groups."""
    paths = []
    for i in range(5):
        for group in range(2):
            paths.append(tmp_path / f"site-{group}{i}.npy")
            np.save(paths[-1], samples(group, i))
    return paths


def signed(run: Run, paths: list[Path], *options: object) -> list[Path]:
    files = [path.with_suffix(".sig") for path in paths]
    for path, file in zip(paths, files, strict=True):
        assert run("sign", path, "-o", file, *options)[0] == 0
    return files


def tree(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in folder.iterdir()}


def test_sign_cluster_join_is_the_whole_story(run: Run, sites: list[Path], tmp_path: Path) -> None:
    files = signed(run, sites)
    folder = tmp_path / "federation"
    code, out, _ = run("cluster", *files, "-o", folder)
    assert code == 0
    assert "2 clusters of 10 clients" in out
    summary = json.loads((folder / "clusters.json").read_text())
    assert {"threshold", "measure", "linkage", "evidence", "clusters"} <= set(summary)
    wanted = [[f"site-{group}{i}" for i in range(5)] for group in range(2)]
    assert sorted(map(sorted, summary["clusters"])) == wanted
    with np.load(folder / "proximity.npz", allow_pickle=False) as state:
        assert state["proximity"].shape == (10, 10)
        assert state["names"].tolist() == [path.stem for path in sites]
    assert {"dendrogram.svg", "heatmap.svg"} <= {p.name for p in folder.iterdir()}

    np.save(tmp_path / "late.npy", samples(1, 77))
    np.save(tmp_path / "stranger.npy", samples(2, 0))
    late, stranger = signed(run, [tmp_path / "late.npy", tmp_path / "stranger.npy"])
    code, out, _ = run("join", folder, late, "--json")
    assert code == 0
    answer = json.loads(out)
    assert "site-10" in answer["clusters"][answer["placed"]["late"]]
    assert answer["opened"] == []
    code, out, _ = run("join", folder, stranger)
    assert code == 0
    assert "stranger opens cluster 2" in out
    after = json.loads((folder / "clusters.json").read_text())
    assert [names[:5] for names in after["clusters"][:2]] == [names[:5] for names in summary["clusters"]]


def test_sign_lists_what_will_be_shared(run: Run, sites: list[Path], tmp_path: Path) -> None:
    _, out, _ = run("sign", sites[0], "-o", tmp_path / "a.sig", "--rank", 2, "--preprocess", "normalise")
    for word in ("30 features by 2 directions", "normalise", "samples", "80", "noise floor, smallest"):
        assert word in out
    _, out, _ = run("inspect", tmp_path / "a.sig", "--json")
    contents = json.loads(out)
    assert (contents["features"], contents["rank"], contents["samples"]) == (30, 2, 80)
    assert contents["preprocess"] == "normalise"
    assert len(contents["self_angles"]["smallest"]) == 32


def test_the_same_data_give_the_same_bytes(run: Run, sites: list[Path], tmp_path: Path) -> None:
    for name in ("a.sig", "b.sig"):
        run("sign", sites[0], "-o", tmp_path / name)
    assert (tmp_path / "a.sig").read_bytes() == (tmp_path / "b.sig").read_bytes()


def test_data_files_are_clustered_directly(run: Run, sites: list[Path]) -> None:
    direct = json.loads(run("cluster", *sites, "--json")[1])
    by_signature = json.loads(run("cluster", *signed(run, sites), "--json")[1])
    assert direct["clusters"] == by_signature["clusters"]


def test_json_is_one_object_and_nothing_else(run: Run, sites: list[Path], tmp_path: Path) -> None:
    _, out, _ = run("cluster", *sites, "-o", tmp_path / "f", "--json")
    assert json.loads(out) == json.loads((tmp_path / "f" / "clusters.json").read_text())


def test_threshold_number_measure_and_linkage_are_obeyed(run: Run, sites: list[Path]) -> None:
    answer = json.loads(run("cluster", *sites, "--json", "--threshold", 0)[1])
    assert len(answer["clusters"]) == 10
    answer = json.loads(run("cluster", *sites, "--json", "--threshold", 90, "--linkage", "single")[1])
    assert (len(answer["clusters"]), answer["linkage"], answer["threshold"]) == (1, "single", 90)
    for measure in ("smallest", "sum", "trace", "entrywise"):
        answer = json.loads(run("cluster", *sites, "--json", "--clusters", 3, "--measure", measure)[1])
        assert (len(answer["clusters"]), answer["measure"]) == (3, measure)


def test_a_space_too_small_for_the_smallest_angle_is_measured_by_the_sum(run: Run, tmp_path: Path) -> None:
    """Two 3-dimensional subspaces of 4 dimensions always share a plane: their smallest angle is 0."""
    paths = []
    for i in range(6):
        rng = np.random.default_rng(i)
        x = rng.normal(size=(200, 4)) * ([3, 2, 1, 0.1] if i % 2 else [0.1, 1, 2, 3])
        paths.append(tmp_path / f"p{i}.csv")
        np.savetxt(paths[-1], x, delimiter=",", header="a,b,c,d", comments="")
    answer = json.loads(run("cluster", *paths, "--json")[1])
    assert answer["measure"] == "sum"
    assert sorted(map(sorted, answer["clusters"])) == [["p0", "p2", "p4"], ["p1", "p3", "p5"]]


def test_per_class_signatures_work_and_are_not_mixed_with_whole_ones(
    run: Run, sites: list[Path], tmp_path: Path
) -> None:
    labels = tmp_path / "labels.npy"
    np.save(labels, np.arange(80) % 2)
    files = signed(run, sites, "--per-class", labels, "--rank", 1)
    assert len(json.loads(run("cluster", *files, "--json")[1])["clusters"]) == 2
    run("sign", sites[0], "-o", files[0])
    code, _, err = run("cluster", *files)
    assert code == 1
    assert "per-class decomposition" in err
    assert "site-00" in err


@pytest.mark.parametrize(
    ("options", "why"),
    [(["--preprocess", "unit"], "preprocessing"), (["--rank", 2], None)],
)
def test_signatures_made_differently_are_refused(
    run: Run, sites: list[Path], options: list[object], why: str | None
) -> None:
    files = signed(run, sites)
    run("sign", sites[0], "-o", files[0], *options)
    code, _, err = run("cluster", *files)
    assert code == (1 if why else 0)
    assert (why or "") in err


def test_unequal_features_are_refused(run: Run, sites: list[Path], tmp_path: Path) -> None:
    np.save(tmp_path / "wide.npy", np.random.default_rng(0).normal(size=(50, 31)))
    code, _, err = run("cluster", *sites, tmp_path / "wide.npy")
    assert code == 1
    assert "features" in err
    assert "wide" in err


def test_a_broken_newcomer_leaves_everything_as_it_was(run: Run, sites: list[Path], tmp_path: Path) -> None:
    folder = tmp_path / "federation"
    files = signed(run, sites)
    run("cluster", *files, "-o", folder)
    before = tree(folder)
    (tmp_path / "bad.sig").write_bytes(files[0].read_bytes()[:-10])
    np.save(tmp_path / "other.npy", np.random.default_rng(0).normal(size=(50, 31)))
    shutil.copy(sites[0], tmp_path / "unit.npy")
    for newcomer, why in (
        (tmp_path / "bad.sig", "cut short"),
        (files[0], "already in the federation"),
        (signed(run, [tmp_path / "other.npy"])[0], "features"),
        (signed(run, [tmp_path / "unit.npy"], "--preprocess", "unit")[0], "preprocess"),
    ):
        code, _, err = run("join", folder, newcomer)
        assert code == 1
        assert why in err
        assert tree(folder) == before


def test_a_folder_with_other_files_is_not_touched(run: Run, sites: list[Path], tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "thesis.tex").write_text("years of work")
    code, _, err = run("cluster", *sites, "-o", folder)
    assert code == 1
    assert "thesis.tex" in err
    assert set(tree(folder)) == {"thesis.tex"}


def test_clustering_again_into_the_same_folder_replaces_it(run: Run, sites: list[Path], tmp_path: Path) -> None:
    for k in (2, 3):
        assert run("cluster", *sites, "-o", tmp_path / "f", "--clusters", k)[0] == 0
    assert len(json.loads((tmp_path / "f" / "clusters.json").read_text())["clusters"]) == 3


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["cluster", "none.sig"], "none.sig: cannot be read"),
        (["cluster", "DATA", "--threshold", "much"], "'auto' or a number of degrees"),
        (["cluster", "DATA", "--threshold", "-3"], "'auto' or a number of degrees"),
        (["cluster", "DATA", "--threshold", "3", "--clusters", "2"], "not both"),
        (["cluster", "DATA", "--clusters", "2"], "more than there are clients"),
        (["cluster", "DATA", "DATA"], "occurs twice"),
        (["sign", "DATA", "-o", "a.txt"], "named NAME.sig"),
        (["sign", "DATA", "-o", "a.sig", "--resize", "big"], "WIDTHxHEIGHT"),
        (["sign", "none.npy", "-o", "a.sig"], "no such file"),
        (["join", "nowhere", "DATA"], "no such folder"),
    ],
)
def test_mistakes_are_told_in_one_line(run: Run, sites: list[Path], words: list[str], why: str) -> None:
    code, _, err = run(*(sites[0] if word == "DATA" else word for word in words))
    assert code == 1
    assert why in err
    assert "Traceback" not in err


def test_bad_data_are_refused_with_the_file_named(run: Run, tmp_path: Path) -> None:
    for name, x, why in (
        ("nan.npy", np.full((5, 4), np.nan), "finite"),
        ("zeros.npy", np.zeros((5, 4)), "all zeros"),
        ("none.npy", np.zeros((0, 4)), "at least one sample"),
        ("text.npy", np.array([["a", "b"]]), "numbers"),
    ):
        np.save(tmp_path / name, x)
        code, _, err = run("sign", tmp_path / name, "-o", tmp_path / "a.sig")
        assert code == 1
        assert name in err
        assert why in err
        assert not (tmp_path / "a.sig").exists()


def test_fewer_directions_than_asked_are_said(run: Run, tmp_path: Path) -> None:
    np.save(tmp_path / "two.npy", np.random.default_rng(0).normal(size=(2, 9)))
    code, _, err = run("sign", tmp_path / "two.npy", "-o", tmp_path / "two.sig")
    assert code == 0
    assert "3 directions were asked for, the data have 2" in err


def test_pictures_are_left_out_with_a_note_where_matplotlib_is_missing(
    run: Run, sites: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    code, _, err = run("cluster", *sites, "-o", tmp_path / "f")
    assert code == 0
    assert "pacfl[figures]" in err
    assert (tmp_path / "f" / "clusters.json").exists()


def test_the_demonstration_finds_its_four_styles_and_places_the_newcomer(run: Run, tmp_path: Path) -> None:
    pytest.importorskip("sklearn", reason="the demonstration needs scikit-learn")
    for _ in range(2):  # quick, and harmless, when run again
        code, out, _ = run("demo", tmp_path / "demo")
        assert code == 0
        assert "newcomer joins cluster" in out
    summary = json.loads((tmp_path / "demo" / "federation" / "clusters.json").read_text())
    styles = [sorted({name.split("-")[0] for name in names} - {"newcomer"}) for names in summary["clusters"]]
    assert sorted(styles) == [["mirrored"], ["negative"], ["turned"], ["upright"]]
    assert "turned" in {name.split("-")[0] for names in summary["clusters"] if "newcomer" in names for name in names}
    shutil.rmtree(tmp_path / "demo")
