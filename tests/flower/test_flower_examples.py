"""The examples: a user's two functions, with tables and with folders of images at each site."""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from flwr.app import Context, RecordDict

from pacfl.experiment.store import RunFolder
from pacfl.flower.server import federate
from pacfl.flower.site import load_client
from tests.flower.fake_grid import FakeGrid

pytestmark = pytest.mark.usefixtures("identity")

EXAMPLES = {"csv_sites": ("make_tables", "csv_task"), "image_sites": ("make_images", "image_task")}
SITES = 3


@pytest.fixture(params=EXAMPLES)
def example(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[ModuleType, ModuleType]]:
    """The script that makes the data, and the user's module."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "examples" / request.param))
    yield tuple(importlib.import_module(name) for name in EXAMPLES[request.param])
    for name in EXAMPLES[request.param]:
        sys.modules.pop(name, None)


def context(data: Path, run_config: dict[str, Any] | None = None) -> Context:
    return Context(1, 1, {"data": str(data), "memory": str(data / "memory")}, RecordDict(), run_config or {})


class Sites(FakeGrid):
    """Each node has the data of its site."""

    def __init__(self, folder: Path, run_config: dict[str, Any]) -> None:
        super().__init__(load_client, [100 + i for i in range(SITES)])
        self.folder, self.run_config = folder, run_config

    def context(self, node: int) -> Context:
        return context(self.folder / str(node - 100), self.run_config)


def test_three_sites_federate_in_two_clusters(example: tuple[ModuleType, ModuleType], tmp_path: Path) -> None:
    """The third site's data are in negative; with ten classes, guessing has an accuracy of 0.1."""
    make, task = example
    make.main(tmp_path)
    config = {
        "seed": 0,
        "settings": "",
        "federation.folder": str(tmp_path / "federation"),
        "federation.task": task.__name__,
        "federation.minimum-clients": SITES,
        "federation.poll": 0.01,
        "algorithm.name": "pacfl",
        "learning.epochs": 2,
        "learning.lr": 0.1,
        "schedule.rounds": 3,
        "schedule.participation": 1.0,
    }
    grid = Sites(tmp_path, config)
    federate(grid, context(tmp_path, config))
    last = RunFolder(tmp_path / "federation").records()[-1]
    number = {int(m.metadata.dst_node_id) - 100: int(m.content["about"]["client"]) for m in grid.sent}
    clusters = [last["cluster_of"][str(number[i])] for i in range(SITES)]
    assert clusters[0] == clusters[1] != clusters[2]
    assert last["reply_failures"] == []
    assert last["accuracy"]["received"]["mean"] > 0.5


def test_data_have_the_scales_of_the_network_and_of_the_signature(
    example: tuple[ModuleType, ModuleType], tmp_path: Path
) -> None:
    import torch

    make, task = example
    make.main(tmp_path)
    site = task.load_data(context(tmp_path / "2"))
    assert len(site.x_train) == len(site.y_train) == len(site.raw) == 200
    assert (site.x_train.dtype, site.x_train.min(), site.x_train.max()) == (np.float32, 0.0, 1.0)
    assert np.array_equal(site.raw, site.x_train * 255)
    assert set(site.y_train) == set(site.y_test) == set(range(10))
    assert task.build_model()(torch.from_numpy(site.x_test[:5])).shape == (5, 10)


def test_an_unknown_class_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "examples" / "image_sites"))
    import image_task

    (tmp_path / "train" / "eleven").mkdir(parents=True)
    with pytest.raises(ValueError, match="eleven"):
        image_task.load_data(context(tmp_path))
    (tmp_path / "train" / "eleven").rmdir()
    with pytest.raises(ValueError, match=r"is data= in site\.config the folder above train and test"):
        image_task.load_data(context(tmp_path))
