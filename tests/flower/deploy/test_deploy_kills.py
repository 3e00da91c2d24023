"""A deployed server that is killed again and again, against one that is not: pytest -m slow -s tests/flower/deploy.

It prints the rows of a table in docs/reliability.md.
"""

import os
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from loopback_federation import Loopback, deployed

from pacfl.experiment.store import RunFolder
from pacfl.flower.deploy import loopback

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::ResourceWarning")]

ROUNDS, KILLS = 12, 4
SETTINGS: dict[str, dict[str, Any]] = {
    "federation": {"minimum-clients": 2, "deadline": 60.0},
    "algorithm": {"name": "scaffold"},  # clients have memory
    "schedule": {"rounds": ROUNDS, "participation": 1.0},
    "learning": {"epochs": 1, "batch_size": 10, "lr": 0.05, "momentum": 0.5},
}


@pytest.fixture
def short_path() -> Iterator[Path]:
    """Unix sockets need short paths."""
    folder = Path(os.environ.get("TMPDIR", "/tmp")) / f"pacfl-kill-{os.getpid()}"
    folder.mkdir()
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def finished(sites: Loopback) -> bool:
    return bool(sites.status["phase"] == "finished")


def outcome(sites: Loopback) -> tuple[dict[str, bytes], list[dict[str, Any]]]:
    """The arrays of the final state, and the records without the time of day."""
    folder = loopback.federation(sites.folder)
    checkpoint = RunFolder(folder).load_checkpoint()
    assert checkpoint is not None
    state = checkpoint["state"]
    arrays = {"models": state.models.tobytes(), "control": state.control.tobytes()}
    return arrays, [{**record, "at": 0} for record in sites.records]


def test_a_server_killed_at_random_moments_ends_with_the_same_result(short_path: Path) -> None:
    place, fresh = short_path / "d", short_path / "fresh"
    with deployed(place, 2, SETTINGS) as sites:
        shutil.copytree(place, fresh)  # the same keys, so that clients have the same numbers
        sites.start([0, 1])
        seconds = sites.wait("the end", lambda: finished(sites), 600)
        expected = outcome(sites)
    print(f"\n| never killed | {len(expected[1])} rounds | {seconds:.0f} s |", flush=True)
    shutil.rmtree(place)
    shutil.move(fresh, place)
    rng = np.random.default_rng(0)
    sites = Loopback(place)
    try:
        sites.start([0, 1])
        sites.wait_for_round(1, 300)
        for kill in range(KILLS):
            time.sleep(float(rng.uniform(0, seconds / ROUNDS)))
            kill_server(sites, superlink=kill % 2 == 0)
        sites.wait("the end", lambda: finished(sites), 600)
        found = outcome(sites)
    finally:
        list(loopback.down(place))
    assert [record["round"] for record in found[1]] == list(range(1, ROUNDS + 2))
    assert not [record["reply_failures"] for record in found[1] if record["reply_failures"]]
    assert found == expected


def kill_server(sites: Loopback, superlink: bool) -> None:
    """Kill the SuperLink with all that it has started, or the ServerApp alone; then start the run again."""
    finished_rounds, start = len(sites.records), time.monotonic()
    if superlink:
        sites.kill(loopback.SERVER)
        finished_rounds = len(sites.records)
        loopback.start_server(sites.folder)
    else:
        pid = sites.part(loopback.SERVER, "flwr-serverapp")
        assert pid is not None, "the federation is running"
        os.kill(pid, signal.SIGKILL)
        finished_rounds = len(sites.records)
    loopback.begin(sites.folder)
    sites.wait_for_round(min(finished_rounds + 1, ROUNDS + 1), 300)
    what = "SuperLink and ServerApp" if superlink else "ServerApp"
    print(f"| {what} killed | after {finished_rounds} rounds, resumes | {time.monotonic() - start:.0f} s |", flush=True)
