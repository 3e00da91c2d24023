"""A deployed server that is killed again and again, against one that never was: pytest -m slow -s tests/deploy.

It prints what was done and what happened, as docs/reliability.md has it.
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
from pacfl.flower.deploy import loopback, processes

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::ResourceWarning")]

ROUNDS, KILLS = 12, 4
SETTINGS: dict[str, dict[str, Any]] = {
    "federation": {"minimum-clients": 2, "deadline": 60.0},
    "algorithm": {"name": "scaffold"},  # clients remember
    "schedule": {"rounds": ROUNDS, "participation": 1.0},
    "learning": {"epochs": 1, "batch_size": 10, "lr": 0.05, "momentum": 0.5},
}


@pytest.fixture
def short_path() -> Iterator[Path]:
    """Sockets want short paths."""
    folder = Path(os.environ.get("TMPDIR", "/tmp")) / f"pacfl-kill-{os.getpid()}"
    folder.mkdir()
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def finished(sites: Loopback) -> bool:
    return bool(sites.status["phase"] == "finished")


def outcome(sites: Loopback) -> tuple[dict[str, bytes], list[dict[str, Any]]]:
    """The arrays of the last state, by their digests, and the records without the time of day."""
    folder = loopback.federation(sites.folder)
    kept = RunFolder(folder).load_checkpoint()
    assert kept is not None
    arrays = {"models": kept["state"].models.tobytes(), "control": kept["state"].control.tobytes()}
    return arrays, [{**record, "at": 0} for record in sites.records]


def server_app(sites: Loopback) -> int | None:
    """The process in which the federation is played."""
    family = processes.descendants(processes.running(sites.folder)[loopback.SERVER])
    found = [process.pid for process in family if "flwr-serverapp" in " ".join(process.cmdline())]
    return found[0] if found else None


def test_a_server_killed_at_random_moments_ends_as_if_it_had_not_been(short_path: Path) -> None:
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
            struck_server(sites, superlink=kill % 2 == 0)
        sites.wait("the end", lambda: finished(sites), 600)
        found = outcome(sites)
    finally:
        list(loopback.down(place))
    assert [record["round"] for record in found[1]] == list(range(ROUNDS + 1))
    assert not [record["reply_errors"] for record in found[1] if record["reply_errors"]]
    assert found == expected


def struck_server(sites: Loopback, superlink: bool) -> None:
    """The SuperLink with all that it has started, or the ServerApp alone; then the run is begun again."""
    played, start = len(sites.records), time.monotonic()
    if superlink:
        sites.kill(loopback.SERVER)
        played = len(sites.records)
        loopback.start_server(sites.folder)
    else:
        pid = server_app(sites)
        assert pid is not None, "the federation is being played"
        os.kill(pid, signal.SIGKILL)
        played = len(sites.records)
    loopback.begin(sites.folder)
    sites.wait_for_round(min(played + 1, ROUNDS + 1), 300)
    what = "SuperLink and ServerApp" if superlink else "ServerApp"
    print(f"| {what} killed | after {played} rounds, goes on | {time.monotonic() - start:.0f} s |", flush=True)
