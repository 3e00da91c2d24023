"""The folder of a federation, killed at any moment: it is as before the command, or as after it."""

from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from pacfl.signatures import folder as folders
from pacfl.signatures import leave_federation
from tests.reliability.faults import Disk, Killed, faulty
from tests.signatures.test_lifecycle import three_groups

COMMANDS: dict[str, Callable[[Path], object]] = {"leave": lambda folder: leave_federation(folder, ["g0-0", "g1-1"])}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_kill_at_any_moment_loses_nothing(tmp_path: Path, command: str) -> None:
    act, seen = COMMANDS[command], set()
    (tmp_path / "whole").mkdir()
    folders.save(three_groups(), tmp_path / "whole")
    before = folders.load(tmp_path / "whole").summary()
    act(tmp_path / "whole")
    after = folders.load(tmp_path / "whole").summary()
    for at in count():
        folder = tmp_path / str(at)
        folder.mkdir()
        folders.save(three_groups(), folder)
        try:
            with faulty(Disk(folder, at)):
                act(folder)
        except Killed:
            found = folders.load(folder).summary()
            assert found in (before, after)
            seen.add(found == after)
            if found == before:  # and the same command does what was asked
                act(folder)
                assert folders.load(folder).summary() == after
        else:
            break
    assert seen == {False, True}
