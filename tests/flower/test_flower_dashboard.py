"""A federation of sites is shown while its server runs."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from pacfl.experiment.store import RunFolder
from pacfl.flower import health
from pacfl.flower.dashboard import WatchedServer
from pacfl.flower.message_types import TRAIN
from pacfl.flower.server import federate
from pacfl.folders import Folder, recognise
from pacfl.report.progress import Cluster
from tests.flower.fake_grid import FakeGrid, client_loader
from tests.flower.test_flower_server import NODES, config, records
from tests.small_federation import lively

pytest.importorskip("torch", reason="sites train, which needs torch")
pytestmark = pytest.mark.usefixtures("identity")


def silent_in_training(kind: str, content: Any) -> Any:
    return None if kind == TRAIN else content


@pytest.fixture
def server(tmp_path: Path) -> Path:
    """Six sites, of which one never replies to a training."""
    grid = FakeGrid(client_loader(lively("pacfl"), tmp_path / "memory"), NODES, {105: silent_in_training})
    federate(grid, config(tmp_path / "f", rounds=3))
    return tmp_path / "f"


def of(path: Path) -> Folder:
    found = recognise(path)
    assert found is not None
    return found


def test_sites_clusters_and_errors_are_those_of_the_records(server: Path) -> None:
    state, stored = WatchedServer(of(server)).state(), records(server)
    assert (state.kind, state.phase, state.done, state.planned, state.eta) == ("server", "finished", 3, 3, None)
    assert state.clusters == (
        Cluster(0, ("site-00", "site-01", "site-02")),
        Cluster(1, ("site-03", "site-04", "site-05")),
    )
    assert {site.name: site.alive for site in state.sites} == {f"site-{c:02d}": True for c in range(6)}
    assert [site.last_seen for site in state.sites] == [stored[-1]["at"]] * 5 + [None]
    assert len([error for error in state.errors if "site-05" in error]) == len(state.errors) == 3
    assert state.errors[0].startswith("round 3 client site-05: ")
    assert state.score == pytest.approx(stored[-1]["accuracy"]["received"]["mean"])
    assert state.bytes_down == sum(record["bytes_down"] for record in stored)
    RunFolder(server).truncate_records(3)
    assert [site.last_seen for site in WatchedServer(of(server)).state().sites] == [stored[2]["at"]] * 5 + [None]


def written(server: Path, **changes: Any) -> None:
    content = json.loads((server / health.FILE).read_text())
    (server / health.FILE).write_text(json.dumps({**content, **changes}))


def test_the_time_left_is_the_median_of_rounds_and_problems_are_those_of_the_status(server: Path) -> None:
    RunFolder(server).truncate_records(0)
    for t, at in enumerate((0.0, 10.0, 20.0, 9000.0, 9010.0)):  # a night lies between the third and the fourth
        made = {"round": t + 1, "sampled": [0], "at": at, "bytes_down": 0, "bytes_up": 0, "reply_failures": []}
        RunFolder(server).append({**made, "by_client": {}})
    now = time.time()
    written(server, phase="running", round=5, rounds=8, at=now, heartbeat=now, deadline=300.0)
    state = WatchedServer(of(server)).state()
    assert (state.phase, state.eta) == ("running", 30.0)
    assert state.problems == tuple(one.what for one in health.problems(server))
    written(server, heartbeat=now - 3600)  # the server app was killed
    state = WatchedServer(of(server)).state()
    assert (state.phase, state.eta) == ("stalled", None)
    assert "last sign of life" in state.problems[0]


def test_a_server_that_has_done_nothing_yet_is_shown_too(tmp_path: Path) -> None:
    health.starting(tmp_path)
    state = WatchedServer(of(tmp_path)).state()
    assert (state.phase, state.sites, state.clusters, state.score) == ("starting", (), (), None)


def test_a_heartbeat_alone_is_nothing_new_to_report(server: Path) -> None:
    shown = WatchedServer(of(server))
    before = shown.state().version
    written(server, heartbeat=time.time())
    assert shown.state().version == before
    RunFolder(server).save_checkpoint({"round": 9})
    assert shown.state().version != before
