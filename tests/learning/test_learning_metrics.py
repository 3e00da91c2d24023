"""Metrics against scikit-learn, on random outputs with ties, classes that are missing, and few samples."""

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from scipy.special import expit, softmax
from sklearn import metrics as sk
from sklearn.calibration import calibration_curve

from pacfl.learning.metrics import METRICS

Case = tuple[np.ndarray, np.ndarray]


def cases(draw: Callable[[np.random.Generator, int, int], Case], widths: tuple[int, ...]) -> Iterator[Case]:
    """Few samples and many, outputs that are rounded, so that some are equal, and outputs that are confident."""
    for seed in range(36):
        rng = np.random.default_rng(seed)
        outputs, y = draw(rng, int(rng.choice([1, 2, 3, 8, 50])), int(rng.choice(widths)))
        outputs = np.round(outputs, 1) if seed % 3 == 0 else outputs * (5 if seed % 3 == 1 else 1)
        yield outputs.astype(np.float32), y


def classes(rng: np.random.Generator, n: int, k: int) -> Case:
    return rng.normal(size=(n, k)), rng.integers(0, rng.integers(1, k + 1), n)  # the highest classes are missing


def labels(rng: np.random.Generator, n: int, k: int) -> Case:
    y = (rng.random((n, k)) < rng.choice([0, 0.5, 0.5, 1], k)).astype(np.float32)
    return rng.normal(size=(n, k)), y[:, 0] if k == 1 else y


def values(rng: np.random.Generator, n: int, k: int) -> Case:
    y = rng.normal(size=(n, k)) * rng.choice([0, 1, 1], k) + rng.normal(size=k)
    return y + rng.normal(size=(n, k)), (y[:, 0] if k == 1 else y).astype(np.float32)


DRAWN = {"classes": (classes, (2, 3, 10)), "labels": (labels, (1, 4)), "values": (values, (1, 3))}


def nanmean(scores: Any) -> float:
    defined = [score for score in scores if not np.isnan(score)]
    return float(np.mean(defined)) if defined else np.nan


def area(right: np.ndarray, scores: np.ndarray) -> float:
    return float(sk.roc_auc_score(right, scores)) if 0 < right.sum() < len(right) else np.nan


def recall(right: np.ndarray, predicted: np.ndarray) -> float:
    return float(sk.recall_score(right, predicted, zero_division=np.nan))


def f1(right: np.ndarray, predicted: np.ndarray) -> float:
    return float(sk.f1_score(right, predicted, zero_division=0)) if (right | predicted).any() else np.nan


def expected_calibration_error(right: np.ndarray, probability: np.ndarray) -> float:
    shares, means = calibration_curve(right, probability, n_bins=15)
    counts = np.histogram(probability, np.linspace(0, 1, 16))[0]
    return float(np.abs(shares - means) @ counts[counts > 0] / len(right))


# Of logits in float64 and classes (n,)
OF_CLASSES: dict[str, Callable[[np.ndarray, np.ndarray], float]] = {
    "accuracy": lambda o, y: sk.accuracy_score(y, o.argmax(1)),
    "balanced-accuracy": lambda o, y: sk.balanced_accuracy_score(y, o.argmax(1)),
    "macro-f1": lambda o, y: sk.f1_score(y, o.argmax(1), average="macro", zero_division=0),
    "auroc": lambda o, y: nanmean(area(y == c, odds(o, c)) for c in range(o.shape[1])),
    "sensitivity": lambda o, y: recall(y == 1, o.argmax(1) == 1),
    "specificity": lambda o, y: recall(y == 0, o.argmax(1) == 0),
    "calibration-error": lambda o, y: expected_calibration_error(o.argmax(1) == y, softmax(o, axis=1).max(1)),
    "log-loss": lambda o, y: sk.log_loss(y, softmax(o, axis=1), labels=range(o.shape[1])),
}
# Of logits and labels, both (n, k)
OF_LABELS: dict[str, Callable[[np.ndarray, np.ndarray], float]] = {
    "accuracy": lambda o, y: 1 - sk.zero_one_loss(y.ravel(), (o > 0).ravel()),
    "balanced-accuracy": lambda o, y: np.mean([sk.balanced_accuracy_score(a, b > 0) for a, b in columns(o, y)]),
    "macro-f1": lambda o, y: nanmean(f1(a, b > 0) for a, b in columns(o, y)),
    "auroc": lambda o, y: nanmean(area(a, b) for a, b in columns(o, y)),
    "sensitivity": lambda o, y: recall(y[:, 0] > 0, o[:, 0] > 0),
    "specificity": lambda o, y: recall(y[:, 0] == 0, o[:, 0] <= 0),
    "calibration-error": lambda o, y: expected_calibration_error(
        ((o > 0) == (y > 0)).ravel(), np.maximum(expit(o), expit(-o)).ravel()
    ),
    "log-loss": lambda o, y: sk.log_loss(y.ravel(), expit(o.ravel()), labels=[0, 1]),
}
OF_VALUES: dict[str, Callable[[np.ndarray, np.ndarray], float]] = {
    "mae": lambda o, y: sk.mean_absolute_error(y, o),
    "rmse": lambda o, y: sk.root_mean_squared_error(y, o),
    "r2": lambda o, y: nanmean(sk.r2_score(a, b) if np.ptp(a) else np.nan for a, b in columns(o, y)),
}
ORACLES = {"classes": OF_CLASSES, "labels": OF_LABELS, "values": OF_VALUES}


