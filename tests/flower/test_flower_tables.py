"""Tables at each site: the schema is all that a federation needs."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Context, RecordDict
from typer.testing import CliRunner

from pacfl.cli import app
from pacfl.errors import DataError
from pacfl.experiment.store import RunFolder
from pacfl.features import init_schema
from pacfl.flower.server import federate
from pacfl.flower.site import load_client
from pacfl.flower.tables import MODULE, table_task, task_module
from tests.flower.fake_grid import FakeGrid

pytestmark = pytest.mark.usefixtures("identity")
SITES = 4


def write(path: Path, seed: int, age: float) -> Path:
    """Patients with three rows each; who is older than others is ill."""
    rng = np.random.default_rng(seed)
    lines = ["patient,age,sex,outcome"]
    for i in range(120):
        years = rng.normal(age, 5)
        lines.append(f"p{i // 3},{years:.1f},{rng.choice(['f', 'm'])},{'ill' if years > age else 'well'}")
    path.write_text("\n".join(lines))
    return path


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Tables of children and of adults, and the module that their schema makes."""
    files = [write(tmp_path / f"{i}.csv", i, 8 if i < 2 else 60) for i in range(SITES)]
    schema = init_schema(files, tmp_path / "schema.json", labels="outcome", group="patient")
    (tmp_path / f"{MODULE}.py").write_text(task_module(schema))
    monkeypatch.syspath_prepend(str(tmp_path))
    sys.modules.pop(MODULE, None)
    return tmp_path


def context(data: Path, run_config: dict[str, Any] | None = None) -> Context:
    memory = str(data.parent / f"memory-{data.stem}")
    return Context(1, 1, {"data": str(data), "memory": memory}, RecordDict(), run_config or {})


class Sites(FakeGrid):
    """Each node has a table."""

    def __init__(self, folder: Path, run_config: dict[str, Any]) -> None:
        super().__init__(load_client, [100 + i for i in range(SITES)])
        self.folder, self.run_config = folder, run_config

    def context(self, node: int) -> Context:
        return context(self.folder / f"{node - 100}.csv", self.run_config)


def test_sites_with_tables_federate_without_code(folder: Path) -> None:
    config = {
        "seed": 0,
        "settings": "",
        "federation.folder": str(folder / "federation"),
        "federation.task": MODULE,
        "federation.minimum-clients": SITES,
        "federation.poll": 0.01,
        "algorithm.name": "pacfl",
        "learning.lr": 0.1,
        "schedule.rounds": 2,
        "schedule.participation": 1.0,
    }
    grid = Sites(folder, config)
    federate(grid, context(folder / "0.csv", config))
    last = RunFolder(folder / "federation").records()[-1]
    number = {int(m.metadata.dst_node_id) - 100: int(m.content["about"]["client"]) for m in grid.sent}
    clusters = [last["cluster_of"][str(number[i])] for i in range(SITES)]
    assert clusters[0] == clusters[1] != clusters[2] == clusters[3]


def test_no_patient_is_for_training_and_for_testing(folder: Path) -> None:
    import importlib

    site = importlib.import_module(MODULE).load_data(context(folder / "0.csv"))
    assert (len(site.y_train), len(site.y_test)) == (96, 24)
    assert np.unique(site.groups, return_counts=True)[1].tolist() == [3] * 32
    assert site.is_table


def test_what_is_wrong_at_a_site_is_said(folder: Path) -> None:
    from pacfl.features import read_schema

    load_data, _ = table_task(read_schema(folder / "schema.json").as_json())
    with pytest.raises(DataError, match=r"nowhere\.csv: there is no such table; correct data="):
        load_data(context(folder / "nowhere.csv"))
    with pytest.raises(DataError, match=r'write data="/path/table.csv" into site.config'):
        load_data(Context(1, 1, {}, RecordDict(), {}))
    unlabelled = init_schema([folder / "0.csv"])
    with pytest.raises(DataError, match="names no column to predict"):
        table_task(unlabelled.as_json())


def test_a_deployment_takes_a_schema(folder: Path) -> None:
    arguments = ["deploy", "init", str(folder / "site"), "--clients", "2", "--schema", str(folder / "schema.json")]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    assert f'task = "{MODULE}"' in (folder / "site" / "app" / "pyproject.toml").read_text()
    assert "table_task(SCHEMA" in (folder / "site" / "app" / f"{MODULE}.py").read_text()
