"""What is reported of runs beside their records, by hand and on runs of digits."""

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from scipy.cluster.hierarchy import fcluster

from pacfl.data import load_dataset
from pacfl.errors import ConfigError
from pacfl.experiment.compare import below_local, load_result, local_baseline, solo_runs, to_target
from pacfl.experiment.config import Run, evaluation, expand
from pacfl.experiment.csv_tables import as_csv, flat
from pacfl.experiment.description import load_clustering
from pacfl.experiment.run import divide, resume
from pacfl.experiment.store import RunFolder, all_folders, folder_of
from pacfl.experiment.summary import megabits_per_client
from pacfl.subspace import agglomerate

TABLE: dict[str, Any] = {
    "data": {"name": "digits", "clients": 8, "scheme": {"kind": "by-set", "counts": [2, 2, 2, 2], "size": 60}},
    "model": {"name": "logistic"},
    "learning": {"epochs": 1, "lr": 0.05},
    "schedule": {"rounds": 2, "participation": 0.5, "evaluate-every": 1},
}


def runs_of(**sections: Any) -> list[Run]:
    return expand({**TABLE, **sections})


def finished(run: Run, runs: Path) -> RunFolder:
    folder = folder_of(run, runs)
    list(resume(run, folder))
    return folder


# LocalTraining alone


def scores(**accuracies: float) -> dict[str, list[float]]:
    return {name[1:]: [accuracy, 0.0] for name, accuracy in accuracies.items()}


def test_the_share_that_does_worse_than_alone_by_hand() -> None:
    """Of clients 0, 1, 2 and 3, client 1 does worse, client 2 as well as alone, and client 3 never was alone."""
    record = {"by_client": {"received": scores(c0=0.9, c1=0.4, c2=0.5, c3=0.1), "personal": scores(c0=0.1)}}
    solo = {"by_client": {"received": scores(c0=0.8, c1=0.5, c2=0.5, c7=1.0), "personal": scores(c0=0.2)}}
    assert below_local(record, solo) == {"received": 1 / 3, "personal": 1.0}


@pytest.mark.parametrize("solo", [None, {}, {"by_client": {"received": scores(c7=0.5)}}], ids=str)
def test_where_nobody_was_alone_nothing_is_said(solo: dict[str, Any] | None) -> None:
    assert below_local({"by_client": {"received": scores(c0=0.9)}}, solo) == {"received": None}
    assert below_local({}, solo) == {}


def test_a_run_is_compared_with_solo_of_the_same_data_plan_and_seed(tmp_path: Path) -> None:
    fedavg, solo = runs_of(algorithm=[{"name": "fedavg"}, {"name": "solo"}])
    (other_seed,) = runs_of(seeds=[1], algorithm={"name": "solo"})
    (other_plan,) = runs_of(schedule={"rounds": 1, "participation": 0.5}, algorithm={"name": "solo"})
    folder = finished(fedavg, tmp_path)
    for run in (other_seed, other_plan):
        finished(run, tmp_path)
    result = load_result(folder, solo_runs(all_folders(tmp_path)))
    assert result is not None
    assert result["alone"] is None
    assert result["worse_than_alone"] == dict.fromkeys(("received", "last_trained", "personal"))
    reference = folder_of(solo, tmp_path)
    assert local_baseline(folder, solo_runs(all_folders(tmp_path))) is None, "it is not finished"
    list(resume(solo, reference))
    result = load_result(folder, solo_runs(all_folders(tmp_path)))
    assert result is not None
    assert result["alone"] == solo.hash
    assert result["worse_than_alone"] == below_local(folder.records()[-1], reference.records()[-1])
    assert all(0 <= share <= 1 for share in result["worse_than_alone"].values())
    itself = load_result(reference, solo_runs(all_folders(tmp_path)))
    assert itself is not None
    assert set(itself["worse_than_alone"].values()) == {0.0}


