"""Sites get other keys, leave and return while a federation runs: the operator's decisions count, nobody's claim."""

import json
import sys
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
from flwr.app import Message

from pacfl.errors import DeployError
from pacfl.flower import client_registry, site_changes, status
from pacfl.flower.client_registry import ClientRegistry, Node, fingerprint
from pacfl.flower.message_types import SIGNATURE
from pacfl.flower.server import federate
from pacfl.flower.site_changes import SiteChanges
from tests.flower.fake_grid import client_loader, key_of
from tests.flower.test_flower_server import NODES, Changing, config, messages, records, state_of
from tests.small_federation import lively

pytestmark = pytest.mark.usefixtures("identity")

sys.path.append(str(Path(__file__).parent))  # the folder of the user's module

OTHER = [150 if node == 103 else node for node in NODES]  # the site of 103 signs in with another key
OLD, NEW = fingerprint(key_of(103)), fingerprint(key_of(150))


class Rekeyed(Changing):
    """The operator gives a site another key in the second of four rounds."""

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        sent = super().push_messages(messages)
        if self.nodes == OTHER:
            site_changes.write(Path.cwd(), SiteChanges().replace(OLD, NEW))
        return sent


def trained(folder: Path, memory: Path, name: str, later: list[int]) -> Changing:
    """Four rounds, the last two of them with other nodes."""
    grid = Rekeyed(client_loader(lively(name), memory), {0: NODES, 2: later})
    federate(grid, config(folder, name))
    return grid


@pytest.mark.parametrize("name", ["pacfl", "scaffold"])
def test_a_site_with_another_key_is_the_same_client_if_the_operator_says_so(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The result is that of a federation in which no key changed, to the last bit: number, cluster and memory stay."""
    monkeypatch.chdir(tmp_path)
    trained(tmp_path / "same", tmp_path / "m1", name, NODES)
    grid = trained(tmp_path / "rekeyed", tmp_path / "m2", name, OTHER)
    same, rekeyed = (state_of(tmp_path / folder) for folder in ("same", "rekeyed"))
    assert same.cluster_of == rekeyed.cluster_of
    np.testing.assert_array_equal(same.models, rekeyed.models)
    assert {t for t, _ in messages(grid, SIGNATURE)} == {0}
    client = (status.read(tmp_path / "rekeyed") or {})["clients"]["3"]
    assert (client["name"], client["fingerprint"], client["node"]) == ("site-03", NEW, 150)


def test_another_key_is_another_client_otherwise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    registry = ClientRegistry(server=tmp_path)
    registry.update({OLD: Node(1, "lyon")})
    registry.update({NEW: Node(2, "lyon")})
    assert registry.client_of == {OLD: 0, NEW: 1}


def test_a_key_that_was_replaced_counts_no_more(tmp_path: Path) -> None:
    """Also while its node is still connected, and whatever the order in which nodes and decisions are seen."""
    registry = ClientRegistry(server=tmp_path)
    registry.update({OLD: Node(1, "lyon"), "x": Node(2, "graz")})
    site_changes.write(tmp_path, SiteChanges().replace(OLD, NEW))
    registry.update({OLD: Node(1, "lyon"), "x": Node(2, "graz")})
    assert registry.nodes == {0: 2}
    registry.update({NEW: Node(3, "lyon"), OLD: Node(1, "lyon"), "x": Node(2, "graz")})
    assert registry.nodes == {0: 2, 1: 3}
    again = ClientRegistry.restored(json.loads(json.dumps(registry.described())), tmp_path)
    again.update({NEW: Node(4, "lyon")})
    assert again.client_of == registry.client_of == {"x": 0, NEW: 1}


def test_decisions_that_were_repeated_after_a_crash_lead_to_the_last_key(tmp_path: Path) -> None:
    for changes in (
        SiteChanges().replace("a", "b").replace("b", "c"),
        SiteChanges().replace("a", "b").replace("a", "c").replace("b", "c"),
        SiteChanges().replace("b", "c").replace("a", "c"),
    ):
        site_changes.write(tmp_path, changes)
        registry = ClientRegistry({"a": 0}, {0: "lyon"}, server=tmp_path)
        registry.update({"c": Node(1, "lyon"), "a": Node(2), "b": Node(3)})
        assert (registry.client_of, registry.nodes) == ({"c": 0}, {0: 1})


def test_a_site_that_was_removed_is_not_waited_for_and_can_return(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_registry.time, "sleep", lambda _: pytest.fail("waits"))
    site_changes.write(tmp_path, SiteChanges().remove(OLD))
    registry = ClientRegistry({OLD: 0}, {0: "lyon"}, server=tmp_path)
    others = {str(i): Node(i) for i in (1, 2)}
    assert client_registry.wait_for_clients(registry, lambda: others, 0, 3, lambda *_: None) == ([1, 2], [])
    assert registry.removed == {0}
    registry.update({**others, OLD: Node(7)})
    assert (registry.removed, registry.nodes[0]) == (set(), 7)


def test_nobody_delivers_to_a_site_that_was_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server would wait for it for a day."""
    monkeypatch.chdir(tmp_path)
    site_changes.write(tmp_path, SiteChanges().remove(OLD))
    grid = Changing(client_loader(lively("fedavg"), tmp_path / "m"), {0: NODES, 2: [n for n in NODES if n != 103]})
    monkeypatch.setattr("pacfl.flower.delivery.deliver", lambda *_: True)
    monkeypatch.setattr(grid, "context", lambda node: _with_models(grid, node))
    federate(grid, config(tmp_path / "f", "fedavg", **{"federation.delivery": 86_400.0}))
    content = status.read(tmp_path / "f") or {}
    assert content["phase"] == "finished"
    assert [c for c, one in content["clients"].items() if one["removed"]] == ["3"]
    assert 3 not in records(tmp_path / "f")[-1]["delivered"]


def _with_models(grid: Changing, node: int) -> object:
    context = Changing.context(grid, node)
    context.node_config["models"] = "models"
    return context


def test_a_damaged_file_of_decisions_stops_the_server(tmp_path: Path) -> None:
    """Without it a replaced key would count again."""
    (tmp_path / site_changes.FILE).write_text('{"replaced": 1}')
    with pytest.raises(DeployError, match="restore it from a backup"):
        site_changes.read(tmp_path)
