"""The first clustering waits for all sites, later rounds for a quorum, and a round without an update does not count."""

import sys
from pathlib import Path

import pytest

from pacfl.errors import ConfigError
from pacfl.flower import client_registry, server, settings, status
from pacfl.flower.deploy import layout
from pacfl.flower.server import federate
from pacfl.flower.settings import DeploymentSettings
from tests.flower.fake_grid import FakeGrid, client_loader
from tests.flower.test_flower_server import NODES, Changing, config, records, state_of
from tests.small_federation import lively

pytestmark = pytest.mark.usefixtures("identity")

sys.path.append(str(Path(__file__).parent))  # the folder of the user's module


@pytest.mark.parametrize(
    ("minimum", "quorum", "first", "later"),
    [(1, "majority", 1, 1), (2, "majority", 2, 2), (3, "majority", 3, 2), (10, "majority", 10, 6), (5, 4, 5, 4)],
)
def test_later_rounds_wait_for_a_quorum(minimum: int, quorum: object, first: int, later: int) -> None:
    found = DeploymentSettings(minimum_clients=minimum, quorum=quorum)  # type: ignore[arg-type]
    assert (found.awaited(first=True), found.awaited(first=False)) == (first, later)


@pytest.mark.parametrize("quorum", ["all", 0, -1, 1.5])
def test_a_quorum_that_cannot_be_is_refused(quorum: object) -> None:
    with pytest.raises(ConfigError, match="quorum"):
        settings.read({"federation": {"quorum": quorum}, "algorithm.name": "fedavg"})


class Slow(FakeGrid):
    """Sites connect one after the other, and some leave after the first round."""

    looks = 0

    def get_nodes(self) -> list[object]:  # type: ignore[override]
        self.looks += 1
        trained = any(m.metadata.message_type == "train" for m in self.sent)
        return super().get_nodes()[: 4 if trained else self.looks]


def test_everybody_is_in_the_first_clustering_and_rounds_continue_without_some(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_registry.time, "sleep", lambda _: None)
    grid = Slow(client_loader(lively("pacfl"), tmp_path / "m"), NODES)
    federate(grid, config(tmp_path / "f", rounds=2, **{"federation.minimum-clients": len(NODES)}))
    first, second, _ = records(tmp_path / "f")
    assert len(first["cluster_of"]) == len(first["sampled"]) == len(NODES)
    assert second["sampled"] == [0, 1, 2, 3]


def test_init_waits_for_all_sites(tmp_path: Path) -> None:
    layout.make(tmp_path / "d", ["a", "b", "c", "d", "e"])
    text = (tmp_path / "d" / "app" / "pyproject.toml").read_text()
    assert "minimum-clients = 5\n" in text
    assert 'quorum = "majority"\n' in text


def test_rounds_without_an_update_do_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The result is that of a federation in which these rounds never were, but for the draws of their numbers."""
    pauses: list[float] = []
    monkeypatch.setattr(server.time, "sleep", pauses.append)
    lost = {str(t) for t in (1, 2, 4)}

    class Failing(FakeGrid):
        def pull_messages(self, message_ids: object) -> list[object]:  # type: ignore[override]
            replies = super().pull_messages(message_ids)  # type: ignore[arg-type]
            return [r for r in replies if r.metadata.message_type != "train" or r.metadata.group_id not in lost]

    grid = Failing(client_loader(lively("fedavg"), tmp_path / "m"), NODES)
    federate(grid, config(tmp_path / "f", "fedavg", rounds=3))
    assert [r["updates"] for r in records(tmp_path / "f")] == [6, 0, 0, 6, 0, 6, 0]
    content = status.read(tmp_path / "f") or {}
    assert (content["phase"], content["round"]) == ("finished", 3)
    assert [p for p in pauses if p >= 1.0] == [1.0, 2.0, 1.0]
    assert "round 2 had no update and does not count" in (tmp_path / "f" / "server.log").read_text()
    assert all("accuracy" not in r for r in records(tmp_path / "f") if not r["updates"] and r["sampled"])


def test_a_new_server_counts_the_same_rounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server.time, "sleep", lambda _: None)
    load = client_loader(lively("fedavg"), tmp_path / "m")
    federate(Changing(load, {0: NODES}), config(tmp_path / "f", "fedavg", rounds=2))
    before = state_of(tmp_path / "f").models.copy()
    federate(Changing(load, {0: NODES}), config(tmp_path / "f", "fedavg", rounds=2))
    assert (state_of(tmp_path / "f").models == before).all()
    assert len(records(tmp_path / "f")) == 3
