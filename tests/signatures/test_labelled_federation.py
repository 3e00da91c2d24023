"""Federations whose clients are compared class by class: files, folders, the command line and arrays."""

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
from pacfl.errors import ConfigError, DataError
from pacfl.features.reading import Samples
from pacfl.report.gather import gather
from pacfl.report.payload import payload
from pacfl.signatures import Reading, cluster_files, figures, join_files, sign_file
from pacfl.signatures import federation as federations
from pacfl.signatures import folder as folders
from pacfl.signatures.federation import Federation
from pacfl.signatures.sigfile import SignatureFile
from pacfl.signatures.signing import sign
from pacfl.subspace import evidence_of
from tests.signatures.labelled import CLASSES, parties, samples

LABELS = Reading(labels="y")
SMALL = samples(77, counts=(3,) * CLASSES)  # no class has four samples


@cache
def party(seed: int, shift: int = 0, labelled: bool = True) -> SignatureFile:
    x, y = samples(seed, shift)
    return sign(f"p{seed}", Samples(x, y) if labelled else Samples(x), 3, LABELS if labelled else Reading())


@cache
def too_small() -> SignatureFile:
    return sign("small", Samples(*SMALL), 3, LABELS)


@cache
def two_kinds(**how: Any) -> Federation:
    """Eight clients that give the same inputs labels of two kinds, and one that is too small."""
    clients = {f"p{i}": party(i, i % 2) for i in range(8)}
    return federations.federate({**clients, "small": too_small()}, **how)


EVEN, ODD = [f"p{i}" for i in range(0, 8, 2)], [f"p{i}" for i in range(1, 8, 2)]


def written(folder: Path, xs: dict[str, Any], ys: dict[str, Any]) -> list[Path]:
    paths = [folder / f"{name}.npz" for name in xs]
    for path, name in zip(paths, xs, strict=True):
        np.savez(path, x=xs[name], y=ys[name])
    return paths


def test_clients_with_other_labels_are_apart_and_those_without_evidence_in_no_cluster() -> None:
    federation = two_kinds()
    summary = federation.summary()
    assert summary["clusters"] == [EVEN, ODD]
    assert summary["compare"] == "classes"
    assert summary["pairs"] == {"classes": 28, "inputs": 0, "none": 8}
    reason = (
        "no class has 4 samples, or 12 groups of samples that depend on each other, or the minimum count it was signed "
        "with; sign more samples"
    )
    assert summary["not_judged"] == {"small": reason}
    assert "no class in common" not in summary["evidence"]["reasons"]
    assert [row[0] for row in federation.table()] == ["cluster", "0", "1", "none"]
    assert federation.size() == "9 clients in 2 clusters, 1 not judged"
    assert "same classes" in federation.cut()
    json.dumps(summary, allow_nan=False)


def test_inputs_see_one_cluster() -> None:
    found = two_kinds(compare="inputs")
    assert (len(found.clusters()), found.summary()["compare"], found.not_judged()) == (1, "inputs", {})
    assert found.summary()["pairs"] == {"classes": 0, "inputs": 36, "none": 0}
    assert two_kinds(threshold=50.0).summary()["compare"] == "inputs"


def test_angles_are_those_between_the_same_classes() -> None:
    """By classes the other cluster is far; by inputs it is as near as its own."""
    (inside, outside), _ = two_kinds().mean_angles()
    assert inside is not None
    assert outside is not None
    assert outside > 5 * inside


@pytest.mark.parametrize("how", [{}, {"clusters": 2}, {"compare": "inputs"}], ids=str)
def test_a_stored_federation_is_loaded_unchanged_and_newcomers_get_the_same(tmp_path: Path, how: Any) -> None:
    before = two_kinds(**how)
    folders.save(before, tmp_path)
    after = folders.load(tmp_path)
    assert after.summary() == before.summary()
    assert after.settings == before.settings
    newcomers = {"late": party(50, 1), "small too": too_small(), "third": party(51, 2)}
    joined, wanted = (federations.join(federation, newcomers) for federation in (after, before))
    assert joined.placed == wanted.placed
    assert joined.summary() == wanted.summary()
    folders.save(joined.federation, tmp_path)
    again = federations.join(folders.load(tmp_path), {"later": party(52, 1)})
    assert again.placed == federations.join(wanted.federation, {"later": party(52, 1)}).placed


