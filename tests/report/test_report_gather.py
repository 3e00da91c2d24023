import json
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.cluster.hierarchy import fcluster

from pacfl.errors import DataError, StoreError
from pacfl.experiment.config import expand
from pacfl.experiment.run import resume
from pacfl.experiment.store import RunFolder, folder_of
from pacfl.features import Reading, init_schema
from pacfl.report import federations
from pacfl.report.gather import gather
from pacfl.report.payload import payload
from pacfl.report.runs import read
from pacfl.signatures import cluster_files
from pacfl.signatures import folder as folders
from pacfl.subspace.columns import largest_column_differences
from pacfl.subspace.compared import compared
from pacfl.subspace.hierarchy import cut
from tests.report.folders import write_federation, write_labelled_federation, write_run, write_runs

TABLE = {
    "data": {"name": "digits", "clients": 8, "scheme": {"kind": "by-set", "counts": [2, 2, 2, 2], "size": 60}},
    "model": {"name": "logistic"},
    "learning": {"epochs": 1, "lr": 0.05},
    "schedule": {"rounds": 4, "participation": 0.5, "evaluate-every": 2, "newcomers": 2},
}


def test_a_stored_run_is_read_as_it_ended(tmp_path: Path) -> None:
    pytest.importorskip("sklearn", reason="the embedded digits need scikit-learn")
    (run,) = expand({**TABLE, "algorithm": {"name": "pacfl", "clusters": 4}})
    folder = folder_of(run, tmp_path)
    *_, result = resume(run, folder)
    stored = read(folder)
    assert (stored.hash, stored.seed, stored.algorithm) == (run.hash, 0, "pacfl(clusters=4)")
    for protocol, spread in result["accuracy"].items():
        assert np.nanmean(stored.scores[protocol]) == pytest.approx(spread["mean"])
        assert stored.worst_tenth[protocol] == spread["worst_tenth"]
    newcomers = result["newcomers"]["accuracy"]
    assert newcomers.pop("last_trained") == newcomers["received"], "they have trained nothing, so it is left out"
    for protocol, spread in newcomers.items():
        assert np.nanmean(stored.scores[f"newcomers, {protocol}"]) == pytest.approx(spread["mean"])
    evaluated = ~np.isnan(stored.scores["received"])
    assert evaluated.sum() == 6
    assert (~np.isnan(stored.scores["newcomers, fine_tuned"]) == ~evaluated).all()
    assert [evaluation.round for evaluation in stored.evaluations] == [2, 4]
    assert set(stored.evaluations[0].means["accuracy"]) == {"received", "last_trained"}
    assert stored.evaluations[1].means["accuracy"].keys() == stored.scores.keys()
    assert stored.megabits == pytest.approx(result["megabits_per_client"])
    assert stored.clients.labels.sum(axis=1).tolist() == stored.clients.train.tolist() == [60] * 8
    assert len(set(stored.clients.true_cluster)) == 4
    assert stored.clustering is not None
    assert sorted(stored.clustering.newcomers) == np.flatnonzero(~evaluated).tolist()
    assert stored.cluster_of[stored.clustering.clients].tolist() == stored.clustering.clustering.labels.tolist()


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_runs(tmp_path_factory.mktemp("some") / "runs", ("fedavg", "pacfl"), seeds=(0, 1), n=12)


def test_runs_are_named_by_folder_by_hash_and_by_the_folder_of_all(runs: Path) -> None:
    every_run = gather([str(runs)], Path("nowhere"))
    assert len(every_run.runs) == 4
    first, second = every_run.runs[0].hash, every_run.runs[1].hash
    found = gather([str(runs / first), second[:9], second], runs)
    assert [run.hash for run in found.runs] == [first, second]


def test_a_word_that_names_no_run_is_refused(runs: Path, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="0 runs in"):
        gather(["no-such-hash"], runs)
    with pytest.raises(StoreError, match="is a folder without clusters, runs"):
        gather([str(tmp_path)], runs)


def test_a_beginning_of_several_hashes_is_refused(tmp_path: Path) -> None:
    for seed in (0, 1):
        folder = write_run(tmp_path / "made", {"name": "fedavg"}, seed, 4)
        folder.path.rename(tmp_path / f"abc{seed}")
    with pytest.raises(StoreError, match="2 runs in"):
        gather(["abc"], tmp_path)


