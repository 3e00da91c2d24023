"""What records, results and tables hold of a run's metrics."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from pacfl.cli.result_tables import metrics_table, results_table, targets_table
from pacfl.errors import ConfigError
from pacfl.experiment.compare import below_local, to_target
from pacfl.experiment.config import Run, from_content
from pacfl.experiment.csv_tables import flat
from pacfl.experiment.run import build, resume
from pacfl.experiment.store import folder_of
from pacfl.experiment.summary import record, result, scores
from pacfl.federation.algorithm import State
from pacfl.federation.client_side import ClientSide
from pacfl.federation.rounds import Round, Score
from pacfl.federation.schedule import RoundPlan
from pacfl.learning.evaluation import Metrics
from pacfl.learning.metrics import METRICS
from tests.experiment.tables import only, table

REGRESSION = Metrics("values", ("r2",))


def finished(by_protocol: dict[str, dict[int, Score]]) -> Round:
    state = State(np.zeros((1, 2), dtype=np.float32), dict.fromkeys(range(20), 0))
    return Round(0, RoundPlan(sampled=(0,)), state, by_protocol, 1, 1)


def run_of(metrics: list[str]) -> Run:
    return only(
        table(
            data={"clients": 4, "scheme": {"kind": "label-skew", "share": 0.2}},
            model={"name": "logistic"},
            schedule={"rounds": 1},
            evaluation={"metrics": metrics},
        )
    )


def test_a_record_of_classification_has_the_fields_it_always_had() -> None:
    stored = record(finished({"received": {0: Score(0.5, 2.0), 3: Score(1.0, 1.0)}}), None)
    assert list(stored)[-3:] == ["accuracy", "loss", "by_client"]
    assert stored["accuracy"] == {"received": {"mean": 0.75, "std": 0.25, "worst_tenth": 0.5}}
    assert stored["loss"] == {"received": {"mean": 1.5, "std": 0.5, "worst_tenth": 2.0}}
    assert stored["by_client"] == {"received": {"0": [0.5, 2.0], "3": [1.0, 1.0]}}
    assert not {"metric", "metrics", "metrics_by_client"} & {*stored, *result([stored], 0)}


def test_metrics_are_added_and_change_nothing_else(tmp_path: Path) -> None:
    plain, asked = run_of([]), run_of(["macro-f1", "auroc"])
    of_plain, of_asked = (list(resume(run, folder_of(run, tmp_path))) for run in (plain, asked))
    for before, after in zip(of_plain, of_asked, strict=True):
        added = set(after) - set(before)
        assert added == ({"metrics", "metrics_by_client"} if "by_client" in after else {"metrics"} & {*after})
        same = {key: value for key, value in after.items() if key not in added | {"hash", "seconds"}}
        assert same == {key: value for key, value in before.items() if key not in ("hash", "seconds")}
    assert set(of_asked[-1]["metrics"]) == {"auroc", "macro-f1"}
    assert from_content(asked.content()) == asked
    assert {name for name in flat(of_asked[-2]) if name.startswith("metrics")} == {
        f"metrics.{name}.{protocol}.{word}"
        for name in ("auroc", "macro-f1")
        for protocol in of_asked[-2]["by_client"]
        for word in ("mean", "std", "worst_tenth", "undefined")
    }


def test_metrics_of_a_client_are_those_of_its_outputs() -> None:
    experiment = build(run_of(["balanced-accuracy", "calibration-error"]))
    side = ClientSide(experiment.setup)
    w, test = experiment.setup.model.initial, experiment.setup.pool.test
    for client, own in enumerate(experiment.setup.pool.client_indices):
        outputs, _ = side.engine.evaluate(w, test)
        score = side.evaluate(0, client, {"w": w}, {}, None, personal=False)["received"]
        for name in experiment.setup.metrics:
            expected = METRICS[name].functions["classes"](outputs[own.test], test.y[own.test])
            assert score.metrics[name] == pytest.approx(expected, rel=1e-5)


def test_clients_without_a_metric_are_left_out_and_counted() -> None:
    by = {0: Score(0.5, 1.0, {"auroc": 0.25}), 1: Score(0.5, 1.0), 2: Score(0.5, 1.0, {"auroc": 0.75})}
    stored = record(finished({"received": by, "personal": {1: Score(0.5, 1.0)}}), None, Metrics("classes", ("auroc",)))
    assert stored["metrics"]["auroc"] == {
        "received": {"mean": 0.5, "std": 0.25, "worst_tenth": 0.25, "undefined": 1},
        "personal": {"mean": None, "std": None, "worst_tenth": None, "undefined": 1},
    }
    assert stored["metrics_by_client"] == {"auroc": {"received": {"0": 0.25, "2": 0.75}, "personal": {}}}
    json.dumps(stored, allow_nan=False)


def test_a_record_of_regression_names_its_metric_and_the_worst_tenth_has_the_largest_errors() -> None:
    by = {c: Score(float(c), 1.0, {"r2": -float(c)}) for c in range(20)}
    stored = record(finished({"received": by}), None, REGRESSION)
    assert "accuracy" not in stored
    assert stored["metric"] == "mae"
    assert stored["mae"]["received"]["worst_tenth"] == 18.5
    assert stored["metrics"]["r2"]["received"]["worst_tenth"] == -18.5
    assert stored["by_client"]["received"]["7"] == [7.0, 1.0]
    outcome = result([stored], 0)
    assert (outcome["metric"], scores(outcome), outcome["metrics"]) == ("mae", stored["mae"], stored["metrics"])
    unevaluated = record(finished({}), None, REGRESSION)
    assert result([unevaluated], 0)["mae"] == {}


def test_lower_errors_are_better_than_local_training_and_reach_a_target() -> None:
    """Of clients 0, 1 and 2, only client 1 has a larger error than with local training."""
    own = {"metric": "mae", "by_client": {"received": {"0": [1.0, 0], "1": [3.0, 0], "2": [2.0, 0]}}}
    local = {"metric": "mae", "by_client": {"received": {"0": [2.0, 0], "1": [2.0, 0], "2": [2.0, 0]}}}
    assert below_local(own, local) == {"received": 1 / 3}
    sent = {"sampled": [0], "bytes_down": 0, "bytes_up": 0, "clients": 1, "metric": "mae"}
    records = [{**sent, "mae": {"received": {"mean": mean}}} for mean in (3.0, 2.0, 1.0)]
    reached = to_target(records, 2.0)["received"]
    assert reached is not None
    assert reached["rounds"] == 2
    assert to_target(records, 0.5) == {"received": None}


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        (
            {"evaluation": {"metrics": ["mae"]}},
            r"\[evaluation\] metric 'mae' is for values, but the loss is for classes",
        ),
        ({"evaluation": {"metrics": ["f1"]}}, r"\[evaluation\] no metric 'f1'"),
        ({"evaluation": {"metrics": "auroc"}}, r"\[evaluation\] metrics must be a list, a string each, got 'auroc'"),
        (
            {"learning": {"loss": "squared-error"}, "evaluation": {"metrics": ["auroc"]}},
            r"\[evaluation\] metric 'auroc' is for classes or labels, but the loss is for values; there are mae, rmse",
        ),
        ({"evaluation": {"targets": [80]}}, r"\[evaluation\] targets are accuracy from 0 to 1, got 80; write 0.8"),
    ],
)
def test_what_does_not_fit_the_loss_is_refused_before_anything_runs(sections: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        only(table(**sections))


def test_errors_may_have_targets_above_one() -> None:
    only(table(learning={"loss": "squared-error"}, evaluation={"targets": [80]}))


def test_a_metric_for_two_classes_is_refused_where_there_are_ten() -> None:
    with pytest.raises(
        ConfigError, match="'sensitivity' is for two classes or one label, but the model has 10 outputs"
    ):
        build(run_of(["sensitivity"]))


def text(shown: Any) -> str:
    console = Console(width=200)
    with console.capture() as capture:
        console.print(shown)
    return " ".join(capture.get().split())


def test_tables_name_the_metric_and_show_shares_alone_in_percent() -> None:
    spread = {"mean": 0.5, "std": 0.25, "worst_tenth": 2.5}
    row = {
        "algorithm": "fedavg",
        "settings": {},
        "seed": 0,
        "clusters": 1,
        "ari": None,
        "worse_than_alone": {"received": 0.5},
        "megabits_per_client": 1.0,
        "to_target": {"0.4": {"received": None}},
    }
    accuracy, mae = {**row, "accuracy": {"received": spread}}, {**row, "metric": "mae", "mae": {"received": spread}}
    shown = text(results_table([accuracy], ""))
    assert "50.0±25.0" in shown
    assert "accuracy in %" in shown
    shown = text(results_table([mae], ""))
    assert "0.5±0.25" in shown
    assert "worse mae than with local" in shown
    assert shown.count("%") == 1  # the share of clients below local
    assert "40 %" in text(targets_table([accuracy]))
    assert "received mae" in text(targets_table([mae]))
    assert "%" not in text(targets_table([mae]))
    metrics = {
        "auroc": {"received": {**spread, "undefined": 3}},
        "sensitivity": {"received": {**spread, "undefined": 0}},
        "r2": {"received": {"mean": None, "std": None, "worst_tenth": None, "undefined": 4}},
    }
    shown = text(metrics_table([{**row, "metrics": metrics}, row]))
    assert "seed auroc sensitivity in % r2" in shown
    assert "0.5±0.25 (3)" in shown
    assert "50.0±25.0 - (4)" in shown
