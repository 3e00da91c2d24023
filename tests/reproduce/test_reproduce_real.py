"""Real federations: scores of every method beside PACFL's, ties called ties, on a small federation of values."""

import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pacfl.reproduce.items import Item, _item, item
from pacfl.reproduce.kinds import kind_of
from pacfl.reproduce.making import Request
from pacfl.reproduce.real import COLUMNS

FILE = """
seeds = [0, 1]

[item]
number = 1
title = "Wards"
kind = "real"

[item.columns]
wards = ["data.name=wards", "data.clients=3"]
absent = ["data.name=radon", "data.clients=3"]

[data]
scheme = { kind = "natural" }

[model]
name = "logistic"

[learning]
epochs = 1
loss = "squared-error"

[schedule]
rounds = 2
evaluate-every = 0

[[algorithm]]
name = ["solo", "fedavg", "cfl"]

[[algorithm]]
name = "ifca"
clusters = 2

[[algorithm]]
name = "pacfl"
compare = "inputs"
label-prior = false
levels = "none"

[[algorithm]]
name = "pacfl"
"""


@pytest.fixture(scope="module")
def wards(tmp_path_factory: pytest.TempPathFactory) -> tuple[Item, Any]:
    folder = tmp_path_factory.mktemp("real")
    rng = np.random.default_rng(0)
    x, whose = rng.normal(size=(150, 3)), np.repeat(["north", "south", "west"], 50)
    y = (x @ [1.0, 2.0, 3.0] * np.repeat([1.0, 1.0, -1.0], 50)).astype(np.float32)
    test = np.arange(150) % 5 == 0
    arrays = {"x_train": x[~test], "y_train": y[~test], "x_test": x[test], "y_test": y[test]}
    np.savez(folder / "wards.npz", **arrays, clients_train=whose[~test], clients_test=whose[test])
    (folder / "wards.toml").write_text(FILE, encoding="utf-8")
    own = _item(folder / "wards.toml", tomllib.loads(FILE)["item"])
    return own, kind_of(own).make(own, Request(scale="paper", runs=folder / "runs", data=folder))


def test_errors_are_compared_so_that_a_smaller_one_is_ahead(wards: tuple[Item, Any]) -> None:
    _, outcome = wards
    by_method = {run["method"]: run for run in outcome["runs"] if run["seed"] == 0}
    ours = by_method["pacfl"]["mae"]["received"]["mean"]
    for run in by_method.values():
        gain = run["pacfl_gains"]["received"][0]
        assert gain == pytest.approx(run["mae"]["received"]["mean"] - ours, abs=2e-5)
    assert by_method["pacfl"]["pacfl_gains"]["received"] == [0, 0]


def test_every_method_has_its_score_and_its_clusters(wards: tuple[Item, Any]) -> None:
    own, outcome = wards
    scores, clusters = kind_of(own).tables(own, outcome)
    (row,) = scores.rows
    assert row[0] == "wards, error, 3 clients"
    assert scores.head == ("data", *COLUMNS, "seeds")
    assert all("±" in cell for cell in row[1:-1])
    of_cfl, of_fedavg = row[1 + list(COLUMNS).index("CFL")], row[1 + list(COLUMNS).index("FedAvg")]
    assert of_cfl == of_fedavg  # CFL does not split in two rounds
    assert clusters.rows[0][1] == "1"  # FedAvg's
    assert "absent" in scores.notes[-1]


def test_a_tie_is_marked_as_one(wards: tuple[Item, Any]) -> None:
    own, outcome = wards
    gains = {"solo": [-0.5, 0.1], "fedavg": [0.5, 0.1], "cfl": [0.1, 0.1]}
    runs = [
        {**run, "pacfl_gains": dict.fromkeys(("received", "personal"), gains.get(run["method"], [0.0, 0.0]))}
        for run in outcome["runs"]
    ]
    (row,) = kind_of(own).tables(own, {**outcome, "runs": runs})[0].rows
    marks = dict(zip(COLUMNS, (cell[-1] if cell[-1] in "▲≈" else "" for cell in row[1:-1]), strict=True))
    assert (marks["SOLO"], marks["FedAvg"], marks["CFL"], marks["PACFL"]) == ("▲", "", "≈", "")


def test_only_seeds_that_all_methods_have_are_shown(wards: tuple[Item, Any]) -> None:
    own, outcome = wards
    fewer = [run for run in outcome["runs"] if (run["method"], run["seed"]) != ("cfl", 1)]
    (row,) = kind_of(own).tables(own, {**outcome, "runs": fewer})[0].rows
    assert row[-1] == "0"
    assert not any("±" in cell for cell in row)


def test_the_real_federations_are_of_four_kinds() -> None:
    from pacfl.data import DATASETS

    own = item("real")
    names = [own.table(column, "paper")["data"]["name"] for column in own.columns]
    assert {DATASETS[name].kind for name in names if name in DATASETS} | {"image"} == {
        "table",
        "signal",
        "text",
        "image",
    }
    assert len(names) >= 8
    assert all(own.table(column, "paper")["data"]["scheme"]["kind"] == "natural" for column in own.columns)


def test_without_data_nothing_is_run_and_what_is_missing_is_said(tmp_path: Path) -> None:
    outcome = kind_of(item("real")).make(item("real"), Request(data=tmp_path, runs=tmp_path / "runs"))
    assert not outcome["runs"]
    assert set(outcome["missing"]) == set(item("real").columns)
