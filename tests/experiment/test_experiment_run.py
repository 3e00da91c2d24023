import errno
import json
import subprocess
import sys
from pathlib import Path
from typing import Any
from weakref import ref

import numpy as np
import pytest

from pacfl.data import build_scheme, from_arrays, partition
from pacfl.experiment import checkpoint, store
from pacfl.experiment.checkpoint import LISTS
from pacfl.experiment.config import Run, expand
from pacfl.experiment.run import build, prepare, resume
from pacfl.experiment.store import RunFolder, folder_of
from pacfl.experiment.summary import clusters, spread
from pacfl.federation.local import LocalBackend
from pacfl.files import write_atomically

ALGORITHMS = (
    {"name": "fedavg"},
    {"name": "scaffold"},
    {"name": "lg-fedavg", "shared_layers": 1},
    {"name": "ifca", "clusters": 2},
    {"name": "cfl", "eps1": 1e9, "eps2": 0.0, "first_split": 1},
    {"name": "solo"},
    {"name": "pacfl"},
)
TABLE: dict[str, Any] = {
    "data": {"name": "digits", "clients": 8, "scheme": {"kind": "by-set", "counts": [2, 2, 2, 2], "size": 60}},
    "model": {"name": "logistic"},
    "learning": {"epochs": 1, "lr": 0.05},
    "schedule": {"rounds": 4, "participation": 0.5, "evaluate-every": 2, "newcomers": 1, "client_dropout": 0.2},
}
PROTOCOLS = {"received", "personal", "last_trained"}


def one(**sections: Any) -> Run:
    (run,) = expand({**TABLE, "algorithm": {"name": "fedavg"}, **sections})
    return run


def finished(run: Run, folder: RunFolder) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Records and result of a run that is run to its end, without the time that it took."""
    *_, result = resume(run, folder)
    assert result == folder.result()
    return folder.records(), {key: value for key, value in result.items() if key != "seconds"}


def interrupted(run: Run, folder: RunFolder, after: int) -> None:
    """Play, and stop after some records."""
    running = resume(run, folder)
    for _ in range(after):
        next(running)
    running.close()  # type: ignore[attr-defined]  # it is a generator
    assert folder.result() is None


def folders(run: Run, tmp_path: Path) -> tuple[RunFolder, RunFolder]:
    return folder_of(run, tmp_path / "whole"), folder_of(run, tmp_path / "broken")


def test_runs_of_one_process_share_their_data_and_let_go_of_them() -> None:
    first, second = (build(one(algorithm={"name": name}), None) for name in ("fedavg", "solo"))
    assert np.shares_memory(first.setup.pool.train.x, second.setup.pool.train.x)
    own = from_arrays(np.eye(6, dtype=np.float32), [0, 1] * 3, np.eye(6, dtype=np.float32), [0, 1] * 3)
    parts = partition(own, build_scheme({"kind": "iid"}), 2, np.random.default_rng(0))
    held = ref(prepare(own, parts).train.x)
    assert held() is not None
    del own
    assert held() is None


@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=lambda a: a["name"])
def test_a_run_interrupted_after_every_round_ends_as_one_that_never_was(
    algorithm: dict[str, Any], tmp_path: Path
) -> None:
    run = one(algorithm=algorithm)
    whole, broken = folders(run, tmp_path)
    expected = finished(run, whole)
    assert [record["round"] for record in expected[0]] == [1, 2, 3, 4, 5, 6]
    for n in range(6):
        interrupted(run, broken, 1)
        assert len(broken.records()) == n + 1
    assert finished(run, broken) == expected


class FullDisk:
    """A disk on which the n-th write fails, and all that follow."""

    def __init__(self, n: int) -> None:
        self.left = n

    def write(self, path: Path, content: bytes) -> int:
        self.left -= 1
        if self.left < 0:
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        return write_atomically(path, content)


@pytest.mark.parametrize("n", [*range(12), 20, 31])
def test_a_run_that_met_a_full_disk_goes_on_when_there_is_room(
    n: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever could not be written: the list of a checkpoint, an array of it, the description of clients."""
    run = one(algorithm={"name": "scaffold"})
    whole, broken = folders(run, tmp_path)
    with monkeypatch.context() as patched:
        disk = FullDisk(n)
        patched.setattr(store, "write_atomically", disk.write)
        patched.setattr(checkpoint, "write_atomically", disk.write)
        with pytest.raises(OSError, match="No space left"):
            list(resume(run, broken))
    assert broken.result() is None
    assert finished(run, RunFolder(broken.path)) == finished(run, whole)


