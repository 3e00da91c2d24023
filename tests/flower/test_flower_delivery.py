"""Models reach the sites: at the end, when a site that was away returns, and when the operator asks."""

import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_public_key
from flwr.app import Context, Error, Message, RecordDict

from pacfl.errors import DataError, ModelError, PacflError
from pacfl.exporting import formats
from pacfl.exporting.export import export
from pacfl.exporting.prediction import predict
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

    def _reply(self, message: Message) -> Message | None:
        try:
            return super()._reply(message)
        except PacflError as error:  # as Flower replies for a site
            return Message(Error(1, f"{type(error).__name__}: {error}"), reply_to=message)

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


def with_key(folder: Path, node: int) -> Path:
    """The folder of a site that has the key of a node."""
    key = load_pem_public_key(key_of(node)).public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    folder.mkdir(parents=True)
    (folder / "node.pub").write_bytes(key + b" somebody@somewhere\n")
    return folder


def test_models_of_one_site_are_refused_at_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They carry the fingerprint of the key for which they were made. Away from any site they can be used."""
    monkeypatch.setattr(delivery, "FORMATS", ("torch",))
    lyon, graz = (with_key(tmp_path / "sites" / str(node), node) for node in NODES[:2])
    run(Sites(tmp_path, NODES[:2]), tmp_path / "f")
    exported = json.loads((lyon / "models" / "export.json").read_text())
    assert exported["clients"] == {"site-00": {"fingerprint": fingerprint(key_of(NODES[0]))}}
    x = np.zeros((2, 1, 8, 8), np.float32)
    assert len(predict(lyon / "models" / "cluster.pt2", x).outputs) == 2
    shutil.copytree(lyon / "models", tmp_path / "elsewhere" / "models")
    assert len(predict(tmp_path / "elsewhere" / "models" / "personal.pt2", x).outputs) == 2
    shutil.copytree(lyon / "models", graz / "models-of-lyon")
    for file in ("cluster.pt2", "personal.pt2"):
        with pytest.raises(DataError, match=r"made for 'site-00' with the key SHA256:\S+, and this site has the key"):
            predict(graz / "models-of-lyon" / file, x)


def test_a_model_that_is_delivered_to_the_wrong_site_is_refused_and_the_server_says_so(tmp_path: Path) -> None:
    """The second site signs in with a key that is not that of its folder."""
    with_key(tmp_path / "sites" / str(NODES[0]), NODES[0])
    wrong = with_key(tmp_path / "sites" / str(NODES[1]), NODES[2])
    last = run(Sites(tmp_path, NODES[:2]), tmp_path / "f", **{"federation.delivery": 0.05})[2]
    assert last["delivered"] == [0]
    assert not (wrong / "models").exists()
    assert "client site-01: error 1: DataError" in (tmp_path / "f" / "server.log").read_text()


def test_an_export_of_the_server_carries_the_keys_of_its_sites(tmp_path: Path) -> None:
    """A model that the operator sends by hand is bound to its site, too; that of a cluster is not."""
    run(Sites(tmp_path, NODES[:2]), tmp_path / "f")
    graz = with_key(tmp_path / "graz", NODES[1])
    x = np.zeros((2, 1, 8, 8), np.float32)
    export(tmp_path / "f", graz / "lyon", input_shape=(1, 8, 8), client="site-00")
    export(tmp_path / "f", graz / "own", input_shape=(1, 8, 8), client="site-01")
    export(tmp_path / "f", graz / "cluster", input_shape=(1, 8, 8))
    for name in ("own", "cluster"):
        assert len(predict(graz / name, x, client="site-01").outputs) == 2
    with pytest.raises(DataError, match="made for 'site-00'"):
        predict(graz / "lyon", x, client="site-00")
