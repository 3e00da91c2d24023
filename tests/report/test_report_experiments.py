import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pacfl.experiment.store import RunFolder
from pacfl.learning.evaluation import Metrics
from pacfl.report.experiments import experiments
from pacfl.report.gather import gather
from pacfl.report.runs import read
from pacfl.report.summary import RunSummary
from pacfl.report.titles import description, titles
from tests.conftest import Run
from tests.report.folders import write_run, write_runs


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunSummary, ...]:
    folder = tmp_path_factory.mktemp("several")
    write_runs(folder, ("solo", "fedavg", "pacfl"), seeds=(0, 1, 2), n=12)
    write_runs(folder, ("fedavg",), seeds=(0,), n=12, dataset="other")
    return gather([str(folder)], folder).runs


def test_comparable_runs_are_one_experiment(runs: tuple[RunSummary, ...]) -> None:
    found = experiments(runs)
    assert {experiment.title.split(",")[0]: len(experiment.runs) for experiment in found} == {"weather": 9, "other": 1}
    for experiment in found:
        for row in experiment.rows:
            assert len({run.algorithm for run in row.runs}) == 1
            assert [run.seed for run in row.runs] == sorted({run.seed for run in row.runs})
    assert sorted(run.hash for experiment in found for run in experiment.runs) == sorted(run.hash for run in runs)


def test_accuracies_are_means_over_seeds_of_means_over_clients_and_name_their_runs(
    runs: tuple[RunSummary, ...],
) -> None:
    weather = next(e for e in experiments(runs) if e.title.startswith("weather"))
    for row in weather.rows:
        for protocol, shown in row.scores.items():
            means = [np.nanmean(run.scores[protocol]) for run in row.runs]
            assert shown.mean == pytest.approx(np.mean(means))
            assert shown.std == pytest.approx(np.std(means))
            assert shown.runs == tuple(run.hash for run in row.runs)


def write_scored(runs: Path, method: str, **accuracy: Sequence[float | None]) -> RunFolder:
    """A run of four clients with these accuracies at its end; None: not evaluated."""
    folder = write_run(runs, {"name": method}, 0, 4)
    *records, last = folder.records()
    scores = {p: {str(c): [v, 0.0] for c, v in enumerate(values) if v is not None} for p, values in accuracy.items()}
    last |= {
        "by_client": scores,
        **{word: dict.fromkeys(scores, last[word]["received"]) for word in ("accuracy", "loss")},
    }
    (folder.path / "rounds.jsonl").write_text("".join(json.dumps(r) + "\n" for r in [*records, last]))
    return folder


def test_clients_are_compared_with_local_training_and_with_the_model_as_received(tmp_path: Path) -> None:
    """Of 4 clients, 1 is below local as received, 2 as personalised; personalisation makes 3 worse."""
    write_scored(tmp_path, "fedavg", received=[0.4, 0.7, 0.7, 0.7], personal=[0.5, 0.5, 0.65, 0.6])
    write_scored(tmp_path, "solo", received=[0.5] * 4, personal=[0.6] * 4)
    (experiment,) = experiments(gather([str(tmp_path)], tmp_path).runs)
    rows = {row.algorithm: row for row in experiment.rows}
    shares = {protocol: mean.mean for protocol, mean in rows["fedavg"].below_local.items()}
    assert shares == {"received": 0.25, "personal": 0.5}
    assert rows["fedavg"].below_received is not None
    assert rows["fedavg"].below_received.mean == 0.75
    assert rows["solo"].below_local == {}


def test_clients_not_evaluated_in_both_runs_do_not_count(tmp_path: Path) -> None:
    write_scored(tmp_path, "fedavg", received=[0.4, 0.1, 0.7, None])
    write_scored(tmp_path, "solo", received=[0.5, None, 0.5, None])
    (experiment,) = experiments(gather([str(tmp_path)], tmp_path).runs)
    (row,) = (row for row in experiment.rows if row.algorithm == "fedavg")
    assert row.below_local["received"].mean == 0.5


def test_the_share_below_local_is_that_of_the_command_line(tmp_path: Path, run: Run) -> None:
    write_runs(tmp_path, ("solo", "fedavg"), seeds=(0, 1), n=12, newcomers=2)
    for summary in gather([str(tmp_path)], tmp_path).runs:
        if summary.algorithm == "fedavg":
            _, printed, _ = run("show", summary.hash, "--runs", str(tmp_path), "--json")
            result = json.loads(printed)["result"]
            expected = result["worse_than_alone"]
            newcomers = {f"newcomers, {p}": share for p, share in result["newcomers"]["worse_than_alone"].items()}
            assert summary.below_local == {**expected, **newcomers}