def test_newcomers_join_their_kind_open_a_cluster_or_join_nobody() -> None:
    newcomers = {"late": party(50, 1), "small too": too_small(), "third": party(51, 2), "bare": party(52, 0, False)}
    joined = federations.join(two_kinds(), newcomers)
    assert joined.placed == {"late": 1, "small too": -1, "third": 2, "bare": -1}
    assert joined.opened == [2]
    summary = joined.summary()
    assert set(summary["not_judged"]) == {"small", "small too", "bare"}
    assert "sign with labels" in summary["not_judged"]["bare"]
    assert summary["clusters"] == [EVEN, [*ODD, "late"], ["third"]]
    assert sum(summary["pairs"].values()) == 13 * 12 // 2


def test_clients_with_and_without_labels_are_clustered_together() -> None:
    clients = {f"p{i}": party(i, 0, labelled=i % 2 == 0) for i in range(8)}
    found = federations.federate(clients)
    assert len(found.clusters()) == 1
    assert found.summary()["compare"] == "both"
    assert found.settings.labels == "plain names"
    with pytest.raises(DataError, match="p1, p3, p5, p7: have no labels"):
        federations.federate(clients, compare="classes")


def test_a_number_of_clusters_of_clients_without_common_classes_is_cut_by_inputs() -> None:
    """Two groups that share no class: no dendrogram of classes connects them."""
    named = {f"p{i}": party(i) for i in range(6)}
    for i in (1, 3, 5):
        classes = named[f"p{i}"].classes
        assert classes is not None
        named[f"p{i}"] = replace(named[f"p{i}"], classes=replace(classes, names=tuple("abcd")))
    found = federations.federate(named, clusters=2)
    assert (len(found.clusters()), found.summary()["compare"]) == (2, "inputs")
    assert federations.federate(named, clusters=1).clusters() == [list(named)]
    assert len(federations.federate(named).clusters()) == 1


def test_signatures_with_other_names_for_classes_are_refused_together() -> None:
    plain = party(0)
    hashed = [replace(party(i), key=f"{i:016}", keyed=("names",)) for i in (1, 2)]
    for one, other, why in (
        (plain, hashed[0], "plain names: a; names hashed with key 0000000000000001: b"),
        (hashed[0], hashed[1], "names hashed with key 0000000000000001: a; names hashed with key 0000000000000002: b"),
    ):
        with pytest.raises(DataError, match=f"differ in how classes are named: {why}.*cannot be seen"):
            federations.federate({"a": one, "b": other})
    federations.federate({"a": hashed[0], "b": replace(hashed[0]), "c": party(3, 0, False)})
    with pytest.raises(DataError, match="the federation; names hashed"):
        federations.join(two_kinds(), {"late": hashed[0]})


