"""Which metrics a run has: pacfl's own and those of other packages, each checked against the targets."""

import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import numpy as np
import pytest

from pacfl import plugins
from pacfl.errors import ConfigError
from pacfl.learning.evaluation import Metrics, find_metric, normalise
from pacfl.learning.losses import LOSSES
from pacfl.learning.metrics import METRICS

SOURCE = """
def first(outputs, y): return outputs[0, 0]
def regret(outputs, y): return float("nan") if len(y) == 1 else 2.5
regret.targets, regret.higher_is_better = "classes", False
def wrong(outputs, y): return None
def infinite(outputs, y): return float("inf")
def odd(outputs, y): return 0.0
odd.targets = ("colours",)
number = 3
"""
OUTPUTS, Y = np.array([[0.5, 2], [3, 1]], dtype=np.float32), np.array([1, 1])


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "some_metrics.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "some_metrics", raising=False)
    return "some_metrics"


def test_every_kind_of_targets_has_a_primary_metric_that_is_always_defined() -> None:
    for loss in LOSSES.values():
        metrics = Metrics(loss.targets)
        y = np.ones(1, dtype=np.int64 if loss.targets == "classes" else np.float32)
        outputs = np.ones((1, 2 if loss.targets == "classes" else 1), dtype=np.float32)
        assert np.isfinite(metrics.evaluate(outputs, y)[0])
        assert loss.targets in METRICS[metrics.primary].functions


def test_a_metric_that_is_not_defined_for_the_samples_is_left_out() -> None:
    primary, others = Metrics("classes", ("auroc", "macro-f1")).evaluate(OUTPUTS, Y)
    assert (primary, set(others)) == (0.5, {"macro-f1"})
    assert set(Metrics("classes", ("auroc",)).evaluate(OUTPUTS, np.array([0, 1]))[1]) == {"auroc"}


def test_a_function_is_a_metric(plugin: str, monkeypatch: pytest.MonkeyPatch) -> None:
    metrics = Metrics("classes", (f"{plugin}:first", f"{plugin}:regret"))
    metrics.check(2)
    assert metrics.evaluate(OUTPUTS, Y) == (0.5, {f"{plugin}:first": 0.5, f"{plugin}:regret": 2.5})
    assert metrics.evaluate(OUTPUTS[:1], Y[:1])[1] == {f"{plugin}:first": 0.5}
    assert set(find_metric(f"{plugin}:first").functions) == {"classes", "labels", "values"}
    assert find_metric(f"{plugin}:first").higher_is_better
    assert not find_metric(f"{plugin}:regret").higher_is_better
    entry = EntryPoint("regret", f"{plugin}:regret", "pacfl.metrics")
    monkeypatch.setattr(plugins, "entry_points", lambda group: [entry] if group == entry.group else [])
    assert Metrics("classes", ("regret",)).evaluate(OUTPUTS, Y)[1] == {"regret": 2.5}


@pytest.mark.parametrize(
    ("metrics", "n_outputs", "message"),
    [
        (Metrics("classes", ("mae",)), None, "'mae' is for values, but the loss is for classes; there are accuracy"),
        (Metrics("values", ("macro-f1",)), None, "for classes or labels, but the loss is for values; there are mae"),
        (Metrics("classes", ("sensitivity",)), 10, "two classes or one label, but the model has 10 outputs"),
        (Metrics("labels", ("specificity",)), 2, "two classes or one label, but the model has 2 outputs"),
        (Metrics("classes", ("macro_f1",)), None, "no metric 'macro_f1' .did you mean 'macro-f1'"),
        (Metrics("values", ("some_metrics:regret",)), None, "is for classes, but the loss is for values"),
        (Metrics("classes", ("some_metrics:odd",)), None, "targets must be of classes, labels, values, got .'colours'"),
        (Metrics("classes", ("some_metrics:number",)), None, "must be a function .outputs, y. -> float, got 3"),
    ],
)
@pytest.mark.usefixtures("plugin")
def test_metrics_that_do_not_fit_are_refused(metrics: Metrics, n_outputs: int | None, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        metrics.check(n_outputs)


@pytest.mark.parametrize("name", ["wrong", "infinite"])
def test_a_metric_must_return_a_finite_number(plugin: str, name: str) -> None:
    with pytest.raises(ConfigError, match="must return a finite number, or NaN where it is undefined"):
        Metrics("classes", (f"{plugin}:{name}",)).evaluate(OUTPUTS, Y)


def test_the_order_of_metrics_and_the_primary_one_among_them_make_no_difference() -> None:
    assert normalise(["macro-f1", "auroc", "accuracy", "auroc"], "classes") == ("auroc", "macro-f1")
    assert normalise(["r2", "mae"], "values") == ("r2",)
