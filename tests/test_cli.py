import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import pacfl
from pacfl.signatures import SignatureFile, sigfile
from tests.conftest import Run


def samples(group: int, seed: int, n: int = 80) -> np.ndarray:
    """Images of 5 × 6 pixels, bright in one of three places."""
    rng = np.random.default_rng([group, seed])
    x = rng.normal(size=(n, 30)) * np.linspace(1.5, 0.3, 30)
    x[:, 10 * group : 10 * group + 3] += 4
    return x.reshape(n, 5, 6)


@pytest.fixture
def sites(tmp_path: Path) -> list[Path]:
    """Data files of ten clients in two groups."""
    paths = []
    for i in range(5):
        for group in range(2):
            paths.append(tmp_path / f"site-{group}{i}.npy")
            np.save(paths[-1], samples(group, i))
    return paths


def sign(run: Run, paths: list[Path], *options: object) -> list[Path]:
    files = [path.with_suffix(".sig") for path in paths]
    for path, file in zip(paths, files, strict=True):
        assert run("sign", path, "-o", file, *options)[0] == 0
    return files


def contents(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in folder.iterdir() if p.name != ".lock"}


def test_signatures_are_clustered_and_newcomers_join(run: Run, sites: list[Path], tmp_path: Path) -> None:
    files = sign(run, sites)
    folder = tmp_path / "federation"
    code, out, _ = run("cluster", *files, "-o", folder)
    assert code == 0
    assert "2 clusters of 10 clients" in out
    summary = json.loads((folder / "clusters.json").read_text())
    assert {"threshold", "measure", "linkage", "evidence", "clusters"} <= set(summary)
    wanted = [[f"site-{group}{i}" for i in range(5)] for group in range(2)]
    assert sorted(map(sorted, summary["clusters"])) == wanted
    with np.load(folder / "proximity.npz", allow_pickle=False) as state:
        assert state["proximity"].shape == (45,)
        assert state["names"].tolist() == [path.stem for path in sites]
    assert {"dendrogram.svg", "heatmap.svg"} <= {p.name for p in folder.iterdir()}

    np.save(tmp_path / "late.npy", samples(1, 77))
    np.save(tmp_path / "other.npy", samples(2, 0))
    late, other = sign(run, [tmp_path / "late.npy", tmp_path / "other.npy"])
    code, out, _ = run("join", folder, late, "--json")
    assert code == 0
    answer = json.loads(out)
    assert "site-10" in answer["clusters"][answer["placed"]["late"]]
    assert answer["opened"] == []
    code, out, _ = run("join", folder, other)
    assert code == 0
    assert "other opens cluster 2" in out
    after = json.loads((folder / "clusters.json").read_text())
    assert [names[:5] for names in after["clusters"][:2]] == [names[:5] for names in summary["clusters"]]


def test_sign_lists_what_is_in_the_file(run: Run, sites: list[Path], tmp_path: Path) -> None:
    _, out, _ = run("sign", sites[0], "-o", tmp_path / "a.sig", "--rank", 2, "--preprocess", "normalise")
    for word in (
        "30 features by 2 directions",
        "normalise",
        "samples",
        "80",
        "noise scale, smallest",
        "computed from 80 samples",
    ):
        assert word in out
    _, out, _ = run("inspect", tmp_path / "a.sig", "--json")
    listed = json.loads(out)
    assert (listed["features"], listed["rank"], listed["samples"]) == (30, 2, 80)
    assert listed["preprocess"] == "normalise"
    assert len(listed["self_angles"]["smallest"]) == 32


def test_the_same_data_give_the_same_bytes(run: Run, sites: list[Path], tmp_path: Path) -> None:
    for name in ("a.sig", "b.sig"):
        run("sign", sites[0], "-o", tmp_path / name)
    assert (tmp_path / "a.sig").read_bytes() == (tmp_path / "b.sig").read_bytes()


def test_data_files_are_clustered_directly(run: Run, sites: list[Path]) -> None:
    direct = json.loads(run("cluster", *sites, "--json")[1])
    by_signature = json.loads(run("cluster", *sign(run, sites), "--json")[1])
    assert direct["clusters"] == by_signature["clusters"]


