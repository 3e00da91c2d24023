"""The folder of a federation, killed at any moment: it is as before the command, or as after it."""

import shutil
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from pacfl.signatures import folder as folders
from pacfl.signatures import join_files, leave_federation, replace_file, sigfile
from tests.reliability.faults import Disk, Killed, faulty
from tests.signatures.test_federation import client
from tests.signatures.test_lifecycle import three_groups

COMMANDS: dict[str, Callable[[Path], object]] = {
    "leave": lambda folder: leave_federation(folder, ["g0-0", "g1-1"]),
    "join": lambda folder: join_files(folder, [folder.parent / "late.sig"]),
    "replace": lambda folder: replace_file(folder, folder.parent / "g1-2.sig", move=True),
}


def stored(folder: Path) -> dict[str, int]:
    federation = folders.load(folder)
    return dict(zip(federation.names, federation.clustering.labels.tolist(), strict=True))


@pytest.mark.parametrize("command", COMMANDS)
def test_a_kill_at_any_moment_loses_nothing(tmp_path: Path, command: str) -> None:
    act, seen, start = COMMANDS[command], set(), tmp_path / "start"
    sigfile.write(tmp_path / "late.sig", client(1, 70))
    sigfile.write(tmp_path / "g1-2.sig", client(2, 70))
    start.mkdir()
    folders.save(three_groups(), start)
    shutil.copytree(start, tmp_path / "whole")
    act(tmp_path / "whole")
    before, after = stored(start), stored(tmp_path / "whole")
    assert before != after
    for at in count():
        folder = tmp_path / str(at)
        shutil.copytree(start, folder)
        try:
            with faulty(Disk(folder, at)):
                act(folder)
        except Killed:
            found = stored(folder)
            assert found in (before, after)
            seen.add(found == after)
        else:
            break
    assert seen == {False, True}
    act(tmp_path / "0")  # the same command again does what was asked
    assert stored(tmp_path / "0") == after