def test_of_several_solo_runs_that_with_the_same_learning_is_meant(tmp_path: Path) -> None:
    given = {"schedule": {"rounds": 1, "participation": 0.5}}
    (fedavg,) = runs_of(**given, algorithm={"name": "fedavg", "learning": {"lr": 0.1}})
    slow, fast = runs_of(**given, algorithm={"name": "solo", "learning": {"lr": [0.01, 0.1]}})
    (third,) = runs_of(**given, algorithm={"name": "fedavg", "learning": {"lr": 0.5}})
    folder = finished(fedavg, tmp_path)
    only = finished(slow, tmp_path)
    assert local_baseline(folder, solo_runs(all_folders(tmp_path))) == only, "each algorithm may learn in its own way"
    same = finished(fast, tmp_path)
    assert local_baseline(folder, solo_runs(all_folders(tmp_path))) == same
    assert local_baseline(folder_of(third, tmp_path), solo_runs(all_folders(tmp_path))) is None, (
        "it cannot be said which"
    )


def test_newcomers_are_told_apart(tmp_path: Path) -> None:
    plan = {"rounds": 1, "participation": 0.5, "newcomers": 2, "fine-tune": 1}
    fedavg, solo = runs_of(schedule=plan, algorithm=[{"name": "fedavg"}, {"name": "solo"}])
    finished(solo, tmp_path)
    folder = finished(fedavg, tmp_path)
    result = load_result(folder, solo_runs(all_folders(tmp_path)))
    assert result is not None
    *_, everybody, newcomers = folder.records()
    assert len(everybody["by_client"]["received"]) == 6
    assert len(newcomers["by_client"]["received"]) == 2
    assert result["accuracy"] == everybody["accuracy"]
    assert result["newcomers"]["accuracy"] == newcomers["accuracy"]
    assert "fine_tuned" in result["newcomers"]["accuracy"]
    assert set(result["newcomers"]["worse_than_alone"]) == set(newcomers["by_client"])


# Targets


def evaluated(t: int, mean: float | None, sampled: tuple[int, ...] = (0,), sent: int = 125_000) -> dict[str, Any]:
    record: dict[str, Any] = {"round": t, "clients": 4, "sampled": sampled, "bytes_down": sent, "bytes_up": sent}
    return record if mean is None else {**record, "accuracy": {"received": {"mean": mean}}}


def test_rounds_and_megabits_to_a_target_by_hand() -> None:
    """125,000 bytes each way are 2 megabits, of 4 clients: 0.5 each in a round. Seen at 0.7 after three rounds."""
    records = [evaluated(0, 0.1), evaluated(1, None), evaluated(2, 0.7), evaluated(3, 0.6), evaluated(4, 0.9, (), 0)]
    assert megabits_per_client(records[:1]) == 0.5
    assert to_target(records, 0.1) == {"received": {"rounds": 1, "megabits_per_client": 0.5}}
    assert to_target(records, 0.65) == {"received": {"rounds": 3, "megabits_per_client": 1.5}}
    assert to_target(records, 0.9) == {"received": {"rounds": 4, "megabits_per_client": 2.0}}
    assert to_target(records, 0.95) == {"received": None}


def test_megabits_are_those_of_the_paper(tmp_path: Path) -> None:
    """Rounds × rate × (models down + models up) × 32 bits × weights: 2 × 0.5 × 2 × 32 × 650 for logistic regression."""
    (run,) = runs_of(algorithm={"name": "fedavg"})
    result = finished(run, tmp_path).result()
    assert result is not None
    assert result["megabits_per_client"] == pytest.approx(2 * 0.5 * 2 * 32 * 650 / 1e6, rel=1e-12)


def test_targets_are_no_part_of_a_run(tmp_path: Path) -> None:
    given = {**TABLE, "algorithm": {"name": "fedavg"}}
    asking = {**given, "evaluation": {"targets": [0.05, 1]}}
    assert [run.hash for run in expand(given)] == [run.hash for run in expand(asking)]
    assert evaluation(asking).targets == (0.05, 1.0)
    assert evaluation(given).targets == ()
    folder = finished(expand(asking)[0], tmp_path)
    result = load_result(folder, [], evaluation(asking).targets)
    assert result is not None
    assert result["to_target"]["0.05"]["received"]["rounds"] == 1
    assert result["to_target"]["1.0"]["received"] is None
    assert "to_target" not in (load_result(folder, []) or {})


@pytest.mark.parametrize("targets", [[0.0], [1.5], [70], ["high"], 0.7, [True]], ids=str)
def test_targets_that_are_no_accuracies_are_refused(targets: Any) -> None:
    with pytest.raises(ConfigError, match="targets"):
        expand({**TABLE, "algorithm": {"name": "fedavg"}, "evaluation": {"targets": targets}})