def test_json_is_one_object_and_nothing_else(run: Run, sites: list[Path], tmp_path: Path) -> None:
    _, out, _ = run("cluster", *sites, "-o", tmp_path / "f", "--json")
    assert json.loads(out) == {"kind": "clusters", **json.loads((tmp_path / "f" / "clusters.json").read_text())}


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
    files = sign(run, sites, "--per-class", labels, "--rank", 1)
    assert len(json.loads(run("cluster", *files, "--json")[1])["clusters"]) == 2
    run("sign", sites[0], "-o", files[0])
    code, _, err = run("cluster", *files)
    assert code == 1
    assert "per-class decomposition" in err
    assert "site-00" in err


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--preprocess", "unit"], "differ in preprocessing: unit: site-00; raw:"),
        (["--rank", 2], "differ in rank: 2: site-00; 3:"),
    ],
)
def test_signatures_made_with_other_settings_are_refused(
    run: Run, sites: list[Path], tmp_path: Path, options: list[object], why: str
) -> None:
    files = sign(run, sites)
    run("cluster", *files[1:], "-o", tmp_path / "f")
    run("sign", sites[0], "-o", files[0], *options)
    code, _, err = run("cluster", *files)
    assert code == 1
    assert why in err
    assert "sign again with the same options" in err
    code, _, err = run("join", tmp_path / "f", files[0])
    assert code == 1
    assert why.split(":")[0] in err


def test_unequal_features_are_refused(run: Run, sites: list[Path], tmp_path: Path) -> None:
    np.save(tmp_path / "wide.npy", np.random.default_rng(0).normal(size=(50, 31)))
    code, _, err = run("cluster", *sites, tmp_path / "wide.npy")
    assert code == 1
    assert "features" in err
    assert "wide" in err


def test_a_broken_newcomer_leaves_everything_as_it_was(run: Run, sites: list[Path], tmp_path: Path) -> None:
    folder = tmp_path / "federation"
    files = sign(run, sites)
    run("cluster", *files, "-o", folder)
    before = contents(folder)
    (tmp_path / "bad.sig").write_bytes(files[0].read_bytes()[:-10])
    np.save(tmp_path / "other.npy", np.random.default_rng(0).normal(size=(50, 31)))
    shutil.copy(sites[0], tmp_path / "unit.npy")
    for newcomer, why in (
        (tmp_path / "bad.sig", "cut short"),
        (files[0], "already in the federation"),
        (sign(run, [tmp_path / "other.npy"])[0], "features"),
        (sign(run, [tmp_path / "unit.npy"], "--preprocess", "unit")[0], "preprocess"),
    ):
        code, _, err = run("join", folder, newcomer)
        assert code == 1
        assert why in err
        assert contents(folder) == before


def test_a_folder_with_other_files_is_not_touched(run: Run, sites: list[Path], tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "thesis.tex").write_text("years of work")
    code, _, err = run("cluster", *sites, "-o", folder)
    assert code == 1
    assert "thesis.tex" in err
    assert set(contents(folder)) == {"thesis.tex"}


def test_the_output_folder_is_checked_before_any_work(run: Run, tmp_path: Path) -> None:
    """The data file does not exist: whichever is checked first is named in the error."""
    (tmp_path / "file").write_text("in the way")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("years of work")
    for folder, why in (("file", "is a file"), ("file/below", "file does not permit it"), ("mine", "thesis.tex")):
        code, _, err = run("cluster", tmp_path / "none.npy", "-o", tmp_path / folder)
        assert code == 1
        assert why in err
    assert "none.npy" in run("cluster", tmp_path / "none.npy", "-o", tmp_path / "new")[2]
    assert not (tmp_path / "new").exists()


def test_a_federation_is_replaced_only_by_force(run: Run, sites: list[Path], tmp_path: Path) -> None:
    folder = tmp_path / "f"
    assert run("cluster", *sites, "-o", folder, "--clusters", 2)[0] == 0
    before = contents(folder)
    code, _, err = run("cluster", *sites, "-o", folder, "--clusters", 3)
    assert code == 1
    for words in ("holds a federation", "pacfl join", "--force"):
        assert words in err
    assert contents(folder) == before
    assert run("cluster", *sites, "-o", folder, "--clusters", 3, "--force")[0] == 0
    assert len(json.loads((folder / "clusters.json").read_text())["clusters"]) == 3


def test_what_a_killed_process_left_does_not_block_the_folder(run: Run, sites: list[Path], tmp_path: Path) -> None:
    folder = tmp_path / "f"
    folder.mkdir()
    for name in (".proximity.npz.abc123.part", ".clusters.json.x.part", ".heatmap.svg.0.part"):
        (folder / name).write_bytes(b"half")
    assert run("cluster", *sites, "-o", folder)[0] == 0
    assert not list(folder.glob(".*.part"))
    (folder / ".proximity.npz.abc123.part").write_bytes(b"half")
    np.save(tmp_path / "late.npy", samples(1, 77))
    assert run("join", folder, tmp_path / "late.npy")[0] == 0
    assert not list(folder.glob(".*.part"))


