"""Which runs the grid asks for."""

import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pacfl import algorithms
from pacfl.benchmark import grid
from pacfl.benchmark.grid import SCALES, Tuning, build, columns, methods, planned
from pacfl.benchmark.tuning import trials
from pacfl.data import Dataset, build_division, partition
from pacfl.errors import ConfigError
from pacfl.experiment.run import divide

OWN = """
from dataclasses import dataclass
from pacfl import Algorithm

@dataclass(frozen=True)
class Mine(Algorithm):
    clusters: int = 3
"""


def test_every_algorithm_is_a_method_and_those_that_need_a_number_of_clusters_are_marked() -> None:
    given = {method.name: method.given for method in methods()}
    assert set(algorithms.NAMES) < set(given)
    assert given["ifca"]
    assert not any(given[name] for name in ("fedavg", "pacfl", "pacfl(paper)", "cfl", "solo"))


def test_every_run_of_every_scale_and_data_set_can_be_built() -> None:
    names = set()
    for scale, data_set in itertools.product(SCALES, grid.grid()["data-sets"]):
        for column in columns(scale, data_set, list({c.name for c in columns("full", data_set)})):
            one = planned(scale, column, methods(["ifca"])[0], 1)
            assert one.run.algorithm["clusters"] == column.shift.clusters
            assert one.run.data.clients == column.clients
            assert one.run.data.test == ("proportional", "owned")
            names.add(one.run.hash)
    assert len(names) > 60, "all different"


def test_the_full_scale_has_every_shift_and_three_with_other_numbers_of_clients() -> None:
    found = columns("full")
    assert len([column for column in found if column.clients == 100]) == 13
    assert [column.name for column in found if column.clients == 500] == [
        f"{name}/500" for name in ("label-skew-20", "rotations", "label-maps")
    ]
    assert not any(column.shift.images for column in columns("full", "flights"))


@pytest.mark.parametrize("column", columns("quick"), ids=lambda column: column.name)
def test_true_groups_are_known_wherever_there_are_any(column: grid.Column) -> None:
    run = planned("quick", column, methods(["fedavg"])[0], 0).run
    _, divided = divide(run)
    groups = divided.true_cluster
    assert (groups is None) == ("groups" not in column.shift.data["scheme"])
    assert groups is None or len(np.unique(groups)) == column.shift.clusters


SIZES = {"fmnist": (60_000, 10), "cifar10": (50_000, 10), "flights": (13_246, 2), "plays": (41_442, 27)}


@pytest.mark.parametrize("name", SIZES)
def test_every_cell_can_be_divided_among_its_clients(name: str) -> None:
    """By the sizes and the numbers of classes of the real sets."""
    n, n_classes = SIZES[name]
    y, y_test = np.arange(n) % n_classes, np.arange(n_classes)
    x, x_test = (np.zeros((len(of), 1), np.float32) for of in (y, y_test))
    data = Dataset(name, x, y, x_test, y_test, n_classes, np.zeros_like(y), np.zeros_like(y_test), (name,))
    for column in columns("full", name):
        scheme, _ = build_division(column.shift.data.get("scheme", {"kind": "iid"}))
        if column.shift.name != "mixture":
            divided = partition(data, scheme, column.clients, np.random.default_rng(0))
            assert min(map(len, divided.train_indices)) >= 4, column.name


def test_drift_is_at_half_time_of_a_run_and_of_a_trial() -> None:
    (column,) = columns("full", None, ["drift"])
    one = planned("full", column, methods(["fedavg"])[0], 0)
    assert one.run.data.drift == {"share": 0.1, "round": 26}
    first, *_ = trials(one, tuning())
    assert (first.run.schedule.rounds, first.run.data.drift) == (20, {"share": 0.1, "round": 11})


def tuning() -> Tuning:
    table = grid.settings("full").tuning
    assert table is not None
    return build(Tuning, table, "tuning")


@pytest.mark.parametrize("method", methods(), ids=lambda method: method.name)
def test_every_method_has_four_trials_that_see_no_test_sample(method: grid.Method) -> None:
    (column,) = columns("full", None, ["label-maps"])
    one = planned("full", column, method, 0)
    found = list(trials(one, tuning()))
    assert len({trial.run.hash for trial in found}) == 4
    for trial in found:
        assert trial.run.data == replace(one.run.data, validation=0.2, test="owned")
        assert trial.run.learning.lr == trial.settings["lr"]


def test_a_method_of_the_users_own_is_added_to_those_named_or_to_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_methods.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert [m.name for m in methods(["my_methods:Mine"])] == [*(m.name for m in methods()), "my_methods:Mine"]
    fedavg, mine = methods(["my_methods:Mine", "fedavg"])
    assert (fedavg.name, mine.name, mine.given) == ("fedavg", "my_methods:Mine", True)
    assert planned("quick", columns("quick")[3], mine, 0).run.algorithm == {"name": "my_methods:Mine", "clusters": 4}


@pytest.mark.parametrize(
    ("ask", "reason"),
    [
        (lambda: methods(["fedavgg"]), "no method 'fedavgg' .did you mean 'fedavg'"),
        (lambda: columns("quick", None, ["rotation"]), "digits has no shift 'rotation' .did you mean 'rotations'"),
        (lambda: columns("full", "flights", ["rotations"]), "flights has no shift 'rotations'"),
        (lambda: columns("full", "mnits"), "the grid has no data set 'mnits'"),
        (lambda: grid.scale_of("fulll"), "there is no scale 'fulll' .did you mean 'full'"),
    ],
)
def test_unknown_names_are_refused_with_the_nearest_one(ask: object, reason: str) -> None:
    assert callable(ask)
    with pytest.raises(ConfigError, match=reason):
        ask()
