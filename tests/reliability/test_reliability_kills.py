"""Killed at every moment, a run goes on, ends with the same bytes, and loses at most the round that was unfinished."""

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
from tests.reliability.small_runs import commanded, left_by, one


def struck(run: Run, disk: Disk) -> tuple[list[dict[str, Any]], BaseException | None]:
    """Play until the fault, if it comes; the rounds that were finished before, and the fault."""
    finished = []
    try:
        with faulty(disk):
            for record in commanded(run, disk.folder):
                finished.append(record)  # noqa: PERF402 - the fault may come in between
    except (Killed, OSError) as fault:
        return finished, fault
    return finished, None


SCAFFOLD = {"name": "scaffold"}
PACFL = {"name": "pacfl", "clusters": 2}


@pytest.mark.parametrize(("algorithm", "step"), [(SCAFFOLD, 1), (PACFL, 11)], ids=["every", "every eleventh"])
def test_a_run_killed_at_any_moment_goes_on_and_ends_with_the_same_bytes(
    algorithm: dict[str, Any], step: int, tmp_path: Path
) -> None:
    """Before every creating, writing, syncing, renaming and deleting, and in the middle of every writing."""
    assert goes_on_after_all(one(algorithm=algorithm), tmp_path, full=False, step=step) > 140


@pytest.mark.parametrize(("algorithm", "step"), [(SCAFFOLD, 2), (PACFL, 11)], ids=["every second", "every eleventh"])
def test_a_run_that_meets_a_full_disk_says_so_and_goes_on_when_there_is_room(
    algorithm: dict[str, Any], step: int, tmp_path: Path
) -> None:
    """From any moment at which it needs room, in the middle of writing too."""
    assert goes_on_after_all(one(algorithm=algorithm), tmp_path, full=True, step=step) > 70


def goes_on_after_all(run: Run, place: Path, full: bool, step: int) -> int:
    """Let every so many-th fault strike a run of its own, and see to it that it goes on; how many moments there are."""
    list(commanded(run, place / "whole"))
    whole = left_by(run, place / "whole")
    for at in count(0, step):
        disk = Disk(place / str(at), at, full)
        finished, fault = struck(run, disk)
        if fault is None:
            return len(disk.moments)
        if full:
            assert str(fault).startswith(f"[Errno 28] No space left on device: '{disk.folder}"), fault
            assert not list(disk.folder.rglob("*.part")), "what could not be written does not fill the disk further"
        again = [record["round"] for record in commanded(run, disk.folder) if "round" in record]
        assert again in ([*range(len(finished), 3)], [*range(len(finished) + 1, 3)]), disk.moments[-1]
        assert left_by(run, disk.folder) == whole, disk.moments[-1]
        shutil.rmtree(disk.folder)
    raise AssertionError("it never ends")


def test_a_run_killed_again_and_again_ends_with_the_same_bytes(tmp_path: Path) -> None:
    """Killed after some 30 moments, and what goes on again: clients with a memory of their own, and lost replies."""
    run = one(algorithm=SCAFFOLD, schedule={"rounds": 5, "participation": 0.5, "client_dropout": 0.3, "newcomers": 1})
    list(commanded(run, tmp_path / "whole"))
    rng = np.random.default_rng(0)
    kills = 0
    while struck(run, Disk(tmp_path / "broken", int(rng.integers(20, 60))))[1] is not None:
        kills += 1
    assert kills > 5
    assert left_by(run, tmp_path / "broken") == left_by(run, tmp_path / "whole")


# Checkpoints that are damaged at rest

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
    """After two rounds."""
    playing = commanded(run, runs)
    next(playing), next(playing)
    playing.close()  # type: ignore[attr-defined]  # it is a generator
    return RunFolder(runs / run.hash)


def listed(path: Path) -> set[str]:
    return set(json.loads(path.read_bytes())["body"]["arrays"].values())


@pytest.mark.parametrize("how", HOWS)
def test_a_damaged_last_checkpoint_costs_one_round_and_is_told(
    how: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its list, or any array that it has and the checkpoint before has not."""
    run = one()
    list(commanded(run, tmp_path / "whole"))
    folder = interrupted(run, tmp_path / "broken")
    last, before = (folder.path / name for name in LISTS)
    own = sorted(listed(last) - listed(before))
    kept = tmp_path / "kept"
    shutil.copytree(folder.path, kept)
    for victim in (last.name, *(f"{ARRAYS}/{name}" for name in own)):
        shutil.rmtree(folder.path)
        shutil.copytree(kept, folder.path)
        damage(folder.path / victim, how)
        caplog.clear()
        again = [record["round"] for record in commanded(run, tmp_path / "broken") if "round" in record]
        assert again == [1, 2], victim
        assert "1 recorded rounds are played again, from round 1 on" in caplog.text
        assert (victim.rpartition("/")[2] in caplog.text) or (how, victim) == ("deleted", last.name)
        assert all(entry.levelno == logging.WARNING for entry in caplog.records)
        assert left_by(run, tmp_path / "broken") == left_by(run, tmp_path / "whole")


@pytest.mark.parametrize("how", HOWS)
def test_what_both_checkpoints_need_begins_the_run_anew_if_it_is_damaged(
    how: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = one()
    list(commanded(run, tmp_path / "whole"))
    folder = interrupted(run, tmp_path / "broken")
    shared = sorted(listed(folder.path / LISTS[0]) & listed(folder.path / LISTS[1]))
    damage(folder.path / ARRAYS / shared[0], how)
    again = [record["round"] for record in commanded(run, tmp_path / "broken") if "round" in record]
    assert again == [0, 1, 2]
    assert "2 recorded rounds are played again, from round 0 on" in caplog.text
    assert left_by(run, tmp_path / "broken") == left_by(run, tmp_path / "whole")


def test_an_undamaged_run_that_goes_on_says_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    run = one()
    interrupted(run, tmp_path)
    list(commanded(run, tmp_path))
    assert caplog.text == ""


# The power fails: what was renamed or deleted is as before, unless its folder was settled since


@pytest.mark.parametrize("undone", [(ARRAYS,), (".",), (ARRAYS, ".")], ids=str)
def test_a_finished_round_survives_a_power_failure_at_any_moment(undone: tuple[str, ...], tmp_path: Path) -> None:
    """The changes of either folder may be lost, or those of both."""
    for at in count():
        folder = tmp_path / str(at)
        folder.mkdir()
        run, finished = RunFolder(folder), 0
        journal = Journal(Disk(folder, at))
        try:
            with journal.kept():
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
    assert at > 60, "every moment was tried"
