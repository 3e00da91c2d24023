"""The diagnosis of a federation, and why two of its clients differ: files, folders, the command line and arrays."""

import csv
import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from pacfl import PACFLClustering
from pacfl.cli import app
from pacfl.cli.signature_display import shaded
from pacfl.errors import ConfigError, DataError, SignatureError
from pacfl.features.reading import Samples
from pacfl.signatures import Reading, cluster_files, explain_pair, join_files, sigfile, sign_file
from pacfl.signatures import federation as federations
from pacfl.signatures import folder as folders
from pacfl.signatures.explaining import Description
from pacfl.signatures.federation import Federation
from pacfl.signatures.signing import sign, sign_privately
from tests.signatures.labelled import CLASSES, FEATURES, parties, samples

COLUMNS = ("age", "pressure", "glucose", "weight", "creatinine")
LEVELS = np.array([[50.0, 120.0, 90.0, 70.0, 1.0], [60.0, 140.0, 110.0, 80.0, 1.6]])
SPREAD = np.array([8.0, 10.0, 10.0, 9.0, 0.2])
SWAP = {"0": "2", "2": "0"}


def hospital(i: int) -> tuple[Any, Any]:
    """From the fifth on with creatinine in another unit."""
    rng = np.random.default_rng(i)
    y = rng.integers(0, 2, 150)
    x = LEVELS[y] + SPREAD * rng.standard_normal((150, 5))
    x[:, 4] *= 88.4 if i >= 5 else 1.0
    return x, np.where(y, "sick", "well")


@cache
def hospitals() -> Federation:
    clients = {
        f"h{i}": sign(f"h{i}", Samples(*hospital(i), COLUMNS), 3, Reading(labels="state")) for i in range(8)
    }  # fmt: skip
    return federations.federate(clients)


@cache
def swapped() -> Federation:
    """Every second client labels 0 what others label 2, and the other way round; one is too small."""
    made = {f"p{i}": samples(i) for i in range(8)}
    other = np.arange(CLASSES)
    other[[0, 2]] = 2, 0
    clients = {
        name: sign(name, Samples(x, other[y] if i % 2 else y), 3, Reading(labels="y"))
        for i, (name, (x, y)) in enumerate(made.items())
    }
    small = sign("small", Samples(*samples(77, counts=(3,) * CLASSES)), 3, Reading(labels="y"))
    return federations.federate({**clients, "small": small})


def run(*words: object) -> Any:
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == 0, result.output
    return result


def test_the_summary_has_the_diagnosis_and_leaves_the_finding_as_it_was() -> None:
    summary = json.loads(json.dumps(swapped().summary(), allow_nan=False))
    assert summary["evidence"]["finding"] == "distinct"
    found = summary["diagnosis"]
    assert {"kind", "size", "recommendation", "within_clusters", "differences", "pairs", "words"} <= found.keys()
    assert (found["kind"], found["recommendation"], found["within_clusters"]) == ("concept", "apart", "together")
    (pair,) = found["pairs"]
    assert pair["clusters"] == [0, 1]
    assert {one["a"]: one["b"] for one in pair["relabelled"]} == SWAP
    assert found["size"] == pair["size"] > 1
    assert "What cluster 0 labels 0, cluster 1 labels 2" in found["words"]


def test_arrays_files_and_the_command_line_have_the_same_diagnosis_and_explanation(tmp_path: Path) -> None:
    paths = []
    for i in range(8):
        x, y = hospital(i)
        paths.append(tmp_path / f"h{i}.csv")
        with paths[-1].open("w", newline="") as file:
            csv.writer(file).writerows(
                [(*COLUMNS, "state"), *((*row, of) for row, of in zip(x.tolist(), y, strict=True))]
            )
    folder = tmp_path / "federation"
    printed = json.loads(run("cluster", *paths, "--labels", "state", "-o", folder, "--json").stdout)
    made = PACFLClustering().fit(*({f"h{i}": hospital(i)[k] for i in range(8)} for k in (0, 1)))
    assert printed["diagnosis"] == json.loads(json.dumps(made.diagnosis_.as_json()))
    assert json.loads((folder / "clusters.json").read_text())["diagnosis"] == printed["diagnosis"]
    by_command = json.loads(run("explain", folder, "h0", "h7", "--json").stdout)
    assert by_command.pop("folder")["kind"] == "clusters"
    assert by_command == json.loads(json.dumps(explain_pair(folder, "h0", "h7").as_json()))
    assert by_command == json.loads(json.dumps(hospitals().explain("h0", "h7").as_json()))
    ours = made.explain("h0", "h7").as_json()  # arrays have no names of columns
    assert {key: by_command[key] for key in ("kind", "size", "above_noise")} == {
        key: ours[key] for key in ("kind", "size", "above_noise")
    }
    assert made.explain(0, 7).as_json() == ours


def test_the_column_in_another_unit_is_named_and_so_are_the_clients() -> None:
    found = hospitals().explain("h0", "h7")
    assert "h0 and h7 differ in creatinine (different unit?" in found.words
    assert found.names == ("h0", "h7")
    (factor,) = [1 / one.factor for one in found.features if one.factor]
    assert factor == pytest.approx(88.4, rel=0.1)
    assert "client 0" not in found.words


