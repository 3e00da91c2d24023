"""Models reach the sites: at the end, when a site that was away returns, and when the operator asks."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from flwr.app import Context, RecordDict

from pacfl.errors import ModelError
from pacfl.exporting import formats
from pacfl.flower import delivery, health, server
from pacfl.flower.client_registry import fingerprint
from pacfl.flower.server import federate
from tests.flower.fake_grid import FakeGrid, client_loader, key_of
from tests.flower.test_flower_server import NODES, config, records
from tests.small_federation import lively, pool

pytestmark = pytest.mark.usefixtures("identity")

sys.path.append(str(Path(__file__).parent))  # the folder of the user's module

AWAY = NODES.index(103)  # client numbers follow names


class Sites(FakeGrid):
    """A grid of sites that store their models; one is away for a while after the last round of training."""

    def __init__(self, folder: Path, nodes: list[int], away: int | None = None, returns_after: int = 0) -> None:
        super().__init__(client_loader(lively("fedavg"), folder / "memory"), nodes)
        self.folder, self.away, self.looks_left = folder, away, returns_after

    def context(self, node: int) -> Context:
        models = {"models": str(self.folder / "sites" / str(node) / "models")}
        return Context(1, node, {"partition-id": node - 100, **models}, RecordDict(), {})

    def get_nodes(self) -> list[SimpleNamespace]:
        trained = sum(m.metadata.message_type == "train" for m in self.sent)
        here = super().get_nodes()
        if self.away is not None and trained == 2 * len(self.nodes) and self.looks_left > 0:
            self.looks_left -= 1
            here = [node for node in here if node.node_id != self.away]
        return here


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """No pauses, and the format that is written fastest."""
    monkeypatch.setattr(server.time, "sleep", lambda _: None)
    monkeypatch.setattr(delivery, "FORMATS", ("safetensors",))


def run(grid: Sites, folder: Path, **more: Any) -> list[dict[str, Any]]:
    federate(grid, config(folder, "fedavg", rounds=2, **{"federation.delivery": 60.0, **more}))
    return records(folder)


def test_everybody_has_models_at_the_end(tmp_path: Path) -> None:
    last = run(Sites(tmp_path, NODES), tmp_path / "f")[-1]
    assert last["delivered"] == list(range(len(NODES)))
    assert len(list(tmp_path.glob("sites/*/models/export.json"))) == len(NODES)


def test_the_files_of_a_site_score_what_the_server_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Loaded by torch alone."""
    monkeypatch.setattr(delivery, "FORMATS", ("torch", "safetensors"))
    last = run(Sites(tmp_path, NODES[:2]), tmp_path / "f")[-1]
    known = (health.read(tmp_path / "f") or {})["clients"]
    for node in NODES[:2]:
        client = next(int(c) for c, one in known.items() if one["fingerprint"] == fingerprint(key_of(node)))
        exported = json.loads((tmp_path / "sites" / str(node) / "models" / "export.json").read_text())
        assert list(exported["clients"]) == [f"site-{node % 100:02d}"]
        rows = pool().client_indices[client].test
        x, y = torch.from_numpy(pool().test.x[rows]), pool().test.y[rows]
        for name, protocol in (("cluster", "received"), ("personal", "personal")):
            module = torch.export.load(tmp_path / "sites" / str(node) / "models" / f"{name}.pt2").module()
            with torch.no_grad():
                right = module(x).argmax(dim=1).numpy() == y
            assert right.mean() == last["by_client"][protocol][str(client)][0]


def test_a_model_that_torch_cannot_export_is_delivered_as_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> bytes:
        raise ModelError("its forward cannot be traced")

    monkeypatch.setitem(formats.FORMATS, "torch", replace(formats.FORMATS["torch"], written=refuse))
    monkeypatch.setattr(delivery, "FORMATS", ("torch", "safetensors"))
    assert run(Sites(tmp_path, NODES[:2]), tmp_path / "f")[-1]["delivered"] == [0, 1]
    assert len(list(tmp_path.glob("sites/*/models/*.safetensors"))) == 4


def test_a_site_that_was_away_gets_its_models_when_it_returns(tmp_path: Path) -> None:
    training, _, end, late = run(Sites(tmp_path, NODES, away=103, returns_after=3), tmp_path / "f")
    assert "delivered" not in training
    assert end["delivered"] == [c for c in range(len(NODES)) if c != AWAY]
    assert (late["delivered"], late["sampled"], list(late["by_client"]["personal"])) == ([AWAY], [], [str(AWAY)])
    assert (health.read(tmp_path / "f") or {})["phase"] == "finished"


def test_the_server_does_not_wait_for_ever_and_delivers_when_it_is_started_again(tmp_path: Path) -> None:
    away = Sites(tmp_path, NODES, away=103, returns_after=10**9)
    assert len(run(away, tmp_path / "f", **{"federation.delivery": 0.05})) == 3
    assert not (tmp_path / "sites" / "103").exists()
    away.looks_left = 0
    assert run(away, tmp_path / "f", **{"federation.delivery": 0.05})[-1]["delivered"] == [AWAY]
    assert run(away, tmp_path / "f")[4:] == []  # nothing is left to do


def test_a_site_without_a_folder_for_models_is_not_asked_again(tmp_path: Path) -> None:
    grid = FakeGrid(client_loader(lively("fedavg"), tmp_path / "memory"), NODES)
    federate(grid, config(tmp_path / "f", "fedavg", rounds=2, **{"federation.delivery": 60.0}))
    assert [r.get("delivered") for r in records(tmp_path / "f")] == [None, None, []]


def test_models_are_delivered_on_request_before_the_next_round_and_after_the_end(tmp_path: Path) -> None:
    grid = Sites(tmp_path, NODES)
    (tmp_path / "f").mkdir()
    delivery.request(tmp_path / "f")
    first, *_, end = run(grid, tmp_path / "f")
    assert (first["delivered"], first["sampled"]) == (list(range(len(NODES))), [])
    assert end["delivered"] == list(range(len(NODES)))
    delivery.request(tmp_path / "f")
    assert len(run(grid, tmp_path / "f")) == 5
    assert len(run(grid, tmp_path / "f")) == 5  # a request counts once