def test_solo_has_no_clusters(runs: tuple[RunSummary, ...]) -> None:
    weather = next(e for e in experiments(runs) if e.title.startswith("weather"))
    shown = {row.algorithm: (row.clusters, row.ari) for row in weather.rows}
    assert shown["solo"] == (None, None)
    assert all(value is not None for value in (*shown["fedavg"], *shown["pacfl"]))


def test_experiments_that_differ_in_any_setting_have_different_titles(tmp_path: Path) -> None:
    settings: list[dict[str, dict[str, Any]]] = [
        {},
        {"schedule": {"rounds": 60}},
        {"model": {"name": "cnn"}},
        {"schedule": {"participation": 0.5}},
        {"schedule": {"client_dropout": 0.1}},
        {"data": {"samples": 500}},
    ]
    for sections in settings:
        write_run(tmp_path, {"name": "fedavg"}, 0, 4, sections=sections)
    found = {experiment.title for experiment in experiments(gather([str(tmp_path)], tmp_path).runs)}
    start = "weather, by-set (size 60), 4 clients"
    assert found == {
        f"{start}, mlp, 50 rounds, participation 0.1, client dropout 0.0",
        f"{start}, mlp, 60 rounds",
        f"{start}, cnn, 50 rounds",
        f"{start}, mlp, 50 rounds, participation 0.5, client dropout 0.0",
        f"{start}, mlp, 50 rounds, participation 0.1, client dropout 0.1",
        f"{start}, mlp, 50 rounds, samples 500, participation 0.1, client dropout 0.0",
    }


def test_local_training_that_differs_makes_rows_of_its_own_and_is_named(tmp_path: Path) -> None:
    slow = read(write_run(tmp_path, {"name": "fedavg"}, 0, 4, learning={"lr": 0.01}))
    fast = read(write_run(tmp_path, {"name": "fedavg"}, 0, 4, learning={"lr": 0.1}))
    (experiment,) = experiments([slow, fast])
    assert [row.training for row in experiment.rows] == ["lr 0.01", "lr 0.1"]
    assert "lr as in each row" in experiment.description


def test_runs_of_another_engine_or_with_a_setting_that_others_lack_are_rows_of_their_own(tmp_path: Path) -> None:
    plain = write_run(tmp_path, {"name": "fedavg"}, 0, 4)
    adam = write_run(tmp_path, {"name": "fedavg"}, 0, 4, learning={"optimiser": "adam"})
    (run,) = (replace(read(plain), hash="native", settings={**read(plain).settings, "engine": "native"}),)
    (experiment,) = experiments([read(plain), read(adam), run])
    assert [row.training for row in experiment.rows] == ["", "optimiser adam", "engine native"]
    assert all(len(row.runs) == 1 for row in experiment.rows)
    assert "optimiser, engine as in each row" in experiment.description


def test_an_experiment_is_described_in_words(runs: tuple[RunSummary, ...]) -> None:
    settings = [run.settings for run in runs if run.settings["data"]["name"] == "weather"]
    assert titles(settings[:1]) == ["weather, by-set (size 60), 12 clients, mlp, 50 rounds"]
    text = description(settings)
    parts = ("12 clients", "(sea, land, air, fire)", "mlp", "50 rounds", "10 % of the", "lr 0.05", "Seeds 0, 1, 2")
    assert all(part in text for part in parts)


def test_of_errors_the_lowest_is_the_best_and_higher_ones_are_worse(tmp_path: Path) -> None:
    """Errors are made up to rise with the skill, so that solo is the best and personalisation makes all worse."""
    for seed in (0, 1, 2):
        for i, method in enumerate(("solo", "fedavg")):
            options: dict[str, Any] = {"metrics": Metrics("values", ("r2",)), "learning": {"loss": "squared-error"}}
            write_run(tmp_path / "runs", {"name": method}, seed, 20, skill=0.4 + 0.3 * i, **options)
    write_run(tmp_path / "runs", {"name": "fedavg"}, 0, 20)
    regression, classification = sorted(
        experiments(gather([str(tmp_path / "runs")], tmp_path).runs), key=lambda e: e.metric, reverse=True
    )
    assert (regression.metric, classification.metric) == ("mae", "accuracy")
    assert regression.title == f"{classification.title.removesuffix(', accuracy')}, mae"
    rows = {row.algorithm: row for row in regression.rows}
    assert rows["solo"].scores["received"].best
    assert rows["fedavg"].below_local["received"].mean == 1
    assert rows["fedavg"].below_received is not None
    assert rows["fedavg"].below_received.mean > 0.5
    assert rows["fedavg"].worst_tenth["received"].mean > rows["fedavg"].scores["received"].mean
    expected = np.mean([10 * np.mean(run.scores["received"][1:]) for run in rows["solo"].runs])
    assert rows["solo"].metrics["r2"].mean == pytest.approx(expected), "client 0 has none"