def test_a_part_of_a_foreign_file_is_not_touched(run: Run, sites: list[Path], tmp_path: Path) -> None:
    (tmp_path / "f").mkdir()
    (tmp_path / "f" / "film.mkv.part").write_bytes(b"half")
    code, _, err = run("cluster", *sites, "-o", tmp_path / "f")
    assert code == 1
    assert "film.mkv.part" in err
    assert set(contents(tmp_path / "f")) == {"film.mkv.part"}


def test_join_on_a_ward_federation_works_or_says_why_not(run: Run, sites: list[Path], tmp_path: Path) -> None:
    assert run("cluster", *sites, "-o", tmp_path / "f", "--linkage", "ward")[0] == 0
    np.save(tmp_path / "late.npy", samples(1, 77))
    code, out, err = run("join", tmp_path / "f", tmp_path / "late.npy")
    assert (code == 0 and "late joins cluster 1" in out) or (code == 1 and "cluster all clients again" in err)


def test_what_is_not_guaranteed_is_printed(run: Run, sites: list[Path]) -> None:
    assert "guaranteed" not in run("cluster", *sites)[1]
    shown = " ".join(run("cluster", *sites, "--preprocess", "normalise")[1].split())
    assert shown.lower().count("not guaranteed: with --preprocess normalise") == 1
    evidence = json.loads(run("cluster", *sites, "--preprocess", "normalise", "--json")[1])["evidence"]
    assert evidence["guaranteed"] is False
    assert "noise scale" in str(evidence["not_guaranteed_because"])


def test_one_is_singular(run: Run, sites: list[Path], tmp_path: Path) -> None:
    assert "1 cluster of 1 client" in run("cluster", sites[0], "-o", tmp_path / "f", "--threshold", 90)[1]
    assert "2 clients in 1 cluster," in run("join", tmp_path / "f", sites[2])[1]


@pytest.mark.parametrize(
    "options",
    [
        ["--rank", 3],
        ["--preprocess", "raw"],
        ["--per-class", "y.npy"],
        ["--array", "x"],
        ["--drop", "a"],
        ["--no-header"],
        ["--resize", "4x4"],
        ["--grey"],
    ],
    ids=str,
)
def test_options_for_data_are_refused_with_signatures(run: Run, sites: list[Path], options: list[object]) -> None:
    files = sign(run, sites[:2])
    code, _, err = run("cluster", *files, *options)
    assert code == 1
    assert "apply to data files only" in err


def test_options_of_join_for_data_are_refused_with_signatures(run: Run, sites: list[Path], tmp_path: Path) -> None:
    files = sign(run, sites)
    run("cluster", *files[:-1], "-o", tmp_path / "f")
    for options in (["--drop", "a"], ["--array", "x"], ["--header"]):
        code, _, err = run("join", tmp_path / "f", files[-1], *options)
        assert code == 1
        assert "apply to data files only" in err


def test_options_for_the_folder_need_one(run: Run, sites: list[Path]) -> None:
    for option in (["--force"], ["--pictures", "png"]):
        code, _, err = run("cluster", *sites, *option)
        assert code == 1
        assert "name one with --output" in err


def test_newcomers_data_are_read_as_the_federations_were(run: Run, sites: list[Path], tmp_path: Path) -> None:
    run("cluster", *sites, "-o", tmp_path / "f", "--rank", 2, "--preprocess", "unit")
    np.save(tmp_path / "late.npy", samples(1, 77))
    assert "late joins cluster 1" in run("join", tmp_path / "f", tmp_path / "late.npy")[1]
    labels = tmp_path / "labels.npy"
    np.save(labels, np.arange(80) % 2)
    run("cluster", *sites, "-o", tmp_path / "g", "--per-class", labels)
    code, _, err = run("join", tmp_path / "g", tmp_path / "late.npy")
    assert code == 1
    assert "sign newcomers with --per-class first" in err


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
        (["sign", "none.npy", "-o", "nowhere/a.sig"], "there is no folder nowhere"),
        (["join", "nowhere", "DATA"], "is no folder: nothing has this name"),
    ],
)
def test_mistakes_are_explained_in_one_line(run: Run, sites: list[Path], words: list[str], why: str) -> None:
    code, _, err = run(*(sites[0] if word == "DATA" else word for word in words))
    assert code == 1
    assert why in err
    assert "Traceback" not in err


def test_a_header_of_numbers_is_asked_about(run: Run, tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(40, 3)).round(3)
    np.savetxt(tmp_path / "a.csv", x, delimiter=",", header="2019,2020,2021", comments="", fmt="%g")
    code, _, err = run("sign", tmp_path / "a.csv", "-o", tmp_path / "a.sig", "--rank", 1)
    assert code == 1
    assert "--header or --no-header" in err
    for option, n in (("--header", 40), ("--no-header", 41)):
        out = run("sign", tmp_path / "a.csv", "-o", tmp_path / "a.sig", "--rank", 1, option, "--json")[1]
        assert json.loads(out)["samples"] == n


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