def test_hashed_names_give_the_same_clusters(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("a key that all clients of the federation have")
    xs, ys = parties()
    how = {"plain": LABELS, "hashed": Reading(labels="y", hash_labels=tmp_path / "key")}
    found = {name: cluster_files(written(tmp_path, xs, ys), reading=reading) for name, reading in how.items()}
    assert found["plain"].clusters() == found["hashed"].clusters() == [EVEN, ODD]
    assert found["hashed"].settings.labels.startswith("names hashed with key")


def test_the_evidence_is_that_of_the_clustering() -> None:
    for federation in (two_kinds(), two_kinds(clusters=2), two_kinds(compare="inputs"), two_kinds(threshold=9.0)):
        evidence = evidence_of(federation.clustering)
        assert evidence.compare == federation.summary()["compare"]


@pytest.mark.parametrize("how", [{}, {"clusters": 2}], ids=str)
def test_pictures_and_reports_show_clients_in_no_cluster(tmp_path: Path, how: Any) -> None:
    pytest.importorskip("matplotlib", reason="pictures need matplotlib")
    (tmp_path / "f").mkdir()
    folders.save(two_kinds(**how), tmp_path / "f", "png")
    assert {f"{plot}.png" for plot in figures.PLOTS} <= {path.name for path in (tmp_path / "f").iterdir()}
    (shown,) = payload([], gather([str(tmp_path / "f")], tmp_path).federations)["experiments"]
    assert shown["runs"][0]["clustering"]["labels"]["shape"] == [9]
    json.dumps(shown, allow_nan=False)


CHANGES: dict[str, Any] = {
    "classes_of": np.array([4] * 8 + [1]),
    "class_names": np.array(["0"] * 32),
    "class_counts": np.full(32, 3),
    "class_directions": np.ones((2, 32, 20), np.float16),
    "class_angles": np.full((2, 32, 16), 91.0),
    "class_pairs": np.full((3, 36), -1.0),
    "class_variances": np.ones((9, 3, 2)),
    "class_typical": np.zeros((4, 2)),
    "class_reference": np.array([1.0, np.nan]),
    "class_limits": np.empty(0),
    "inputs_labels": np.arange(1, 10),
    "labels": np.array([-2] + [0] * 8),
}


@pytest.mark.parametrize("part", CHANGES)
def test_a_state_whose_classes_do_not_belong_together_is_refused(tmp_path: Path, part: str) -> None:
    folders.save(two_kinds(), tmp_path)
    with np.load(tmp_path / folders.STATE) as state:
        arrays = dict(state)
    assert part in arrays
    assert not np.array_equal(arrays[part], CHANGES[part])
    for change in ({**arrays, part: CHANGES[part]}, {k: v for k, v in arrays.items() if k != part}):
        if part == "classes_of" and part not in change:
            continue  # then it says that nobody has labels, which the comparisons contradict
        with (tmp_path / folders.STATE).open("wb") as file:
            np.savez(file, **change)
        with pytest.raises(DataError, match="was it damaged"):
            folders.load(tmp_path)


def test_folders_of_the_release_before_are_refused(tmp_path: Path) -> None:
    folders.save(two_kinds(), tmp_path)
    with np.load(tmp_path / folders.STATE) as state:
        arrays = dict(state)
    settings = json.loads(str(arrays["settings"])) | {"format": 2}
    with (tmp_path / folders.STATE).open("wb") as file:
        np.savez(file, **{**arrays, "settings": np.array(json.dumps(settings))})
    with pytest.raises(DataError, match="another release of pacfl; cluster again"):
        folders.load(tmp_path)


def run(*arguments: object) -> tuple[int, str]:
    done = CliRunner().invoke(app, [str(argument) for argument in arguments], env={"COLUMNS": "200"})
    return done.exit_code, " ".join(f"{done.output} {done.exception or ''}".split())


def test_the_commands_sign_cluster_and_join_with_labels(tmp_path: Path) -> None:
    xs, ys = parties()
    paths = written(tmp_path, {**xs, "small": SMALL[0]}, {**ys, "small": SMALL[1]})
    files = [path.with_suffix(".sig") for path in paths]
    for path, file in zip(paths, files, strict=True):
        code, shown = run("sign", path, "-o", file, "--labels", "y")
        assert code == 0, shown
    assert "classes │ 4: 0 (30), 1 (30), 2 (30), 3 (30)" in run("inspect", files[0])[1]
    assert "shows which classes there are" in run("inspect", files[0])[1]
    assert "none has enough samples" in run("inspect", files[-1])[1]
    assert json.loads(run("inspect", files[0], "--json")[1])["classes"]["counts"] == [30] * 4
    code, shown = run("cluster", *files, "-o", tmp_path / "f")
    assert "2 clusters of 9 clients" in shown
    assert "small cannot be judged and is in no cluster: no class has 4 samples" in shown
    stored = json.loads((tmp_path / "f" / "clusters.json").read_text())
    assert stored["clusters"] == [EVEN, ODD]
    assert {"kind": "clusters", **stored} == json.loads(run("cluster", *paths, "--labels", "y", "--json")[1])
    late, alone = written(tmp_path, *[{"late": a, "alone": b} for a, b in zip(samples(50, 1), SMALL, strict=True)])
    code, shown = run("join", tmp_path / "f", late, alone, "--labels", "y")
    assert "late joins cluster 1" in shown
    assert "alone cannot be judged and is in no cluster" in shown
    assert "11 clients in 2 clusters, 2 not judged" in shown
    assert set(json.loads((tmp_path / "f" / "clusters.json").read_text())["not_judged"]) == {"small", "alone"}


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--compare", "classes", "--threshold", 5], "leave it out with --compare classes"),
        (["--compare", "classes", "--linkage", "ward"], "--compare classes uses average linkage, got ward"),
        (["--compare", "classes"], "a: have no labels"),
        (["--compare", "everything"], "Invalid value"),
        (["--labels", "y", "--per-class", "y"], "give one of them"),
        (["--labels", "z"], "no array 'z' of labels"),
    ],
    ids=str,
)
def test_options_that_cannot_apply_are_refused(tmp_path: Path, options: list[object], why: str) -> None:
    (path,) = written(tmp_path, {"a": samples(0)[0]}, {"a": samples(0)[1]})
    code, shown = run("cluster", path, *options)
    assert code != 0
    assert why in shown


