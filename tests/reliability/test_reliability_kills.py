"""A run killed at any moment resumes, ends with the same bytes, and loses at most the unfinished round."""

import json
import logging
import shutil
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pacfl.experiment.checkpoint import ARRAYS, LISTS
from pacfl.experiment.config import Run
from pacfl.experiment.store import RunFolder
from tests.reliability.faults import Disk, Journal, Killed, faulty
from tests.reliability.small_runs import files_of, one, run_as_command


def run_until_fault(run: Run, disk: Disk) -> tuple[list[dict[str, Any]], BaseException | None]:
    """Records of the rounds that finished before the fault, and the fault, if there was one."""
    finished = []
    try:
        with faulty(disk):
            for record in run_as_command(run, disk.folder):
                finished.append(record)  # noqa: PERF402 - a fault may interrupt the loop
    except (Killed, OSError) as fault:
        return finished, fault
    return finished, None


SCAFFOLD = {"name": "scaffold"}
PACFL = {"name": "pacfl", "clusters": 2}


@pytest.mark.parametrize(("algorithm", "step"), [(SCAFFOLD, 1), (PACFL, 11)], ids=["every", "every eleventh"])
def test_a_run_killed_at_any_moment_resumes_and_ends_with_the_same_bytes(
    algorithm: dict[str, Any], step: int, tmp_path: Path
) -> None:
    """Before every create, sync, rename and delete, and in the middle of every write."""
    assert assert_resumes_after_faults(one(algorithm=algorithm), tmp_path, full=False, step=step) > 110


@pytest.mark.parametrize(("algorithm", "step"), [(SCAFFOLD, 2), (PACFL, 11)], ids=["every second", "every eleventh"])
def test_a_full_disk_is_reported_and_the_run_resumes_when_there_is_space(
    algorithm: dict[str, Any], step: int, tmp_path: Path
) -> None:
    """From any operation on that needs space, also in the middle of a write."""
    assert assert_resumes_after_faults(one(algorithm=algorithm), tmp_path, full=True, step=step) > 50


def assert_resumes_after_faults(run: Run, place: Path, full: bool, step: int) -> int:
    """A run for every `step`-th moment, with a fault there; returns the number of moments."""
    list(run_as_command(run, place / "whole"))
    whole = files_of(run, place / "whole")
    for at in count(0, step):
        disk = Disk(place / str(at), at, full)
        finished, fault = run_until_fault(run, disk)
        if fault is None:
            return len(disk.moments)
        if full:
            assert str(fault).startswith(f"[Errno 28] No space left on device: '{disk.folder}"), fault
            assert not list(disk.folder.rglob("*.part")), "partial files are deleted"
        rerun = [record["round"] for record in run_as_command(run, disk.folder) if "round" in record]
        assert rerun in ([*range(len(finished) + 1, 4)], [*range(len(finished) + 2, 4)]), disk.moments[-1]
        assert files_of(run, disk.folder) == whole, disk.moments[-1]
        shutil.rmtree(disk.folder)
    raise AssertionError("the run never ends")


def test_a_run_killed_repeatedly_ends_with_the_same_bytes(tmp_path: Path) -> None:
    """Killed every 20 to 60 moments: clients with a memory, and lost replies."""
    run = one(algorithm=SCAFFOLD, schedule={"rounds": 5, "participation": 0.5, "client_dropout": 0.3, "newcomers": 1})
    list(run_as_command(run, tmp_path / "whole"))
    rng = np.random.default_rng(0)
    kills = 0
    while run_until_fault(run, Disk(tmp_path / "broken", int(rng.integers(20, 60))))[1] is not None:
        kills += 1
    assert kills > 5
    assert files_of(run, tmp_path / "broken") == files_of(run, tmp_path / "whole")


# Damaged checkpoints

HOWS = ("truncated", "emptied", "flipped", "deleted")


