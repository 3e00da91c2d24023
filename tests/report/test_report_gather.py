import json
from pathlib import Path

import numpy as np
import pytest
from scipy.cluster.hierarchy import fcluster

from pacfl.errors import DataError, StoreError
from pacfl.experiment.config import expand
from pacfl.experiment.run import play
from pacfl.experiment.store import RunFolder, folder_of
from pacfl.report.gather import gather
from pacfl.report.runs import read
from pacfl.signatures import federation
from tests.report.folders import write_federation, write_run, write_runs

TABLE = {
    "data": {"name": "digits", "clients": 8, "scheme": {"kind": "by-set", "counts": [2, 2, 2, 2], "size": 60}},
    "model": {"name": "logistic"},
    "learning": {"epochs": 1, "lr": 0.05},
    "schedule": {"rounds": 4, "participation": 0.5, "evaluate-every": 2, "newcomers": 2},
}


def test_a_run_that_was_played_is_read_as_it_was(tmp_path: Path) -> None:
    pytest.importorskip("sklearn", reason="the embedded digits need scikit-learn")
    (run,) = expand({**TABLE, "algorithm": {"name": "pacfl", "clusters": 4}})
    folder = folder_of(run, tmp_path)
    *_, result = play(run, folder)
    kept = read(folder)
    assert (kept.hash, kept.seed, kept.algorithm) == (run.hash, 0, "pacfl(clusters=4)")
    for protocol, spread in result["accuracy"].items():
        assert np.nanmean(kept.accuracy[protocol]) == pytest.approx(spread["mean"])
        assert kept.worst_tenth[protocol] == spread["worst_tenth"]
    newcomers = result["newcomers"]["accuracy"]
    assert newcomers.pop("last_trained") == newcomers["received"], "they have trained nothing, so it is left out"
    for protocol, spread in newcomers.items():
        assert np.nanmean(kept.accuracy[f"newcomers, {protocol}"]) == pytest.approx(spread["mean"])
    judged = ~np.isnan(kept.accuracy["received"])
    assert judged.sum() == 6
    assert (~np.isnan(kept.accuracy["newcomers, fine_tuned"]) == ~judged).all()
    assert [judgement.round for judgement in kept.judgements] == [2, 4]
    assert set(kept.judgements[0].accuracy) == {"received", "last_trained"}
    assert kept.judgements[1].accuracy.keys() == kept.accuracy.keys()
    assert kept.megabits == pytest.approx(result["megabits_per_client"])
    assert kept.clients.labels.sum(axis=1).tolist() == kept.clients.train.tolist() == [60] * 8
    assert len(set(kept.clients.groups)) == 4
    assert kept.grouped is not None
    assert sorted(kept.grouped.newcomers) == np.flatnonzero(~judged).tolist()
    assert kept.cluster_of[kept.grouped.clients].tolist() == kept.grouped.labels.tolist()


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_runs(tmp_path_factory.mktemp("some") / "runs", ("fedavg", "pacfl"), seeds=(0, 1), n=12)


def test_runs_are_named_by_folder_by_hash_and_by_the_folder_of_all(runs: Path) -> None:
    everybody = gather([str(runs)], Path("nowhere"))
    assert len(everybody.runs) == 4
    first, second = everybody.runs[0].hash, everybody.runs[1].hash
    found = gather([str(runs / first), second[:9], second], runs)
    assert [run.hash for run in found.runs] == [first, second]


def test_a_word_that_names_no_run_is_refused(runs: Path, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="0 runs in"):
        gather(["no-such-hash"], runs)
    with pytest.raises(StoreError, match="has no runs in it"):
        gather([str(tmp_path)], runs)


def test_a_beginning_of_several_hashes_is_refused(tmp_path: Path) -> None:
    for seed in (0, 1):
        folder = write_run(tmp_path / "made", {"name": "fedavg"}, seed, 4)
        folder.path.rename(tmp_path / f"abc{seed}")
    with pytest.raises(StoreError, match="2 runs in"):
        gather(["abc"], tmp_path)


