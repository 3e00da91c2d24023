"""Experiment files, run folders and checkpoints, damaged or forged."""

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pacfl.errors import ConfigError, StoreError
from pacfl.experiment import checkpoint, config
from pacfl.experiment.store import RunFolder, all_folders
from pacfl.federation.algorithm import State
from tests.fuzz.damage import JSON, damaged, examples, refused_or_read, rewritten

sixty = examples(60)

EXPERIMENT = b"""
seeds = [0, 1]

[data]
name = "digits"
clients = 12
scheme = { kind = "label-skew", share = 0.2 }

[learning]
epochs = 2
lr = 0.1

[schedule]
rounds = 3
participation = 0.5
joins = { 2 = [3] }

[[algorithm]]
name = ["fedavg", "fedprox"]

[[algorithm]]
name = "pacfl"
rank = [1, 2]
"""
TABLE: dict[str, Any] = {
    "seeds": [0],
    "device": "cpu",
    "data": {"name": "digits", "clients": 5, "scheme": {"kind": "dirichlet", "alpha": 0.5}, "sets": ["a"]},
    "model": {"name": "mlp"},
    "learning": {"epochs": 1, "batch_size": 5, "lr": 0.1, "momentum": 0.5},
    "schedule": {"rounds": 2, "participation": 0.5, "joins": {"2": [2]}, "leaves": {}},
    "algorithm": [{"name": "pacfl", "rank": 2, "threshold": "auto", "learning": {"lr": 0.2}}],
}


@sixty
@given(content=damaged(EXPERIMENT))
def test_a_damaged_experiment_is_refused_or_read(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.toml").write_bytes(content)
    refused_or_read(lambda: config.read(tmp_path / "a.toml"), ConfigError)


@sixty
@given(table=rewritten(TABLE))
def test_any_table_is_refused_or_expanded(table: Any) -> None:
    if isinstance(table, dict):  # as all TOML is
        refused_or_read(lambda: config.expand(table), ConfigError)


STATE = {
    "round": 2,
    "state": State(np.ones((2, 3), dtype=np.float32), {0: 0, 1: 1}),
    "memory": {0: {"c": np.zeros(3)}},
    "last": (1, 2.5, None, "word"),
}


def saved(folder: Path) -> dict[str, Any]:
    checkpoint.save(folder, STATE, {})
    content: dict[str, Any] = json.loads((folder / checkpoint.LISTS[0]).read_bytes())
    return content


def reseal(folder: Path, body: Any) -> None:
    """Write a checkpoint list with a valid digest of any body."""
    digest = hashlib.sha256(json.dumps(body).encode()).hexdigest()
    (folder / checkpoint.LISTS[0]).write_text(json.dumps({"sha256": digest, "body": body}))


@pytest.fixture
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A function that makes a new folder, in a folder of its own, at every call."""
    return lambda: tmp_path_factory.mktemp("run")


@sixty
@given(data=st.data())
def test_a_damaged_checkpoint_is_skipped(fresh: Any, data: st.DataObject) -> None:
    folder = fresh()
    saved(folder)
    files = [folder / checkpoint.LISTS[0], *sorted((folder / checkpoint.ARRAYS).iterdir())]
    path = data.draw(st.sampled_from(files))
    path.write_bytes(data.draw(damaged(path.read_bytes())))
    refused_or_read(lambda: checkpoint.load(folder, 9), ())


@sixty
@given(data=st.data())
def test_a_forged_checkpoint_is_skipped(fresh: Any, data: st.DataObject) -> None:
    folder = fresh()
    reseal(folder, data.draw(rewritten(saved(folder)["body"])))
    refused_or_read(lambda: checkpoint.load(folder, 9), ())


@sixty
@given(content=st.binary(max_size=100) | damaged(b'{"round": 0, "clients": 3}\n{"round": 1, "clients": 3}\n'))
def test_damaged_records_end_where_the_damage_is(fresh: Any, content: bytes) -> None:
    folder = RunFolder(fresh())
    (folder.path / "rounds.jsonl").write_bytes(content)
    records = refused_or_read(folder.records, ())
    assert all(isinstance(record, dict) for record in records)


@sixty
@given(content=st.binary(max_size=60) | JSON.map(lambda tree: json.dumps(tree).encode()))
def test_damaged_settings_and_results_are_refused_or_tables(fresh: Any, content: bytes) -> None:
    folder = RunFolder(fresh())
    for name, read in (("run.json", folder.content), ("result.json", folder.result)):
        (folder.path / name).write_bytes(content)
        table = refused_or_read(read, StoreError)
        assert table is None or isinstance(table, dict)
    found = [other.path for other in all_folders(folder.path.parent)]
    assert found.count(folder.path) <= 1, "settings without the format of runs are left out"


# Findings of the random searches, and inputs too large for them


@pytest.mark.parametrize("name", ["../../precious", "/etc/hostname", "..", ""])
def test_a_forged_checkpoint_reaches_no_file_outside_its_folder(tmp_path: Path, name: str) -> None:
    """Arrays with a wrong digest are deleted: a name that points elsewhere must not delete a file there."""
    (tmp_path / "precious").write_text("mine")
    folder = tmp_path / "run"
    folder.mkdir()
    body = saved(folder)["body"]
    reseal(folder, {**body, "arrays": dict.fromkeys(body["arrays"], name)})
    assert checkpoint.load(folder, 9) is None
    assert (tmp_path / "precious").read_text() == "mine"


def test_deep_nesting_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text("a = " + "[" * 100_000)
    with pytest.raises(ConfigError, match="cannot be read"):
        config.read(tmp_path / "a.toml")
    folder = RunFolder(tmp_path)
    for name in ("run.json", "rounds.jsonl", checkpoint.LISTS[0]):
        (tmp_path / name).write_text("[" * 100_000 + "\n")
    with pytest.raises(StoreError, match="damaged"):
        folder.content()
    assert folder.records() == []
    assert folder.load_checkpoint() is None


def test_a_sweep_of_too_many_runs_is_refused() -> None:
    many = list(range(1, 1001))
    table = {"learning": {"epochs": many, "batch_size": many}, "algorithm": [{"name": "fedavg"}]}
    with pytest.raises(ConfigError, match="ask for 1,000,000 runs"):
        config.expand(table)
