"""PACFL's defaults beside other methods, made for real on the embedded digits."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

from pacfl.reproduce.items import Item, _item, item
from pacfl.reproduce.kinds import kind_of
from pacfl.reproduce.making import Request, run_item
from pacfl.reproduce.outcome import save
from pacfl.reproduce.page import write_page
from pacfl.reproduce.planning import plan
from pacfl.reproduce.together import NAMES, OURS, compared, gain, name_of

pytest.importorskip("sklearn")

FILE = """
seeds = [0]

[item]
number = 1
title = "Digits"
kind = "together"

[item.columns]
one-domain = ['data.scheme={kind="by-set", counts=[6, 0, 0, 0], size=50}', "data.clients=6"]
domains = ['data.scheme={kind="by-set", counts=[3, 3, 3, 3], size=50}', "data.clients=12", "algorithm.ifca.clusters=4"]

[data]
name = "digits"
test = ["owned", "proportional"]

[model]
name = "logistic"

[learning]
epochs = 1

[schedule]
rounds = 2
participation = 0.5
evaluate-every = 0

[[algorithm]]
name = ["solo", "fedavg", "cfl"]

[[algorithm]]
name = "fedavg"
label-prior = true

[[algorithm]]
name = "ifca"
clusters = 1

[[algorithm]]
name = "pacfl"
compare = "inputs"
label-prior = false
levels = "none"

[[algorithm]]
name = "pacfl"
"""


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Item:
    path = tmp_path_factory.mktemp("item") / "digits.toml"
    path.write_text(FILE, encoding="utf-8")
    return _item(path, tomllib.loads(FILE)["item"])


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def made(small: Item, runs: Path) -> dict[str, Any]:
    return kind_of(small).make(small, Request(scale="paper", runs=runs))


def test_every_method_has_a_row_in_every_column(small: Item, made: dict[str, Any]) -> None:
    for column in small.columns:
        assert {name_of(run["algorithm"]) for run in made["runs"] if run["column"] == column} == set(NAMES)


def test_what_is_fedavg_to_the_bit_is_not_trained_and_has_its_accuracies(
    small: Item, made: dict[str, Any], tmp_path: Path
) -> None:
    trained = run_item(small, Request(scale="paper", runs=tmp_path, on=("one-domain",)))["runs"]
    by_hash = {run["hash"]: run for run in trained}
    same = [run for run in made["runs"] if "same_as" in run and run["column"] == "one-domain"]
    assert {name_of(run["algorithm"]) for run in same} == {"FedAvg", "IFCA, k given", "PACFL of the paper"}
    for run in same:
        assert (run["accuracy"], run["tests"]) == (by_hash[run["hash"]]["accuracy"], by_hash[run["hash"]]["tests"])


def test_nothing_is_run_again_and_hashes_are_those_of_the_file(small: Item, made: dict[str, Any], runs: Path) -> None:
    again = kind_of(small).make(small, Request(scale="paper", runs=runs, run=False))
    assert again == made
    described = {one.run.hash for column in small.columns for one in plan(small, column, "paper")}
    assert {run["hash"] for run in made["runs"]} == described


def test_columns_that_were_exported_are_not_run_again(small: Item, made: dict[str, Any], tmp_path: Path) -> None:
    part = {**made, "runs": [run for run in made["runs"] if run["column"] == "domains"]}
    again = kind_of(small).make(small, Request(scale="paper", runs=tmp_path, run=False, exported=part))
    assert again["runs"] == []
    found = kind_of(small).make(small, Request(scale="paper", runs=tmp_path, exported=part))
    assert {run["column"] for run in found["runs"]} == {"one-domain"}


def test_clients_are_compared_one_by_one(made: dict[str, Any]) -> None:
    ours = next(run for run in made["runs"] if name_of(run["algorithm"]) == OURS)
    assert ours["pacfl_gains"]["owned"]["received"] == [0.0, 0.0]
    assert gain({"0": [0.5], "1": [0.9]}, {"0": [0.4], "1": [0.6]}) == [0.2, 0.1]  # differences of 0.1 and 0.3


@pytest.mark.parametrize(
    ("gains", "standing"),
    [
        ([[0.05, 0.02]], "behind"),
        ([[0.03, 0.02]], "tied"),
        ([[-0.05, 0.02]], "ahead"),
        ([[0.03, 0.0], [0.03, 0.0]], "behind"),
        ([[0.1, 0.0], [-0.02, 0.0]], "tied"),  # seeds disagree
    ],
)
def test_a_method_is_ahead_or_behind_only_by_more_than_noise(gains: list[list[float]], standing: str) -> None:
    runs = [{"algorithm": {"name": "cfl"}, "pacfl_gains": {"owned": {"received": own}}} for own in gains]
    assert compared(runs, "owned", "received") == standing


def test_only_seeds_that_all_methods_have_in_common_are_shown(small: Item, made: dict[str, Any]) -> None:
    solo = next(run for run in made["runs"] if name_of(run["algorithm"]) == "SOLO" and run["column"] == "domains")
    another = {**solo, "seed": 1, "accuracy": {p: {"mean": 0.0} for p in ("received", "personal")}}
    shown = kind_of(small).tables(small, {**made, "runs": [*made["runs"], another]})
    assert shown == kind_of(small).tables(small, made)
    assert {row[-1] for table in shown[:4] for row in table.rows} == {"0"}


def test_rows_without_results_are_named_with_the_reason(small: Item, made: dict[str, Any]) -> None:
    runs = [run for run in made["runs"] if run["column"] == "domains"]
    shown = kind_of(small).tables(small, {**made, "runs": runs})
    assert [row[0] for row in shown[0].rows] == ["domains"]
    assert shown[-1].notes == ("Rows without results: one-domain (not run).",)
    assert shown[0].notes[0].startswith("Of 1 complete rows")


def test_nothing_is_said_about_pacfl_where_it_was_not_run(small: Item, made: dict[str, Any]) -> None:
    runs = [{k: v for k, v in run.items() if k != "pacfl_gains"} for run in made["runs"]]
    without = {**made, "runs": [run for run in runs if name_of(run["algorithm"]) != OURS]}
    for table in kind_of(small).tables(small, without)[:4]:
        assert table.notes == ()
        assert all(row[NAMES.index(OURS) + 1] == "not run" and "≈" not in "".join(row) for row in table.rows)


def test_the_page_of_an_item_has_its_tables_and_no_other_item(
    small: Item, made: dict[str, Any], tmp_path: Path
) -> None:
    save(made, tmp_path)
    write_page(tmp_path / "page.md", tmp_path, small)
    page = (tmp_path / "page.md").read_text(encoding="utf-8")
    assert page.startswith("# Digits\n")
    assert page.count("\n| domains |") == 6
    assert "label-skew" not in page


def test_ifca_is_given_as_many_models_as_there_are_groups() -> None:
    together = item("together")
    for column in together.columns:
        (run,) = [one.run for one in plan(together, column, "paper", ("ifca",), 1)]
        groups = run.data.scheme.get("groups", {})
        expected = groups.get("permute_labels", 1) * len(groups.get("rotate", [0]))
        assert run.algorithm["clusters"] == (4 if column == "mix4m" else expected)
