from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pacfl.report.experiments import experiments
from pacfl.report.facts import Played
from pacfl.report.gather import gather
from pacfl.report.runs import read
from pacfl.report.words import title, words
from tests.report.folders import write_run, write_runs


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Played, ...]:
    folder = tmp_path_factory.mktemp("several")
    write_runs(folder, ("solo", "fedavg", "pacfl"), seeds=(0, 1, 2), n=12)
    write_runs(folder, ("fedavg",), seeds=(0,), n=12, dataset="other")
    return gather([str(folder)], folder).runs


def test_runs_that_may_be_compared_stand_together(runs: tuple[Played, ...]) -> None:
    found = experiments(runs)
    assert {experiment.title.split(",")[0]: len(experiment.runs) for experiment in found} == {"weather": 9, "other": 1}
    for experiment in found:
        for row in experiment.rows:
            assert len({run.algorithm for run in row.runs}) == 1
            assert [run.seed for run in row.runs] == sorted({run.seed for run in row.runs})
    assert sorted(run.hash for experiment in found for run in experiment.runs) == sorted(run.hash for run in runs)


def test_figures_are_means_over_seeds_of_means_over_clients_and_name_their_runs(runs: tuple[Played, ...]) -> None:
    weather = next(e for e in experiments(runs) if e.title.startswith("weather"))
    for row in weather.rows:
        for protocol, figure in row.accuracy.items():
            means = [np.nanmean(run.accuracy[protocol]) for run in row.runs]
            assert figure.mean == pytest.approx(np.mean(means))
            assert figure.deviation == pytest.approx(np.std(means, ddof=1))
            assert figure.runs == tuple(run.hash for run in row.runs)


def serves(run: Played, **accuracy: list[float]) -> Played:
    return replace(run, accuracy={protocol: np.array(values) for protocol, values in accuracy.items()})


def test_clients_hurt_are_counted_against_themselves_alone_and_before(tmp_path: Path) -> None:
    """Of 4 clients, 1 has less than alone as received, 2 as personalised; personalising takes from 3."""
    solo = serves(read(write_run(tmp_path, {"name": "solo"}, 0, 4)), received=[0.5] * 4, personal=[0.6] * 4)
    other = read(write_run(tmp_path, {"name": "fedavg"}, 0, 4))
    other = serves(other, received=[0.4, 0.7, 0.7, 0.7], personal=[0.5, 0.5, 0.65, 0.6])
    (experiment,) = experiments([other, solo])
    row, alone = experiment.rows
    assert {protocol: figure.mean for protocol, figure in row.hurt.items()} == {"received": 0.25, "personal": 0.5}
    assert row.hurt_by_personalising is not None
    assert row.hurt_by_personalising.mean == 0.75
    assert alone.hurt == {}


def test_clients_not_judged_by_both_do_not_count(tmp_path: Path) -> None:
    solo = serves(read(write_run(tmp_path, {"name": "solo"}, 0, 4)), received=[0.5, np.nan, 0.5, np.nan])
    other = serves(read(write_run(tmp_path, {"name": "fedavg"}, 0, 4)), received=[0.4, 0.1, 0.7, np.nan])
    (experiment,) = experiments([other, solo])
    assert experiment.rows[0].hurt["received"].mean == 0.5


def test_learning_that_differs_makes_rows_of_its_own_and_is_said(tmp_path: Path) -> None:
    slow = read(write_run(tmp_path, {"name": "fedavg"}, 0, 4, learning={"lr": 0.01}))
    fast = read(write_run(tmp_path, {"name": "fedavg"}, 0, 4, learning={"lr": 0.1}))
    (experiment,) = experiments([slow, fast])
    assert [row.learning for row in experiment.rows] == ["lr 0.01", "lr 0.1"]
    assert "lr as each row says" in experiment.words


def test_an_experiment_is_told_in_plain_words(runs: tuple[Played, ...]) -> None:
    settings = [run.settings for run in runs if run.settings["data"]["name"] == "weather"]
    assert title(settings[0]) == "weather, by-set (size 60), 12 clients"
    told = words(settings)
    for part in (
        "12 clients",
        "(sea, land, air, fire)",
        "mlp",
        "50 rounds",
        "10 % of them",
        "lr 0.05",
        "Seeds 0, 1, 2",
    ):
        assert part in told