def damage(path: Path, how: str) -> None:
    content = path.read_bytes()
    middle = len(content) // 2
    if how == "deleted":
        path.unlink()
    else:
        flipped = content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]
        path.write_bytes({"truncated": content[:middle], "emptied": b"", "flipped": flipped}[how])


def interrupted(run: Run, runs: Path) -> RunFolder:
    """The folder of a run interrupted after two rounds."""
    records = run_as_command(run, runs)
    next(records), next(records)
    records.close()  # type: ignore[attr-defined]  # it is a generator
    return RunFolder(runs / run.hash)


def listed(path: Path) -> set[str]:
    return set(json.loads(path.read_bytes())["body"]["arrays"].values())


@pytest.mark.parametrize("how", HOWS)
def test_a_damaged_last_checkpoint_costs_one_round_and_is_reported(
    how: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its list, or any array that is not also in the checkpoint before."""
    run = one()
    list(run_as_command(run, tmp_path / "whole"))
    folder = interrupted(run, tmp_path / "broken")
    last, before = (folder.path / name for name in LISTS)
    own = sorted(listed(last) - listed(before))
    backup = tmp_path / "backup"
    shutil.copytree(folder.path, backup)
    for victim in (last.name, *(f"{ARRAYS}/{name}" for name in own)):
        shutil.rmtree(folder.path)
        shutil.copytree(backup, folder.path)
        damage(folder.path / victim, how)
        caplog.clear()
        rerun = [record["round"] for record in run_as_command(run, tmp_path / "broken") if "round" in record]
        assert rerun == [2, 3], victim
        assert "1 recorded round" in caplog.text
        assert (victim.rpartition("/")[2] in caplog.text) or (how, victim) == ("deleted", last.name)
        assert all(entry.levelno == logging.WARNING for entry in caplog.records)
        assert files_of(run, tmp_path / "broken") == files_of(run, tmp_path / "whole")


@pytest.mark.parametrize("how", HOWS)
def test_a_damaged_array_of_both_checkpoints_restarts_the_run(
    how: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = one()
    list(run_as_command(run, tmp_path / "whole"))
    folder = interrupted(run, tmp_path / "broken")
    shared = sorted(listed(folder.path / LISTS[0]) & listed(folder.path / LISTS[1]))
    damage(folder.path / ARRAYS / shared[0], how)
    rerun = [record["round"] for record in run_as_command(run, tmp_path / "broken") if "round" in record]
    assert rerun == [1, 2, 3]
    assert "2 recorded rounds" in caplog.text
    assert files_of(run, tmp_path / "broken") == files_of(run, tmp_path / "whole")


def test_resuming_an_undamaged_run_warns_of_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    run = one()
    interrupted(run, tmp_path)
    list(run_as_command(run, tmp_path))
    assert caplog.text == ""


# Power failures undo renames and deletions whose folder was not synced since


@pytest.mark.parametrize("undone", [(ARRAYS,), (".",), (ARRAYS, ".")], ids=str)
def test_a_finished_round_survives_a_power_failure_at_any_moment(undone: tuple[str, ...], tmp_path: Path) -> None:
    """The changes in either folder may be lost, or in both."""
    for at in count():
        folder = tmp_path / str(at)
        folder.mkdir()
        run, finished = RunFolder(folder), 0
        journal = Journal(Disk(folder, at))
        try:
            with journal.recording():
                for t in range(4):
                    run.append({"round": t})
                    run.save_checkpoint({"round": t + 1, "w": np.full(9, t), "slow": np.full(9, t // 2)})
                    finished = t + 1
        except Killed:
            journal.undo([folder / name for name in undone])
        if finished:
            loaded = RunFolder(folder).load_checkpoint()
            assert loaded is not None, journal.disk.moments[-1]
            assert loaded["round"] >= finished, journal.disk.moments[-1]
            assert loaded["w"].tolist() == [loaded["round"] - 1] * 9
        if finished == 4:
            break
    assert at > 60, "not every moment was tried"