@pytest.mark.parametrize("n_damaged", [1, 2])
def test_a_run_whose_checkpoints_are_damaged_ends_as_if_they_were_not(n_damaged: int, tmp_path: Path) -> None:
    run = one(algorithm={"name": "scaffold"})
    whole, broken = folders(run, tmp_path)
    interrupted(run, broken, 3)
    for name in LISTS[:n_damaged]:
        (broken.path / name).write_bytes(b"damage")
    assert finished(run, broken) == finished(run, whole)


@pytest.mark.parametrize("lost", [1, 2, 3])
def test_records_that_a_crash_lost_are_played_again(lost: int, tmp_path: Path) -> None:
    """A machine that loses its power may keep a checkpoint and lose the end of the records, or all of them."""
    run = one(algorithm={"name": "pacfl", "clusters": 4})
    whole, broken = folders(run, tmp_path)
    interrupted(run, broken, 3)
    path = broken.path / "rounds.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:-lost]) + lines[-lost][:-5])
    assert finished(run, broken) == finished(run, whole)


def test_a_run_that_was_killed_goes_on(tmp_path: Path) -> None:
    """Another process plays with two workers and is killed without warning in the middle of its rounds."""
    run = one(algorithm={"name": "scaffold"}, schedule={**TABLE["schedule"], "rounds": 12})
    whole, broken = folders(run, tmp_path)
    expected = finished(run, whole)
    program = """
import json, sys
from pathlib import Path
from pacfl.experiment.run import resume
from pacfl.experiment.config import expand
from pacfl.experiment.store import folder_of
from pacfl.federation.local import LocalBackend
(run,) = expand(json.loads(sys.argv[1]))
folder = folder_of(run, Path(sys.argv[2]))
for record in resume(run, folder, backend=LocalBackend(2)):
    print(folder.path.name, flush=True)
"""
    table = {**TABLE, "schedule": {**TABLE["schedule"], "rounds": 12}, "algorithm": {"name": "scaffold"}}
    command = [sys.executable, "-c", program, json.dumps(table), str(tmp_path / "broken")]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as running:
        assert running.stdout is not None
        for _ in range(4):
            assert running.stdout.readline().decode().strip() == run.hash
        running.kill()
        running.communicate(timeout=20)  # its output ends when its workers have ended too
    assert broken.result() is None
    assert len(broken.records()) >= 4
    held = RunFolder(broken.path).load_checkpoint()
    assert held is not None
    assert held["round"] >= 3
    assert finished(run, broken) == expected


# Results


def test_a_result_says_what_is_promised(tmp_path: Path) -> None:
    paper = {"compare": "inputs", "label_prior": False, "levels": "none"}
    run = one(algorithm={"name": "pacfl", "rank": 2, **paper}, schedule={"rounds": 2, "participation": 0.5})
    *records, result = resume(run, folder_of(run, tmp_path))
    assert set(result) >= {
        "hash", "algorithm", "seed", "clusters", "ari", "accuracy", "bytes_down", "bytes_up", "seconds",
    }  # fmt: skip
    assert (result["hash"], result["algorithm"], result["seed"]) == (run.hash, "pacfl(paper, rank=2)", 0)
    assert set(result["accuracy"]) == PROTOCOLS
    for protocol in PROTOCOLS:
        assert set(result["accuracy"][protocol]) == {"mean", "std", "worst_tenth"}
        assert 0 <= result["accuracy"][protocol]["worst_tenth"] <= result["accuracy"][protocol]["mean"] <= 1
    d = 64 * 10 + 10
    assert result["bytes_down"] == 2 * 4 * 4 * d == sum(record["bytes_down"] for record in records)
    assert result["bytes_up"] == 2 * 4 * 4 * d + 8 * 4 * (64 * 2 + 32)
    assert result["seconds"] >= 0
    json.dumps(result, allow_nan=False)