def test_an_unfinished_run_is_named_and_is_in_no_result(tmp_path: Path) -> None:
    done = write_run(tmp_path, {"name": "fedavg"}, 0, 8)
    begun = write_run(tmp_path, {"name": "fedavg"}, 1, 8)
    (begun.path / "result.json").unlink()
    report = gather([str(tmp_path)], tmp_path)
    assert [run.hash for run in report.runs] == [done.path.name]
    assert report.unfinished == {begun.path.name: 51}
    with pytest.raises(StoreError, match="is finished"):
        gather([str(begun.path)], tmp_path)


def test_a_run_without_descriptions_is_read(tmp_path: Path) -> None:
    folder = write_run(tmp_path, {"name": "pacfl"}, 0, 8)
    for name in ("clients.json", "clustering.json", "clustering.npz"):
        (folder.path / name).unlink()
    stored = read(RunFolder(folder.path))
    assert stored.clustering is None
    assert stored.clients.names[3] == "client 3"
    assert stored.clients.labels.shape == (8, 0)


def test_a_damaged_description_is_refused(tmp_path: Path) -> None:
    folder = write_run(tmp_path, {"name": "pacfl"}, 0, 8)
    (folder.path / "clustering.json").write_text('{"measure": ')
    with pytest.raises(StoreError, match="is damaged"):
        read(folder)


def test_a_newcomer_between_two_clusters_suggests_a_merge(tmp_path: Path) -> None:
    """Clients 0, 1 | 2, 3 are 20 degrees apart; newcomer 4 is 5 from the first, 6 from the others; cut at 8."""
    square = np.array([[0, 1, 20, 20, 5], [1, 0, 20, 20, 5], [20, 20, 0, 1, 6], [20, 20, 1, 0, 6], [5, 5, 6, 6, 0]])
    folder = write_run(tmp_path, {"name": "pacfl"}, 0, 5, newcomers=1, square=square.astype(float), threshold=8.0)
    clustering = read(folder).clustering
    assert clustering is not None
    assert clustering.newcomers == (4,)
    (merge,) = clustering.merge_suggestions
    assert (merge.newcomer, merge.clusters, merge.distances) == (4, (0, 1), (5.0, 6.0))


def test_a_clients_own_name_is_read(tmp_path: Path) -> None:
    folder = write_run(tmp_path, {"name": "fedavg"}, 0, 2, names=("Ann", "Bob"))
    assert json.loads((folder.path / "clients.json").read_text())["clients"][0]["name"] == "Ann"
    assert read(folder).clients.names == ("Ann", "Bob")


def test_a_federation_is_read_as_it_was_stored(tmp_path: Path) -> None:
    folder = write_federation(tmp_path / "hospitals", [f"site {i}" for i in range(9)])
    report = gather([str(folder)], tmp_path / "runs")
    (read_back,) = report.federations
    assert report.runs == ()
    stored = folders.load(folder)
    assert (read_back.name, read_back.clients.names) == ("hospitals", stored.names)
    assert read_back.clustering.clustering.labels.tolist() == stored.clustering.labels.tolist() == [0, 1, 2] * 3
    np.testing.assert_array_equal(read_back.clustering.clustering.proximity, stored.clustering.proximity)
    found = fcluster(read_back.clustering.compared.merges, read_back.clustering.clustering.threshold, "distance")
    assert set(found.tolist()) == {1, 2, 3}


def test_the_hash_of_a_federation_changes_with_it(tmp_path: Path) -> None:
    names = [f"site {i}" for i in range(9)]
    one, same, other = (
        gather([str(write_federation(tmp_path / name, who))], tmp_path).federations[0].hash
        for name, who in (("a", names), ("b", names), ("c", [*names[:8], "somebody else"]))
    )
    assert one == same != other


def test_a_damaged_federation_is_refused(tmp_path: Path) -> None:
    folder = write_federation(tmp_path / "hospitals", ["a", "b", "c"])
    (folder / folders.STATE).write_bytes(b"PK no more")
    with pytest.raises(DataError, match="cannot be read"):
        gather([str(folder)], tmp_path)


def test_a_federation_of_one_client_is_refused(tmp_path: Path) -> None:
    folder = write_federation(tmp_path / "hospitals", ["alone"], kinds=1)
    with pytest.raises(DataError, match="let others join first"):
        gather([str(folder)], tmp_path)


