import tomllib

import pytest

from pacfl.errors import ConfigError
from pacfl.experiment.config import expand, label
from pacfl.reproduce.items import SCALES, Item, item, items
from pacfl.reproduce.kinds import kind_of
from pacfl.reproduce.planning import plan

ITEMS = items()
TRAINED = [one for one in ITEMS if one.trains]


def test_every_item_has_its_number_and_a_way_to_be_made() -> None:
    assert [one.number for one in ITEMS] == list(range(1, 17))
    assert all(kind_of(one) for one in ITEMS)


@pytest.mark.parametrize("one", TRAINED, ids=lambda one: one.name)
@pytest.mark.parametrize("scale", SCALES)
def test_every_column_of_an_item_is_an_experiment(one: Item, scale: str) -> None:
    for column in one.columns:
        assert expand(one.table(column, scale))  # type: ignore[arg-type]


@pytest.mark.parametrize("one", TRAINED, ids=lambda one: one.name)
def test_every_published_value_belongs_to_a_run(one: Item) -> None:
    published = one.published()
    assert set(published) <= set(one.columns)
    for column, values in published.items():
        assert set(values) <= {planned.method for planned in plan(one, column, "paper")}


@pytest.mark.parametrize("name", ["label-skew-20", "label-skew-30", "dirichlet"])
def test_the_papers_settings_are_those_of_the_file(name: str) -> None:
    for run in expand(item(name).table("cifar10", "paper")):
        assert (run.data.clients, run.schedule.rounds, run.schedule.participation) == (100, 200, 0.1)
        assert (run.learning.epochs, run.learning.batch_size, run.learning.weight_decay) == (10, 10, 0.0)
        is_global = run.algorithm["name"] in ("fedavg", "fedprox", "fednova", "scaffold")
        assert run.learning.momentum == (0.9 if is_global else 0.5)


def test_mix4_has_the_counts_of_the_published_code() -> None:
    for run in expand(item("mix4").table("mix4", "paper")):
        assert run.data.scheme == {"kind": "by-set", "counts": [32, 26, 28, 14], "size": 500}
        assert (run.schedule.rounds, run.learning.epochs) == (50, 5)
    methods = {label(run.algorithm) for run in expand(item("mix4").table("mix4", "paper"))}
    assert {"ifca(clusters=2)", "ifca(clusters=4)", "pacfl(paper)"} <= methods
    assert len(methods) == 11


def test_three_seeds_make_three_runs_of_each_method() -> None:
    planned = plan(item("label-skew-20"), "fmnist", "paper")
    assert [one.run.seed for one in planned] == sorted(one.run.seed for one in planned)
    assert len(planned) == 3 * len({one.method for one in planned})
    assert len(plan(item("label-skew-20"), "fmnist", "paper", ("pacfl", "solo"), 2)) == 2 * 3  # pacfl has two cuts


def test_an_item_is_found_by_name_and_by_number_and_a_wrong_name_is_refused() -> None:
    assert item("2").name == item("label-skew-20").name
    with pytest.raises(ConfigError, match="did you mean 'mix4'"):
        item("mix5")


def test_a_method_that_an_item_does_not_have_is_refused() -> None:
    with pytest.raises(ConfigError, match="did you mean 'scaffold'"):
        plan(item("mix4"), "mix4", "paper", ("scafold",))


def test_published_values_are_what_the_tables_print() -> None:
    """Three values read off the paper by eye."""
    assert item("label-skew-20").published()["cifar10"]["pacfl(paper)"] == "89.30 ± 0.41"
    assert item("mix4").published()["mix4"]["ifca(clusters=4)"] == "76.79 ± 0.43"
    assert item("newcomers").published()["svhn"]["lg-fedavg"] == "89.48 ± 0.65"


def test_experiment_files_are_read_by_the_run_command_too() -> None:
    table = tomllib.loads(item("mix4").path.read_text(encoding="utf-8"))
    assert "item" in table
    assert expand({**table, "data": {**table["data"], "sets": ["usps", "usps", "usps", "usps"]}})
