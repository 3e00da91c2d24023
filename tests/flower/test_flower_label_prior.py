"""The label prior among sites: the same models and scores as here, false class counts refused, models delivered."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import Context, RecordDict
from safetensors.torch import load_file

from pacfl.algorithms import build
from pacfl.errors import ConfigError, DataError
from pacfl.exporting.federations import federation_models
from pacfl.federation.schedule import Schedule, round_plans
from pacfl.flower import delivery
from pacfl.flower.server import federate
from pacfl.flower.site import Site, load_client
from pacfl.folders import Folder
from tests.flower.fake_grid import FakeGrid, client_loader
from tests.flower.test_flower_hostile import HOSTILE, run_federated, with_arrays
from tests.flower.test_flower_server import NODES, config, records
from tests.small_federation import CORRECTED, LIVELY, SEED, model, pool, run_rounds, same

pytestmark = pytest.mark.usefixtures("identity")

sys.path.append(str(Path(__file__).parent))  # the folder of the user's module

SETTINGS = "learning.epochs = 1; learning.lr = 0.1; algorithm.label-prior = true"


def corrected(name: str) -> Any:
    return build(name, **LIVELY.get(name, {}), label_prior=True)


@pytest.mark.parametrize("name", CORRECTED)
def test_honest_class_counts_are_accepted_and_results_are_those_of_the_local_backend(name: str, tmp_path: Path) -> None:
    done, backend = run_federated(corrected(name), tmp_path)
    assert backend.reply_failures == []
    for a, b in zip(done, run_rounds(corrected(name), Schedule(rounds=2, participation=1.0)), strict=True):
        assert same(a.state, b.state)
        assert a.scores == b.scores
        assert (a.bytes_down, a.bytes_up) == (b.bytes_down, b.bytes_up)


@pytest.mark.parametrize(
    ("counts", "why"),
    [
        (np.full(10, 2), "'class_counts' are of 20 samples, expected the 21 that it claims to have"),
        (np.full(10, 2**62), "are of 46,116,860,184,273,879,040 samples"),
        (np.array([-1, 22] + 8 * [0]), "'class_counts' has -1 samples of a class"),
        (np.full(10, 2.1), "'class_counts' is float64"),
        (np.ones(10**6, np.int64), "bytes of arrays"),
    ],
)
def test_false_class_counts_are_refused(counts: np.ndarray, why: str, tmp_path: Path) -> None:
    assert len(pool().client_indices[HOSTILE].train) == 21
    done, backend = run_federated(corrected("fedavg"), tmp_path, with_arrays("train", class_counts=counts))
    assert {failure.client for failure in backend.reply_failures} == {HOSTILE}
    assert all(why in failure.what for failure in backend.reply_failures)
    assert len(list(round_plans(Schedule(rounds=2), 6, SEED))) == len(done)


class Sites(FakeGrid):
    """A grid of sites that store their models."""

    def __init__(self, folder: Path) -> None:
        super().__init__(client_loader(corrected("fedavg"), folder / "memory"), NODES)
        self.folder = folder

    def context(self, node: int) -> Context:
        models = {"models": str(self.folder / "sites" / str(node))}
        return Context(1, node, {"partition-id": node - 100, **models}, RecordDict(), {})


def test_sites_get_corrected_models_and_the_server_exports_those_of_clusters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Resumed after the first round, the federation ends with the state and the scores of one that was not stopped."""
    monkeypatch.setattr(delivery, "FORMATS", ("safetensors",))
    grid = Sites(tmp_path)
    federate(grid, config(tmp_path / "f", "fedavg", rounds=1, settings=SETTINGS))
    federate(grid, config(tmp_path / "f", "fedavg", rounds=2, settings=SETTINGS))
    exported = federation_models(Folder(tmp_path / "f", "server"), "small_task", (1, 8, 8))
    (cluster,) = (of.module.state_dict() for of in exported.models(None, personal=False))
    with pytest.raises(DataError, match=r"corrected for its class shares .*at its site"):
        list(exported.models("site-00", personal=False))
    biases = []
    for node in NODES:
        own = load_file(tmp_path / "sites" / str(node) / "cluster.safetensors")
        assert [name for name in cluster if not torch.equal(cluster[name], own[name])] == ["3.bias"]
        biases.append(own["3.bias"])
        assert "corrected for the class shares" in (tmp_path / "sites" / str(node) / "MODEL_CARD.md").read_text("utf-8")
    assert len({tuple(bias.tolist()) for bias in biases}) == len(NODES)
    assert "personal" in records(tmp_path / "f")[-1]["by_client"]


def test_a_site_whose_model_does_not_end_in_its_last_linear_layer_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import small_task  # type: ignore[import-not-found]  # beside this file

    build_model = small_task.build_model
    monkeypatch.setattr(small_task, "build_model", lambda: torch.nn.Sequential(build_model(), torch.nn.LogSoftmax(1)))
    x, y = np.zeros((4, 1, 8, 8)), np.arange(4)
    monkeypatch.setattr(small_task, "load_data", lambda _: Site(x, y, x, y))
    site = config(tmp_path, "fedavg", settings=SETTINGS)
    context = Context(1, 100, {"partition-id": 0}, RecordDict(), site.run_config)
    with pytest.raises(ConfigError, match=r"must return what its last nn\.Linear returns.*label-prior = false"):
        load_client(context, "f", 0)


def test_the_upload_of_a_site_has_the_counts_of_its_classes() -> None:
    loader = client_loader(corrected("fedavg"), Path())
    side, _ = loader(None, "f", 0)  # type: ignore[arg-type]  # it needs no context
    up, _, _ = side.train(0, 2, {"w": model().initial}, {})
    y = pool().train.y[pool().client_indices[2].train]
    np.testing.assert_array_equal(up["class_counts"], [(y == c).sum() for c in range(10)])