def test_a_federation_has_its_diagnosis_and_an_explanation_of_each_pair_of_clusters(tmp_path: Path) -> None:
    read = gather([str(write_labelled_federation(tmp_path / "sites"))], tmp_path).federations[0]
    assert read.diagnosis.kind == "concept"
    (pair,) = read.explanations
    assert pair.as_json() == folders.load(tmp_path / "sites").explain(0, 1, "clusters").as_json()
    (shown,) = payload([], [read])["experiments"][0]["diagnosis"]["pairs"]
    assert [one[:2] for one in shown["relabelled"]] == [[one.a, one.b] for one in pair.relabelled]
    assert shown["picture"]["shape"] == [4, 4]


def test_of_many_clusters_each_is_explained_with_its_nearest_other_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_federation(tmp_path / "hospitals", [f"h{i}" for i in range(12)], kinds=4)
    everything = gather([str(folder)], tmp_path).federations[0]
    assert [(one.a, one.b) for one in everything.explanations] == [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)]
    monkeypatch.setattr(federations, "MOST_PAIRS", 5)
    some = gather([str(folder)], tmp_path).federations[0]
    pairs = {(one.a, one.b) for one in some.explanations}
    assert len(pairs) < 6
    nearest = {one.a: one.nearest.cluster for one in everything.explanations if one.nearest is not None}
    assert {(min(a, b), max(a, b)) for a, b in nearest.items()} <= pairs
    assert {cluster for pair in pairs for cluster in pair} == {0, 1, 2, 3}
    assert not payload([], [some])["experiments"][0]["diagnosis"]["all"]


def shown_in(folder: Path) -> dict[str, Any]:
    """What a page is given of a federation's clustering."""
    (run,) = payload([], [gather([str(folder)], folder.parent).federations[0]])["experiments"][0]["runs"]
    shown: dict[str, Any] = run["clustering"]
    return shown


def test_of_classes_the_page_shows_units_of_noise_and_nothing_without_a_common_class(tmp_path: Path) -> None:
    folder = write_labelled_federation(tmp_path / "sites")
    clustering = folders.load(folder).clustering
    shown, unit = compared(clustering), clustering.reference_scale
    known = np.isfinite(shown.distances)
    assert unit is not None
    np.testing.assert_allclose(shown.distances[known] * unit, clustering.distances()[known])
    np.testing.assert_allclose(shown.merges[:, 2] * unit, clustering.merges()[:, 2])
    assert shown.threshold == pytest.approx(clustering.threshold / unit)
    small = len(shown.distances) - 1
    assert not known[small, :small].any()
    assert known[:small, :small].all()
    page = shown_in(folder)
    assert (page["what"], page["inNoise"]) == ("difference between the same classes, in units of noise", True)
    assert page["chance"] == pytest.approx(clustering.evidence["null_limits"][0])


def test_of_inputs_the_page_shows_angles_as_measured(tmp_path: Path) -> None:
    folder = write_federation(tmp_path / "hospitals", ["a", "b", "c"])
    clustering = folders.load(folder).clustering
    np.testing.assert_array_equal(compared(clustering).distances, clustering.proximity)
    page = shown_in(folder)
    assert (page["what"], page["inNoise"]) == ("smallest angle, as measured", False)


def test_where_columns_separate_the_page_shows_the_column_that_differs_most(tmp_path: Path) -> None:
    """Of sixty columns one is larger in every other hospital: all together hide it, compared alone it is seen."""
    rng, paths = np.random.default_rng(0), [tmp_path / f"h{i}.csv" for i in range(6)]
    for i, path in enumerate(paths):
        x = rng.normal(size=(100, 60))
        x[:, 7] += i % 2
        np.savetxt(path, x, delimiter=",", header=",".join(f"c{j}" for j in range(60)), comments="")
    folder = tmp_path / "federation"
    federation = cluster_files(paths, reading=Reading(schema=init_schema(paths)), output=folder)
    assert federation.clustering.by_columns
    tables = [one.table for one in folders.load(folder).descriptions if one.table is not None]
    shown = compared(federation.clustering, tables)
    for a, b in combinations(range(6), 2):
        most = largest_column_differences(tables[a], tables[b])[0]
        assert shown.distances[a, b] == pytest.approx(most.size)
    np.testing.assert_array_equal(cut(shown.merges, shown.threshold), federation.clustering.labels)
    page = shown_in(folder)
    assert (page["what"], page["inNoise"]) == ("difference of the column that differs most, in units of noise", True)