# What a report is made of


def test_clients_are_described_by_their_samples_labels_set_and_truth(tmp_path: Path) -> None:
    (run,) = runs_of(algorithm={"name": "fedavg"})
    folder = finished(run, tmp_path)
    described = json.loads((folder.path / "clients.json").read_text())
    dataset, parts = divide(run)
    assert (described["data"], described["classes"], described["shape"]) == ("digits", 10, [8, 8])
    assert described["sets"] == list(load_dataset("digits").source_names)
    assert len(described["clients"]) == 8
    for c, client in enumerate(described["clients"]):
        labels = dataset.y_train[parts.train_indices[c]]
        assert client["labels"] == [int((labels == k).sum()) for k in range(10)]
        assert (client["train"], client["test"]) == (60, len(parts.test_indices[c]))
        assert client["true_cluster"] == c // 2
        assert client["set"] == described["sets"][c // 2]


def test_a_client_with_samples_of_several_sets_has_none_of_its_own(tmp_path: Path) -> None:
    (run,) = runs_of(data={"name": "digits", "clients": 3}, algorithm={"name": "fedavg"}, schedule={"rounds": 0})
    described = json.loads((finished(run, tmp_path).path / "clients.json").read_text())
    assert {(client["set"], client["true_cluster"]) for client in described["clients"]} == {(None, None)}


@pytest.mark.parametrize(
    "setting", [{}, {"threshold": 12.0}, {"clusters": 4}, {"measure": "sum"}], ids=lambda s: str(*s) or "auto"
)
def test_a_clustering_can_be_cut_again_from_what_is_stored(setting: dict[str, Any], tmp_path: Path) -> None:
    (run,) = runs_of(algorithm={"name": "pacfl", **setting})
    folder = finished(run, tmp_path)
    stored = load_clustering(folder)
    assert stored is not None
    clustering = stored.clustering
    cluster_of = folder.records()[-1]["cluster_of"]
    assert [cluster_of[str(c)] for c in stored.clients] == clustering.labels.tolist()
    cut = agglomerate(clustering.distances(), clustering.threshold, clustering.linkage)
    assert cut.tolist() == clustering.labels.tolist()
    by_scipy = fcluster(stored.merges, clustering.threshold, "distance")
    assert len(set(zip(by_scipy.tolist(), cut.tolist(), strict=True))) == len(set(cut.tolist()))
    assert clustering.proximity.shape == (8, 8)
    assert len(clustering.noise_scale) == 8
    assert clustering.evidence["reasons"]


@pytest.mark.parametrize("n", [1, 2, 3])
def test_few_clients_are_described_too(n: int, tmp_path: Path) -> None:
    (run,) = runs_of(data={"name": "digits", "clients": n}, algorithm={"name": "pacfl"}, schedule={"rounds": 1})
    folder = finished(run, tmp_path)
    stored = load_clustering(folder)
    assert stored is not None
    assert stored.merges.shape == (n - 1, 4)
    assert stored.clustering.proximity.shape == (n, n)


def test_only_pacfl_has_a_grouping(tmp_path: Path) -> None:
    (run,) = runs_of(algorithm={"name": "fedavg"})
    assert not list(finished(run, tmp_path).path.glob("clustering.*"))


# Tables


def test_nested_values_become_columns() -> None:
    record = {"round": 1, "accuracy": {"received": {"mean": 0.5, "std": None}}, "by_client": {"0": 1}, "loss": {}}
    assert flat(record) == {"round": 1, "accuracy.received.mean": 0.5, "accuracy.received.std": None}


def test_a_table_has_a_column_for_whatever_any_record_has(tmp_path: Path) -> None:
    (run,) = runs_of(algorithm={"name": "fedavg"})
    records = finished(run, tmp_path).records()
    rows = list(csv.DictReader(io.StringIO(as_csv(records))))
    assert [int(row["round"]) for row in rows] == [1, 2, 3]
    for row, record in zip(rows, records, strict=True):
        assert float(row["accuracy.received.mean"]) == record["accuracy"]["received"]["mean"]
    assert rows[0]["accuracy.personal.mean"] == ""
    assert float(rows[-1]["accuracy.personal.worst_tenth"]) == records[-1]["accuracy"]["personal"]["worst_tenth"]
    assert not any("by_client" in name or "cluster_of" in name for name in rows[0])
