"""The folder of a server holds models that can leave."""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from pacfl.errors import ConfigError, DataError, StoreError
from pacfl.exporting.export import export
from pacfl.exporting.prediction import predict
from pacfl.flower.server import federate
from tests.flower.fake_grid import FakeGrid, client_loader
from tests.flower.test_flower_server import NODES, config, state_of
from tests.small_federation import lively, model

pytestmark = pytest.mark.usefixtures("identity")

sys.path.append(str(Path(__file__).parent))  # the folder of the user's module


@pytest.fixture
def server(tmp_path: Path) -> Path:
    federate(FakeGrid(client_loader(lively("pacfl"), tmp_path / "memory"), NODES), config(tmp_path / "f", rounds=1))
    return tmp_path / "f"


def test_a_server_exports_the_models_of_its_clusters(server: Path, tmp_path: Path) -> None:
    manifest = export(server, tmp_path / "export", input_shape=(1, 8, 8))
    state = state_of(server)
    assert [file.file for file in manifest.files] == ["cluster-0.pt2", "cluster-1.pt2"]
    assert {c: entry["cluster"] for c, entry in manifest.clients.items()} == {
        f"site-{c:02d}": k for c, k in state.cluster_of.items()
    }
    x = np.random.default_rng(0).normal(size=(5, 1, 8, 8)).astype(np.float32)
    for client, k in state.cluster_of.items():
        with torch.no_grad():
            outputs = model().module(state.models[k])(torch.from_numpy(x)).numpy()
        found = predict(tmp_path / "export", x, client=f"site-{client:02d}")
        np.testing.assert_allclose(found.outputs, outputs, rtol=0, atol=1e-5)
    (file,) = export(server, tmp_path / "one", input_shape=(1, 8, 8), client="site-03", format="safetensors").files
    assert (file.file, file.cluster) == ("client-site-03.safetensors", state.cluster_of[3])


def test_what_a_server_does_not_have_is_refused(server: Path, tmp_path: Path) -> None:
    for options, error, message in (
        ({"input_shape": None}, DataError, "--input-shape 1x28x28"),
        ({"personal": True}, DataError, "at its sites"),
        ({"client": 77}, DataError, "has no client '77'"),
        ({"task": "no_such_task"}, ConfigError, "cannot be built: No module named 'no_such_task'"),
        ({"data": tmp_path}, DataError, "leave out --data"),
    ):
        with pytest.raises(error, match=message):
            export(server, tmp_path / "export", **{"input_shape": (1, 8, 8), **options})  # type: ignore[arg-type]
    (server / "checkpoint.json").write_text("{")
    (server / "checkpoint-before.json").unlink()
    with pytest.raises(StoreError, match="no models yet"):
        export(server, tmp_path / "export", input_shape=(1, 8, 8))
    assert not (tmp_path / "export").exists()