def test_what_is_not_finished_is_named_and_counts_nowhere(tmp_path: Path) -> None:
    done = write_run(tmp_path, {"name": "fedavg"}, 0, 8)
    begun = write_run(tmp_path, {"name": "fedavg"}, 1, 8)
    (begun.path / "result.json").unlink()
    gathered = gather([str(tmp_path)], tmp_path)
    assert [run.hash for run in gathered.runs] == [done.path.name]
    assert gathered.unfinished == {begun.path.name: 51}
    with pytest.raises(StoreError, match="is finished"):
        gather([str(begun.path)], tmp_path)


def test_runs_of_before_clients_were_described_are_read_all_the_same(tmp_path: Path) -> None:
    folder = write_run(tmp_path, {"name": "pacfl"}, 0, 8)
    for name in ("clients.json", "clustering.json", "clustering.npz"):
        (folder.path / name).unlink()
    kept = read(RunFolder(folder.path))
    assert kept.grouped is None
    assert kept.clients.names[3] == "client 3"
    assert kept.clients.labels.shape == (8, 0)


def test_a_damaged_description_is_told(tmp_path: Path) -> None:
    folder = write_run(tmp_path, {"name": "pacfl"}, 0, 8)
    (folder.path / "clustering.json").write_text('{"measure": ')
    with pytest.raises(StoreError, match="is damaged"):
        read(folder)


def test_a_newcomer_between_two_clusters_is_a_bridge(tmp_path: Path) -> None:
    """Clients 0, 1 | 2, 3 stand 20 degrees apart; newcomer 4 is 5 from the first, 6 from the others; cut at 8."""
    square = np.array([[0, 1, 20, 20, 5], [1, 0, 20, 20, 5], [20, 20, 0, 1, 6], [20, 20, 1, 0, 6], [5, 5, 6, 6, 0]])
    folder = write_run(tmp_path, {"name": "pacfl"}, 0, 5, newcomers=1, square=square.astype(float), threshold=8.0)
    grouped = read(folder).grouped
    assert grouped is not None
    assert grouped.newcomers == (4,)
    (bridge,) = grouped.bridges
    assert (bridge.newcomer, bridge.clusters, bridge.distances) == (4, (0, 1), (5.0, 6.0))


def test_a_clients_own_name_is_kept(tmp_path: Path) -> None:
    folder = write_run(tmp_path, {"name": "fedavg"}, 0, 2, names=("Ann", "Bob"))
    assert json.loads((folder.path / "clients.json").read_text())["clients"][0]["name"] == "Ann"
    assert read(folder).clients.names == ("Ann", "Bob")


def test_a_federation_is_read_as_it_was_kept(tmp_path: Path) -> None:
    folder = write_federation(tmp_path / "hospitals", [f"site {i}" for i in range(9)])
    gathered = gather([str(folder)], tmp_path / "runs")
    (alike,) = gathered.federations
    assert gathered.runs == ()
    kept = federation.load(folder)
    assert (alike.name, alike.clients.names) == ("hospitals", kept.names)
    assert alike.grouped.labels.tolist() == kept.clustering.labels.tolist() == [0, 1, 2] * 3
    np.testing.assert_array_equal(alike.grouped.proximity, kept.clustering.proximity)
    assert set(fcluster(alike.grouped.merges, alike.grouped.threshold, "distance").tolist()) == {1, 2, 3}


def test_the_hash_of_a_federation_changes_with_it(tmp_path: Path) -> None:
    names = [f"site {i}" for i in range(9)]
    one, same, other = (
        gather([str(write_federation(tmp_path / name, who))], tmp_path).federations[0].hash
        for name, who in (("a", names), ("b", names), ("c", [*names[:8], "somebody else"]))
    )
    assert one == same != other


def test_a_damaged_federation_is_refused(tmp_path: Path) -> None:
    folder = write_federation(tmp_path / "hospitals", ["a", "b", "c"])
    (folder / federation.STATE).write_bytes(b"PK no more")
    with pytest.raises(DataError, match="cannot be read"):
        gather([str(folder)], tmp_path)


def test_a_federation_of_one_is_told_to_wait_for_others(tmp_path: Path) -> None:
    folder = write_federation(tmp_path / "hospitals", ["alone"], kinds=1)
    with pytest.raises(DataError, match="let others join first"):
        gather([str(folder)], tmp_path)