def test_newcomers_of_a_federation_with_hashed_names_are_signed_first(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("a key that all clients of the federation have")
    xs, ys = parties(4)
    files = [path.with_suffix(".sig") for path in written(tmp_path, xs, ys)]
    for file in files:
        reading = Reading(labels="y", hash_labels=tmp_path / "key")
        sign_file(file.with_suffix(".npz"), file, reading=reading)
    cluster_files(files[:3], output=tmp_path / "f")
    with pytest.raises(DataError, match="sign newcomers with --labels and --hash-labels first"):
        join_files(tmp_path / "f", [files[3].with_suffix(".npz")], reading=Reading(labels="y"))
    assert join_files(tmp_path / "f", files[3:]).placed == {"p3": 1}


@pytest.mark.parametrize("given", [{}, {"compare": "inputs"}, {"compare": "classes"}, {"clusters": 2}], ids=str)
def test_arrays_give_the_clusters_of_files(tmp_path: Path, given: dict[str, Any]) -> None:
    xs, ys = parties()
    by_files = cluster_files(written(tmp_path, xs, ys), reading=LABELS, output=tmp_path / "f", **given)
    found = PACFLClustering(**given).fit(xs, ys)
    assert found.labels_.tolist() == by_files.clustering.labels.tolist()
    assert found.federation_.summary() == by_files.summary()
    late_xs, late_ys = parties(3, 3, first=60)
    joined = join_files(tmp_path / "f", written(tmp_path, late_xs, late_ys), reading=Reading(labels="y"))
    assert found.predict(late_xs, late_ys).tolist() == list(joined.placed.values())
    found.partial_fit(late_xs, late_ys)
    assert found.federation_.summary() == joined.federation.summary()


def test_labels_of_arrays_are_listed_or_named_and_may_be_missing() -> None:
    xs, ys = parties()
    by_name = PACFLClustering().fit(xs, ys)
    listed = PACFLClustering().fit(list(xs.values()), list(ys.values()))
    mixed = PACFLClustering().fit(xs, (y for y in ys.values()))
    assert by_name.labels_.tolist() == listed.labels_.tolist() == mixed.labels_.tolist() == [0, 1] * 4
    assert by_name.fit_predict(xs, ys).tolist() == [0, 1] * 4
    some = PACFLClustering().fit(xs, {**ys, "p7": None})
    assert some.labels_.tolist() == [0, 1, 0, 1, 0, 1, 0, -1]
    assert list(some.not_judged_) == ["p7"]
    assert by_name.not_judged_ == {}
    assert repr(some) == "PACFLClustering(), 8 clients in 2 clusters, 1 not judged"
    assert some.n_clusters_ == 2
    assert some.predict([samples(90, 1)[0]]).tolist() == [-1]
    assert PACFLClustering().fit(xs).labels_.tolist() == PACFLClustering().fit(xs, [None] * 8).labels_.tolist()


def test_labels_that_do_not_belong_to_the_clients_are_refused() -> None:
    xs, ys = parties(3)
    for labels, why in (
        (list(ys.values())[:2], "labels of 2 clients were given for 3"),
        ({"p0": ys["p0"], "p1": ys["p1"]}, "p2: has no labels"),
        ({**ys, "p9": ys["p0"]}, "p9: has labels but no samples"),
        ({**ys, "p2": ys["p2"][:-1]}, "p2: labels must be one per sample"),
        ({**ys, "p1": ys["p1"] + 0.5}, "p1: labels name classes"),
        (np.array(list(ys.values())), "one array"),
    ):
        with pytest.raises(DataError, match=why):
            PACFLClustering().fit(xs, labels)
    with pytest.raises(DataError, match="p1: have no labels"):
        PACFLClustering(compare="classes").fit(xs, {**ys, "p1": None})
    with pytest.raises(ConfigError, match="compare='classes' needs threshold='auto'"):
        PACFLClustering(compare="classes", threshold=5.0).fit(xs, ys)
    with pytest.raises(ConfigError, match="compare must be one of"):
        PACFLClustering(compare="all").fit(xs, ys)  # type: ignore[arg-type]