def columns(outputs: np.ndarray, y: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    return [(y[:, i] > 0 if set(np.unique(y)) <= {0, 1} else y[:, i], outputs[:, i]) for i in range(y.shape[1])]


def odds(outputs: np.ndarray, c: int) -> np.ndarray:
    """log p / (1 - p), from its definition."""
    return outputs[:, c] - np.logaddexp.reduce(np.delete(outputs, c, axis=1), axis=1)


@pytest.mark.parametrize(("targets", "name"), [(t, name) for t, named in ORACLES.items() for name in named])
def test_a_metric_is_that_of_scikit_learn(targets: str, name: str) -> None:
    draw, widths = DRAWN[targets]
    if METRICS[name].binary:
        widths = widths[:1]
    undefined = 0
    for outputs, y in cases(draw, widths):
        wide = y if targets == "classes" else y.reshape(outputs.shape).astype(np.float64)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of one class only, of samples too few
            expected = ORACLES[targets][name](outputs.astype(np.float64), wide)
        got = METRICS[name].functions[targets](outputs, y)  # type: ignore[index]
        np.testing.assert_allclose(got, expected, rtol=1e-6, atol=1e-9)
        undefined += np.isnan(got)
    # Samples of one class, without a label or with a constant value are among the cases
    sometimes = {"auroc", "sensitivity", "specificity", "r2", *(["macro-f1"] if targets == "labels" else [])}
    assert (undefined > 0) == (name in sometimes)


def test_every_metric_has_an_oracle() -> None:
    assert {(t, name) for name, metric in METRICS.items() for t in metric.functions} == {
        (t, name) for t, named in ORACLES.items() for name in named
    }


def test_the_area_of_confident_outputs_is_not_lost_to_rounding() -> None:
    """Both probabilities are 1 in floating point, but the first sample is the more certain one."""
    outputs, y = np.array([[0, 90], [0, 80]], dtype=np.float32), np.array([1, 0])
    assert METRICS["auroc"].functions["classes"](outputs, y) == 1
    three = np.array([[0, 90, 1], [0, 80, 1]], dtype=np.float32)
    assert METRICS["auroc"].functions["classes"](three, y) == 1


@pytest.mark.parametrize("name", METRICS)
def test_perfect_outputs_have_the_best_value(name: str) -> None:
    metric = METRICS[name]
    y = np.array([0, 1, 1, 0])
    perfect = {
        "classes": (np.where(y[:, None] == [0, 1], 90, -90).astype(np.float32), y),
        "labels": (np.where(y > 0, 90, -90).astype(np.float32)[:, None], y.astype(np.float32)),
        "values": (y.astype(np.float32)[:, None], y.astype(np.float32)),
    }
    for targets, function in metric.functions.items():
        outputs, right = perfect[targets]
        assert function(outputs, right) == pytest.approx(1 if metric.higher_is_better else 0, abs=1e-12)
        opposite = function(-outputs, right)
        assert (opposite < 1) if metric.higher_is_better else (opposite > 0)


def test_a_calibration_error_by_hand() -> None:
    """Two samples with p = 1/2, one of them right: no error. Two with p = 0.9, one right: |1/2 - 0.9|."""
    logit = np.log(9.0)
    outputs = np.array([[0, 0], [0, 0], [0, logit], [0, logit]], dtype=np.float64)
    function = METRICS["calibration-error"].functions["classes"]
    assert function(outputs, np.array([0, 1, 0, 1])) == pytest.approx(0.5 * 0.4)