def test_a_data_frame_names_its_columns() -> None:
    pandas = pytest.importorskip("pandas", reason="data frames need pandas")
    frames = [pandas.DataFrame(hospital(i)[0], columns=COLUMNS) for i in (0, 1, 2, 5, 6, 7)]
    found = PACFLClustering().fit(frames, [hospital(i)[1] for i in (0, 1, 2, 5, 6, 7)]).explain(0, 5)
    assert "creatinine (different unit?" in found.words


def test_what_one_labels_otherwise_is_said_with_their_names() -> None:
    words = swapped().explain("p0", "p1").words
    assert "what p0 labels 0, p1 labels 2" in words.replace("What", "what")
    by_cluster = swapped().explain(0, 1, "clusters")
    assert {one.a: one.b for one in by_cluster.relabelled} == SWAP
    assert "cluster 0 labels 2, cluster 1 labels 0" in by_cluster.words
    assert "differ by no more than noise" in swapped().explain("p0", "p2").words


def test_class_shares_that_differ_are_named() -> None:
    skewed = {f"p{i}": samples(i, counts=(60, 60, 8, 8) if i % 2 else (8, 8, 60, 60)) for i in range(8)}
    made = PACFLClustering().fit({n: x for n, (x, _) in skewed.items()}, {n: y for n, (_, y) in skewed.items()})
    assert (made.diagnosis_.kind, made.diagnosis_.recommendation) == ("labels", "label-prior")
    found = made.explain("p0", "p1")
    assert found.kind == "labels"
    assert "is 6% of p0 and 44% of p1" in found.words
    assert sum(one.a for one in found.shares) == pytest.approx(1)


def test_images_are_explained_in_their_shape(tmp_path: Path) -> None:
    """A bright corner in every second client."""
    rng, paths = np.random.default_rng(0), []
    for i in range(6):
        x = 1 + 0.1 * rng.standard_normal((80, 6, 5))
        x[:, 4:, 3:] += 3 * (i % 2)
        paths.append(tmp_path / f"p{i}.npz")
        np.savez(paths[-1], x=x, y=np.arange(80) % 2)
    federation = cluster_files(paths, reading=Reading(labels="y"), output=tmp_path / "federation")
    found = explain_pair(tmp_path / "federation", "p0", "p1")
    assert found.contributions.shape == (6, 5)
    assert found.contributions[4:, 3:].sum() > 0.5
    assert "half of it in rows 4 to 5 and columns 3 to 4 of the image" in federation.explain("p0", "p1").words
    assert "█" in run("explain", tmp_path / "federation", "p0", "p1").stdout
    sign_file(paths[0], tmp_path / "p0.sig", reading=Reading(labels="y"))
    assert sigfile.read(tmp_path / "p0.sig").shape == (6, 5)


@pytest.mark.parametrize("shape", [[7], [5, 5], [-4, -5], ["4", 5], 20, [20]])
def test_a_shape_that_the_features_do_not_have_is_refused(tmp_path: Path, shape: Any) -> None:
    made = sign("p", Samples(samples(0)[0]), 2, Reading())
    content = made.contents() | {"shape": shape}
    type(made).contents, before = lambda _: content, type(made).contents
    try:
        sigfile.write(tmp_path / "p.sig", made)
    finally:
        type(made).contents = before
    with pytest.raises(SignatureError, match="shape"):
        sigfile.read(tmp_path / "p.sig")


def test_a_picture_shows_where_values_are_large() -> None:
    assert shaded(np.array([[0.0, 1.0], [0.5, 0.0]])) == ["  ██", "▒▒  "]
    large = np.zeros((64, 40))
    large[:2] = 1.0
    lines = shaded(large)
    assert (len(lines), len(lines[0])) == (32, 40)
    assert [set(line) for line in lines[:2]] == [{"█"}, {" "}]


def test_after_a_join_the_diagnosis_is_of_the_new_state(tmp_path: Path) -> None:
    xs, ys = parties(6, kinds=1)
    for name in xs:
        np.savez(tmp_path / f"{name}.npz", x=xs[name], y=ys[name])
    folder = tmp_path / "federation"
    before = cluster_files(sorted(tmp_path.glob("p*.npz")), reading=Reading(labels="y"), output=folder)
    assert (before.diagnosis.kind, before.diagnosis.pairs) == ("none", ())
    x, y = samples(50, 1)
    np.savez(tmp_path / "other.npz", x=x, y=y)
    after = join_files(folder, [tmp_path / "other.npz"], reading=Reading(labels="y")).federation
    assert after.diagnosis.kind == "concept"
    assert json.loads((folder / "clusters.json").read_text())["diagnosis"]["kind"] == "concept"
    assert explain_pair(folder, "p0", "other").kind == "concept"


