"""The server of real sites, killed at any access to its files: nothing is lost but time."""

import shutil
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_flower_server import GoneError, config, records, state_of
from test_flower_server import Killed as KilledInRound

from pacfl.experiment.checkpoint import LISTS
from pacfl.flower import server
from pacfl.flower.client_memory import ClientMemory
from pacfl.flower.server import federate
from tests.flower.fake_grid import FakeGrid, client_loader
from tests.reliability.faults import Disk, Killed, faulty
from tests.small_federation import lively, same

pytestmark = pytest.mark.usefixtures("identity")

NODES = [100, 103]


def outcome(folder: Path) -> tuple[Any, list[dict[str, Any]]]:
    """The final state and the records, without the time of day."""
    return state_of(folder), [{**record, "at": 0} for record in records(folder)]


def grid(name: str, place: Path, first: int = 100) -> FakeGrid:
    return FakeGrid(client_loader(lively(name), place / "memory"), [first + node % 100 for node in NODES])


@pytest.mark.parametrize(("full", "step"), [(False, 1), (True, 3)], ids=["killed", "full disk"])
def test_a_server_killed_at_any_moment_resumes_and_ends_with_the_same_result(
    full: bool, step: int, tmp_path: Path
) -> None:
    """Clients have stored their memory of the round, and are asked again."""
    federate(grid("scaffold", tmp_path), config(tmp_path / "whole", "scaffold", rounds=2))
    whole = outcome(tmp_path / "whole")
    for at in count(0, step):
        place = tmp_path / str(at)
        disk = Disk(place / "f", at, full)
        try:
            with faulty(disk):
                federate(grid("scaffold", place), config(place / "f", "scaffold", rounds=2))
            break
        except (Killed, OSError) as fault:
            message = str(fault)
        assert not full or "No space left on device" in message
        finished = len(records(place / "f")) if (place / "f").exists() else 0
        again = grid("scaffold", place, first=200)
        federate(again, config(place / "f", "scaffold", rounds=2))
        trained = {int(message.metadata.group_id) for message in again.sent if message.metadata.message_type == "train"}
        assert not trained or min(trained) >= finished - 1, disk.moments[-1]
        assert same(outcome(place / "f")[0], whole[0]), disk.moments[-1]
        assert outcome(place / "f")[1] == whole[1], disk.moments[-1]
        shutil.rmtree(place)
    assert at > 60, "every moment was tried"


@pytest.mark.parametrize("how", [b"", b"damage"], ids=["emptied", "other"])
@pytest.mark.parametrize("name", ["scaffold", "lg-fedavg", "pacfl"])
def test_a_server_whose_last_checkpoint_is_damaged_runs_the_previous_round_again(
    name: str, how: bytes, tmp_path: Path
) -> None:
    """Clients still have their memory before it, and discard that after it."""
    load = client_loader(lively(name), tmp_path / "memory")
    with pytest.raises(GoneError):
        federate(KilledInRound(load, NODES, at=3), config(tmp_path / "killed", name, rounds=5))
    (tmp_path / "killed" / LISTS[0]).write_bytes(how)
    again = grid(name, tmp_path, first=200)
    federate(again, config(tmp_path / "killed", name, rounds=5))
    assert min(int(m.metadata.group_id) for m in again.sent if m.metadata.message_type == "train") == 2
    federate(grid(name, tmp_path / "other"), config(tmp_path / "whole", name, rounds=5))
    assert same(outcome(tmp_path / "killed"), outcome(tmp_path / "whole"))


def test_a_client_killed_at_any_moment_has_the_memory_before_or_after_the_round(tmp_path: Path) -> None:
    for at in count():
        memory = ClientMemory(tmp_path / str(at))
        for t in range(3):
            memory.save(t, {"c": np.full(9, t)}, None, safe=t)
        try:
            with faulty(Disk(memory.folder, at)):
                memory.save(3, {"c": np.full(9, 3)}, None, safe=3)
            break
        except Killed:
            pass
        before, after = memory.before(3)[0], memory.before(4)[0]
        assert before is not None
        assert after is not None
        assert before["c"].tolist() == [2] * 9
        assert after["c"].tolist() in ([2] * 9, [3] * 9)
    assert at > 5


def test_reply_failures_are_recorded_and_not_accumulated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[Any] = []

    class Watched(server.FlowerBackend):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            held.append(self.reply_failures)

    monkeypatch.setattr(server, "FlowerBackend", Watched)
    mute = {100: lambda kind, content: None if kind == "train" else content}
    silent = FakeGrid(client_loader(lively("fedavg"), tmp_path / "memory"), NODES, mute)
    federate(silent, config(tmp_path / "f", "fedavg", rounds=4, **{"federation.deadline": 0.05}))
    assert [len(record["reply_failures"]) for record in records(tmp_path / "f")] == [1, 1, 1, 1, 0]
    assert len(held[0]) <= 1
