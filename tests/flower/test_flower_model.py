"""The model is part of a federation: another one is refused by a sentence, not run for rounds in which all fail."""

import sys
from importlib import import_module
from pathlib import Path

import pytest
from flwr.app import Error, Message
from torch import nn

from pacfl.errors import ModelError, StoreError
from pacfl.federation.client_side import ClientSide, Setup
from pacfl.flower import model_identity, status
from pacfl.flower.client_handlers import handle
from pacfl.flower.server import federate
from pacfl.learning.model import as_model
from pacfl.learning.nets import mlp
from tests.flower.fake_grid import FakeGrid, client_loader
from tests.flower.test_flower_server import NODES, config, records
from tests.small_federation import LEARNING, SEED, lively, pool

pytestmark = pytest.mark.usefixtures("identity")

sys.path.append(str(Path(__file__).parent))  # the folder of the user's module


class Strict(FakeGrid):
    """An exception at a site is an error reply, as with real sites; the site of node 103 has another model."""

    def _reply(self, message: Message) -> Message | None:
        if message.metadata.dst_node_id != 103:
            return super()._reply(message)
        other = as_model(lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.Tanh(), nn.Linear(8, 5)), SEED)
        side = ClientSide(Setup(lively("fedavg"), other, pool(), LEARNING, SEED))
        try:
            handle(message.metadata.message_type, message.content, self.context(103), lambda *_: (side, Path("unused")))
        except ModelError as error:
            return Message(Error(1, f"{type(error).__name__}: {error}"), reply_to=message)
        raise AssertionError("the site trains another model than the server's")


def test_a_changed_model_is_refused_when_the_federation_resumes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    grid = FakeGrid(client_loader(lively("fedavg"), tmp_path / "m"), NODES)
    federate(grid, config(tmp_path / "f", "fedavg", rounds=1))
    sent = len(grid.sent)
    monkeypatch.setattr(import_module("small_task"), "build_model", lambda: mlp((1, 8, 8), 10, hidden=9))
    with pytest.raises(StoreError, match=r"1\.weight is 9x64, expected 8x64; .* restore build_model"):
        federate(grid, config(tmp_path / "f", "fedavg", rounds=3))
    assert len(grid.sent) == sent
    content = status.read(tmp_path / "f") or {}
    assert content["phase"] == "failed"
    assert "expected 8x64" in content["last_error"]


def test_a_site_with_another_model_is_named_with_what_differs_and_the_others_federate(tmp_path: Path) -> None:
    grid = Strict(client_loader(lively("fedavg"), tmp_path / "m"), NODES)
    federate(grid, config(tmp_path / "f", "fedavg", rounds=1))
    (failure, *_) = records(tmp_path / "f")[0]["reply_failures"]
    assert failure["client"] == 3
    assert "3.weight is 5x8, expected 10x8" in failure["what"]
    assert "client site-03: error 1: ModelError: the model of this site" in (tmp_path / "f" / "server.log").read_text()
    assert sorted(map(int, records(tmp_path / "f")[0]["cluster_of"])) == [0, 1, 2, 4, 5]


@pytest.mark.parametrize(
    ("other", "found"),
    [
        (nn.Sequential(nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 3)), ""),
        (nn.Sequential(nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 2)), "2.weight is 2x4, expected 3x4; 2.bias is 2, exp"),
        (nn.Sequential(nn.Linear(6, 4), nn.Linear(4, 3)), "2.weight (3x4) is missing; 2.bias (3) is missing; 1.weight"),
        (nn.Sequential(nn.Linear(6, 4, bias=False), nn.ReLU(), nn.Linear(4, 3)), "0.bias (4) is missing"),
        (
            nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.Linear(4, 3)),
            "1.weight (4) is new; 1.bias (4) is new; 1.running_mean (4) is new; 1.running_var (4) is new",
        ),
    ],
)
def test_what_differs_between_two_models_is_said(other: nn.Module, found: str) -> None:
    own = as_model(lambda: nn.Sequential(nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 3)), 0)
    said = model_identity.differences(model_identity.shapes(own), model_identity.shapes(as_model(lambda: other, 0)))
    assert said.startswith(found)
    assert bool(said) == bool(found)


def test_shapes_have_the_names_of_torch() -> None:
    module = nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.Linear(4, 3))
    expected = {n: list(t.shape) for n, t in module.state_dict().items() if "num_batches" not in n}
    assert model_identity.shapes(as_model(lambda: module, 0)) == expected