@pytest.mark.parametrize(
    ("pair", "between", "message"),
    [
        (("p0", "p9"), "clients", "p9: is no client of this federation; its clients are p0, p1"),
        (("p0", "p0"), "clients", "p0: was named twice"),
        (("p0", 0), "clients", "0: was named twice"),
        (("p0", 9), "clients", "9: is no client"),
        (("p0", "small"), "clients", "small: cannot be judged, so nothing can be explained: no class has 4 samples"),
        (("0", "2"), "clusters", "2: is no number of a cluster; there are 2 clusters, 0 to 1"),
        (("p0", "1"), "clusters", "p0: is no number of a cluster"),
    ],
)
def test_what_cannot_be_explained_is_refused(pair: tuple[str, str], between: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        swapped().explain(*pair, between)


def test_a_folder_that_is_not_there_and_an_unknown_kind_of_pair_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="nothing: is no folder"):
        explain_pair(tmp_path / "nothing", "a", "b")
    fitted = PACFLClustering().fit([hospital(i)[0] for i in range(3)])
    with pytest.raises(ConfigError, match="between"):
        fitted.explain(0, 1, "groups")  # type: ignore[arg-type] # that is what is tested


def test_a_loaded_federation_explains_as_before(tmp_path: Path) -> None:
    folders.save(hospitals(), tmp_path)
    loaded = folders.load(tmp_path)
    assert loaded.descriptions == hospitals().descriptions == (Description(150, COLUMNS),) * 8
    assert loaded.explain("h0", "h7").as_json() == hospitals().explain("h0", "h7").as_json()


def test_a_folder_of_format_3_is_read_and_explained_without_names_of_columns(tmp_path: Path) -> None:
    folders.save(hospitals(), tmp_path)
    with np.load(tmp_path / folders.STATE) as state:
        arrays = dict(state)
    settings = json.loads(str(arrays["settings"]))
    del settings["clients"]
    arrays["settings"] = np.array(json.dumps(settings | {"format": 3}))
    np.savez(tmp_path / folders.STATE, **arrays)
    loaded = folders.load(tmp_path)
    assert "feature 4 (different unit?" in loaded.explain("h0", "h7").words
    assert loaded.diagnosis.kind == "inputs"


def test_columns_of_other_names_are_pointed_out() -> None:
    other = ("age", "pressure", "weight", "glucose", "creatinine")
    clients = {f"h{i}": sign(f"h{i}", Samples(*hospital(i), COLUMNS), 3, Reading(labels="state")) for i in range(3)}
    made = federations.federate(clients)
    first, *rest = made.descriptions
    older = (first, *(replace(one, columns=other) for one in rest))  # of a folder made before columns were aligned
    stored = replace(made, descriptions=older)
    words = stored.explain("h0", "h1").words
    assert "column 2 is glucose in h0 and weight in h1, and 1 more" in words


def test_hashed_names_and_private_signatures_are_said_to_be_so(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("k" * 32)
    made = {f"p{i}": samples(i, i % 2) for i in range(6)}
    clients = {n: sign(n, Samples(*s), 3, Reading(labels="y", hash_labels=key)) for n, s in made.items()}
    assert "Names of classes are hashed" in federations.federate(clients).explain("p0", "p1").words
    paths = []
    for i in range(3):
        np.save(tmp_path / f"q{i}.npy", np.random.default_rng(i).standard_normal((400, FEATURES)))
        paths.append(tmp_path / f"q{i}.sig")
        sign_file(tmp_path / f"q{i}.npy", paths[-1], epsilon=5.0)
    hidden = cluster_files(paths, clusters=1)
    assert "labels are needed" in hidden.explain("q0", "q1").words
    assert "labels are needed" in hidden.diagnosis.words


def test_private_counts_are_not_compared() -> None:
    """Other labels are found; class shares and sizes, whose counts have noise, are not looked at."""
    clients = {}
    for i in range(6):
        x, y = samples(i, i % 2, counts=(150,) * CLASSES)
        classes = [str(c) for c in range(CLASSES)]
        clients[f"p{i}"] = sign_privately(f"p{i}", Samples(x, y), 3, Reading(labels="y"), 4.0, 1e-5, classes)
    found = federations.federate(clients)
    assert found.diagnosis.kind == "concept"
    assert found.diagnosis.within_clusters == "together"
    assert "Counts are private" in found.diagnosis.words
    assert found.explain("p0", "p1").shares == ()


@pytest.mark.parametrize("n", [5, 60])
def test_a_private_table_of_any_width_can_be_read(tmp_path: Path, n: int) -> None:
    """60 columns are reduced to 48 features, which have no names."""
    rows = np.random.default_rng(0).standard_normal((100, n)).tolist()
    with (tmp_path / "wide.csv").open("w", newline="") as file:
        csv.writer(file).writerows([[f"c{i}" for i in range(n)], *rows])
    sign_file(tmp_path / "wide.csv", tmp_path / "wide.sig", epsilon=1.0)
    assert (sigfile.read(tmp_path / "wide.sig").columns is None) == (n == 60)


def test_clients_in_no_cluster_have_a_row_of_the_table() -> None:
    assert swapped().table()[-1] == ("none", "1", "-", "-", "small")
    assert hospitals().table()[-1][0] == "1"
