"""Metrics of the user's choice, and regression, over the network: settings, records, status and model cards."""

import json
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import torch
from flwr.app import Context, RecordDict
from sklearn.metrics import mean_absolute_error, r2_score, roc_auc_score
from torch import nn
from typer.testing import CliRunner

from pacfl.algorithms import build
from pacfl.cli import app
from pacfl.errors import ConfigError
from pacfl.federation.client_side import ClientIndices, ClientSide, Pool, Setup
from pacfl.flower import delivery, health, settings
from pacfl.flower.deploy import starting
from pacfl.flower.server import federate
from pacfl.learning.client_context import LocalTraining, Samples
from pacfl.learning.model import as_model
from tests.flower.fake_grid import FakeGrid
from tests.flower.test_flower_server import config, records

pytestmark = pytest.mark.usefixtures("identity")

sys.path.append(str(Path(__file__).parent))  # the folder of the user's module

NODES = [100, 101, 102]


def samples(values: bool) -> Samples:
    """A linear function of three features, or its sign as the class."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(180, 3)).astype(np.float32)
    y = x @ np.array([1.0, -2.0, 0.5]) + 0.3 * rng.normal(size=180)
    return Samples(x, y.astype(np.float32) if values else (y > 0).astype(np.int64))


class Sites(FakeGrid):
    """Three sites with 60 samples each, 20 of them for testing; they store the models that they get."""

    def __init__(self, folder: Path, loss: str, metrics: tuple[str, ...]) -> None:
        self.folder, self.all = folder, samples(values=loss != "cross-entropy")
        own = [np.arange(60 * i, 60 * i + 60) for i in range(3)]
        indices = tuple(ClientIndices(rows[:40], rows[40:]) for rows in own)
        pool = Pool(self.all, self.all, self.all.x, indices)
        learning = LocalTraining(epochs=1, batch_size=8, lr=0.05, momentum=0.5, loss=loss)
        net = as_model(lambda: linear(loss), 3)
        side = ClientSide(Setup(build("fedavg", label_prior=False), net, pool, learning, 3, metrics=metrics))
        super().__init__(lambda *_: (side, folder / "memory"), NODES)

    def context(self, node: int) -> Context:
        models = {"models": str(self.folder / "sites" / str(node - 100) / "models")}
        return Context(1, node, {"partition-id": node - 100, **models}, RecordDict(), {})

    def test_samples(self, i: int) -> tuple[np.ndarray, np.ndarray]:
        rows = slice(60 * i + 40, 60 * i + 60)
        return self.all.x[rows], self.all.y[rows]


def linear(loss: str) -> nn.Module:
    return nn.Linear(3, 2 if loss == "cross-entropy" else 1)


def trained(
    folder: Path, monkeypatch: pytest.MonkeyPatch, loss: str, names: tuple[str, ...]
) -> tuple[Sites, dict[str, object]]:
    monkeypatch.setattr(import_module("small_task"), "build_model", lambda: linear(loss))
    monkeypatch.setattr(delivery, "FORMATS", ("torch",))
    grid = Sites(folder, loss, names)
    context = config(folder / "f", "fedavg", rounds=3, **{"evaluation.metrics": ", ".join(names)})
    context.run_config["settings"] = f"learning.loss = '{loss}'; learning.lr = 0.05; learning.epochs = 1"
    federate(grid, context)
    return grid, records(folder / "f")[-1]


def outputs(grid: Sites, i: int) -> np.ndarray:
    """Of the model that a site has got, loaded by torch alone."""
    module = torch.export.load(grid.folder / "sites" / str(i) / "models" / "cluster.pt2").module()
    with torch.no_grad():
        found: np.ndarray = module(torch.from_numpy(grid.test_samples(i)[0])).numpy()
    return found


def test_a_regression_over_the_network_has_the_errors_that_sklearn_computes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    grid, last = trained(tmp_path, monkeypatch, "squared-error", ("r2", "rmse"))
    assert last["metric"] == "mae"
    for i in range(3):
        (_, y), predicted = grid.test_samples(i), outputs(grid, i)[:, 0]
        mae, loss = last["by_client"]["received"][str(i)]  # type: ignore[index]
        own = {name: by["received"][str(i)] for name, by in last["metrics_by_client"].items()}  # type: ignore[attr-defined]
        assert mae == pytest.approx(mean_absolute_error(y, predicted), rel=1e-5)
        assert own["r2"] == pytest.approx(r2_score(y, predicted), rel=1e-4)
        assert own["rmse"] ** 2 == pytest.approx(loss, rel=1e-4)
        card = (tmp_path / "sites" / str(i) / "models" / "MODEL_CARD.md").read_text()
        assert "| model | mae | loss | r2 | rmse |" in card
        assert f"| received | {mae:.4f} | {loss:.4f} | {own['r2']:.4f} | {own['rmse']:.4f} |" in card
    status = health.read(tmp_path / "f") or {}
    assert status["metric"] == "mae"
    assert status["metrics"] == {n: by["received"]["mean"] for n, by in last["metrics"].items()}  # type: ignore[attr-defined]
    shown = CliRunner().invoke(app, ["status", str(tmp_path / "f")]).output
    assert "mae of the models as received: " in shown
    assert "\nr2: " in shown


def test_clinical_metrics_over_the_network_are_those_of_sklearn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("auroc", "calibration-error", "sensitivity", "specificity")
    grid, last = trained(tmp_path, monkeypatch, "cross-entropy", names)
    for i in range(3):
        (_, y), logits = grid.test_samples(i), outputs(grid, i)
        own = {name: by["received"][str(i)] for name, by in last["metrics_by_client"].items()}  # type: ignore[attr-defined]
        said = logits.argmax(axis=1)
        assert own["auroc"] == pytest.approx(roc_auc_score(y, logits[:, 1] - logits[:, 0]), abs=1e-6)
        assert own["sensitivity"] == pytest.approx((said[y == 1] == 1).mean())
        assert own["specificity"] == pytest.approx((said[y == 0] == 0).mean())
        assert 0 <= own["calibration-error"] <= 1
    assert set((health.read(tmp_path / "f") or {})["metrics"]) == set(names)


def test_init_writes_loss_and_metrics_that_the_server_reads(tmp_path: Path) -> None:
    """Flower takes no lists in the settings of an app."""
    options = ["--clients", "2", "--loss", "squared-error", "--metrics", "r2, rmse"]
    assert CliRunner().invoke(app, ["deploy", "init", str(tmp_path / "d"), *options]).exit_code == 0
    content = starting.settings(tmp_path / "d" / "app")
    assert content["evaluation"] == {"metrics": "r2, rmse"}
    flat = json.loads(json.dumps(content))
    _, run = settings.read(flat)
    assert (run.learning.loss, run.metrics) == ("squared-error", ("r2", "rmse"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--metrics", "auroc", "--loss", "squared-error"], "'auroc' is for classes or labels"),
        (["--metrics", "r2"], "'r2' is for values"),
        (["--metrics", "aurocc"], "aurocc"),
        (["--loss", "squared-eror", "--metrics", "r2"], "squared-eror"),
    ],
)
def test_metrics_that_do_not_fit_are_refused_before_anything_is_written(
    options: list[str], message: str, tmp_path: Path
) -> None:
    done = CliRunner().invoke(app, ["deploy", "init", str(tmp_path / "d"), "--clients", "2", *options])
    assert isinstance(done.exception, ConfigError)
    assert message in str(done.exception)
    assert not (tmp_path / "d").exists()