def test_fewer_directions_than_asked_are_noted(run: Run, tmp_path: Path) -> None:
    np.save(tmp_path / "two.npy", np.random.default_rng(0).normal(size=(40, 2)))
    code, _, err = run("sign", tmp_path / "two.npy", "-o", tmp_path / "two.sig")
    assert code == 0
    assert "3 directions were asked for, the data have 2" in err


@pytest.mark.parametrize("n", [1, 2, 3])
def test_samples_that_would_span_the_signature_are_not_signed(run: Run, tmp_path: Path, n: int) -> None:
    """At most as many samples as directions: the span of the basis is that of the samples."""
    np.save(tmp_path / "few.npy", np.random.default_rng(0).normal(size=(n, 9)))
    code, _, err = run("sign", tmp_path / "few.npy", "-o", tmp_path / "few.sig")
    assert code == 1
    for words in ("few.npy", f"{n} sample", "rank 3", "--epsilon"):
        assert words in err
    assert not (tmp_path / "few.sig").exists()
    assert run("sign", tmp_path / "few.npy", "-o", tmp_path / "few.sig", "--epsilon", 2)[0] == 0


def test_a_class_of_few_samples_is_not_signed(run: Run, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=(40, 9)))
    np.save(tmp_path / "y.npy", np.repeat([0, 7], [38, 2]))
    code, _, err = run(
        "sign", tmp_path / "x.npy", "-o", tmp_path / "x.sig", "--per-class", tmp_path / "y.npy", "--rank", 2
    )
    assert code == 1
    assert "class 7 has 2 samples at rank 2" in err


@pytest.mark.parametrize(("n", "warned"), [(4, True), (29, True), (30, False)])
def test_few_samples_per_direction_are_warned_of(run: Run, tmp_path: Path, n: int, warned: bool) -> None:
    np.save(tmp_path / "few.npy", np.random.default_rng(0).normal(size=(n, 9)))
    code, _, err = run("sign", tmp_path / "few.npy", "-o", tmp_path / "few.sig")
    assert code == 0
    assert ("directions may resemble single samples" in err and "--epsilon" in err) == warned


def test_a_file_that_spans_its_samples_is_said_to_hold_them(run: Run, tmp_path: Path) -> None:
    """Such files cannot be made by `pacfl sign`; they may come from elsewhere."""
    sigfile.write(tmp_path / "a.sig", SignatureFile(np.eye(9, 1, dtype=np.float32), 3, False, "raw", 1))
    assert "1 sample is in it" in run("inspect", tmp_path / "a.sig")[1]


def test_pictures_are_skipped_with_a_note_where_matplotlib_is_missing(
    run: Run, sites: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    code, _, err = run("cluster", *sites, "-o", tmp_path / "f")
    assert code == 0
    assert "pacfl[figures]" in err
    assert (tmp_path / "f" / "clusters.json").exists()


WITHOUT_TORCH = """
import sys
class Nothing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("torch", "sklearn", "flwr", "llvmlite"):
            raise ImportError(f"{name} is not here")
sys.meta_path.insert(0, Nothing())
from pathlib import Path
from pacfl.signatures import cluster_files, join_files, sign_file
folder, *paths = map(Path, sys.argv[1:])
signed = [path.with_suffix(".sig") for path in paths]
for path, file in zip(paths, signed):
    sign_file(path, file)
federation = cluster_files(signed[:-1], output=folder)
joined = join_files(folder, signed[-1:])
print(len(federation.clusters()), joined.placed)
"""


def test_the_library_does_all_without_torch(sites: list[Path], tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH, tmp_path / "f", *sites],
        env={**os.environ, "PYTHONPATH": str(Path(pacfl.__file__).parents[1])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "2 {'site-14': 1}\n", done.stderr


def test_the_demonstration_finds_its_four_styles_and_places_the_newcomer(run: Run, tmp_path: Path) -> None:
    pytest.importorskip("sklearn", reason="the demonstration needs scikit-learn")
    code, out, _ = run("demo", tmp_path / "demo")
    assert code == 0
    assert "newcomer joins cluster" in out
    summary = json.loads((tmp_path / "demo" / "federation" / "clusters.json").read_text())
    styles = [sorted({name.split("-")[0] for name in names} - {"newcomer"}) for names in summary["clusters"]]
    assert sorted(styles) == [["mirrored"], ["negative"], ["turned"], ["upright"]]
    assert "turned" in {name.split("-")[0] for names in summary["clusters"] if "newcomer" in names for name in names}
    code, out, _ = run("demo", tmp_path / "demo", "--json")  # it may be run again
    assert json.loads(out)["clusters"] == summary["clusters"]
    shutil.rmtree(tmp_path / "demo")