def test_a_run_may_end_without_personalisation_and_is_otherwise_the_same(tmp_path: Path) -> None:
    given = {"rounds": 2, "participation": 0.5, "newcomers": 1}
    with_it, without = (
        list(resume(run, folder_of(run, tmp_path)))[-1]
        for run in (one(schedule=given), one(schedule={**given, "final-personal": False}))
    )
    assert set(without["accuracy"]) == {"received", "last_trained"}
    assert set(without["newcomers"]["accuracy"]) == {"received", "last_trained", "fine_tuned"}
    assert without["accuracy"] == {p: with_it["accuracy"][p] for p in without["accuracy"]}


def test_scores_of_a_record_are_those_of_its_clients(tmp_path: Path) -> None:
    run = one(schedule={"rounds": 2, "participation": 0.5, "evaluate-every": 1})
    *records, _ = resume(run, folder_of(run, tmp_path))
    for record in records:
        protocols = PROTOCOLS if record["round"] == 3 else PROTOCOLS - {"personal"}
        assert set(record["by_client"]) == protocols
        for protocol, by_client in record["by_client"].items():
            accuracies = [accuracy for accuracy, _ in by_client.values()]
            assert len(accuracies) == 8
            assert record["accuracy"][protocol]["mean"] == pytest.approx(np.mean(accuracies), abs=1e-12)


def test_the_worst_tenth_is_the_worst_in_losses_too(tmp_path: Path) -> None:
    run = one(schedule={"rounds": 1, "participation": 0.5})
    *_, record, result = resume(run, folder_of(run, tmp_path))
    for protocol, by_client in record["by_client"].items():
        assert result["accuracy"][protocol]["worst_tenth"] == min(accuracy for accuracy, _ in by_client.values())
        assert result["loss"][protocol]["worst_tenth"] == max(loss for _, loss in by_client.values())


def test_a_run_that_everybody_left_ends_with_nobody_to_evaluate(tmp_path: Path) -> None:
    run = one(schedule={"rounds": 2, "participation": 0.5, "leaves": {"2": list(range(8))}})
    *_, result = resume(run, folder_of(run, tmp_path))
    assert result["accuracy"] == {}
    assert result["bytes_down"] > 0


def test_pacfl_finds_the_four_domains_of_digits_and_serves_them_better(tmp_path: Path) -> None:
    learning = {"epochs": 5, "lr": 0.05}
    data = {"name": "digits", "clients": 12, "scheme": {"kind": "by-set", "counts": [3, 3, 3, 3], "size": 100}}
    given = {"data": data, "learning": learning, "schedule": {"rounds": 4, "participation": 1.0}}
    results = {}
    for name in ("pacfl", "fedavg"):
        run = one(**given, algorithm={"name": name})
        *_, results[name] = resume(run, folder_of(run, tmp_path))
    assert (results["pacfl"]["clusters"], results["pacfl"]["ari"]) == (4, 1.0)
    assert (results["fedavg"]["clusters"], results["fedavg"]["ari"]) == (1, 0.0)
    received = {name: result["accuracy"]["received"]["mean"] for name, result in results.items()}
    assert received["pacfl"] > received["fedavg"]


def test_where_the_truth_is_not_known_there_is_no_index(tmp_path: Path) -> None:
    data = {"name": "digits", "clients": 5, "scheme": {"kind": "label-skew", "share": 0.3}}
    run = one(data=data, schedule={"rounds": 1})
    *_, result = resume(run, folder_of(run, tmp_path))
    assert result["ari"] is None


def test_the_seed_decides_everything(tmp_path: Path) -> None:
    runs = expand({**TABLE, "seeds": [0, 1], "algorithm": {"name": "fedavg"}})
    first, other = (finished(run, folder_of(run, tmp_path / "a"))[0] for run in runs)
    again = finished(runs[0], folder_of(runs[0], tmp_path / "b"))[0]
    assert first == again
    assert first != other


def test_workers_change_nothing_in_a_run(tmp_path: Path) -> None:
    run = one(algorithm={"name": "pacfl", "clusters": 4})
    alone, together = folders(run, tmp_path)
    expected = finished(run, alone)
    *_, result = resume(run, together, backend=LocalBackend(2))
    assert together.records() == expected[0]
    assert {key: value for key, value in result.items() if key != "seconds"} == expected[1]


def test_a_model_that_cannot_take_the_data_is_refused_before_any_training(tmp_path: Path) -> None:
    run = one(model={"name": "lenet5"})
    folder = folder_of(run, tmp_path)
    with pytest.raises(ValueError, match=r"8\D+8"):
        next(resume(run, folder))
    assert folder.records() == []


@pytest.mark.parametrize("shape", [(6, 5), (6, 5, 3), (7,)], ids=["grey", "colour", "features"])
def test_samples_are_prepared_channels_first_and_raw_ones_are_left_alone(shape: tuple[int, ...]) -> None:
    from pacfl.data import Iid, partition
    from pacfl.learning.randomness import stream

    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (40, *shape)).astype(np.uint8)
    dataset = from_arrays(x[:30], np.arange(30) % 3, x[30:], np.arange(10) % 3)
    pool = prepare(dataset, partition(dataset, Iid(), 3, stream(0)))
    assert pool.raw is dataset.x_train
    expected = {(6, 5): (1, 6, 5), (6, 5, 3): (3, 6, 5), (7,): (7,)}[shape]
    assert pool.train.x.shape == (30, *expected)
    assert pool.test.x.shape == (10, *expected)
    assert pool.train.x.dtype == np.float32
    channels = pool.train.x.transpose(1, 0, 2, 3).reshape(expected[0], -1) if len(shape) > 1 else pool.train.x
    assert np.abs(channels.mean(axis=-1) if len(shape) > 1 else channels.mean()).max() < 1e-5
    if shape == (6, 5, 3):
        assert np.corrcoef(pool.train.x[:, 1].ravel(), x[:30, ..., 1].ravel())[0, 1] == pytest.approx(1.0, abs=1e-6)


# Summaries


def test_spread_by_hand() -> None:
    """Of 0, 1, ..., 19: mean 9.5, variance (20² - 1) / 12 = 33.25, and the worst two of twenty have mean 0.5."""
    found = spread([float(19 - c) for c in range(20)])
    assert found == {"mean": 9.5, "std": pytest.approx(33.25**0.5), "worst_tenth": 0.5}
    assert spread(range(20), "highest")["worst_tenth"] == 18.5
    assert spread([0.25]) == {"mean": 0.25, "std": 0.0, "worst_tenth": 0.25}


def test_clusters_without_members_are_not_counted() -> None:
    assert clusters({4: 0, 7: 2, 9: 2}, None) == {"clusters": 2, "sizes": [1, 2], "ari": None}
    assert clusters({}, None)["clusters"] == 0


def test_the_index_compares_those_who_are_there_with_their_own_truth() -> None:
    true_cluster = np.array([0, 0, 1, 1, 0, 1])
    assert clusters({5: 0, 0: 1, 3: 0, 4: 1}, true_cluster)["ari"] == 1.0
    assert clusters({5: 0, 0: 0, 3: 1, 4: 1}, true_cluster)["ari"] < 0.1
