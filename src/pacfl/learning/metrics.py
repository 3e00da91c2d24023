"""Metrics: how well the outputs of a model fit the targets. Needs no torch, so that results are read without it.

Where a metric is not defined, as the AUROC of samples of one class, it is NaN.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax, logsumexp
from scipy.stats import rankdata

if TYPE_CHECKING:
    from pacfl.learning.losses import Targets

Array = NDArray[Any]
Function = Callable[[Array, Array], float]  # outputs (n, k), targets (n,) or (n, k)

BINS: Final = 15  # of the calibration error, as in Guo and others (2017)


@dataclass(frozen=True)
class Metric:
    """A function for each kind of targets that the metric is for, and how to read its values."""

    functions: "Mapping[Targets, Function]"
    higher_is_better: bool = True
    share: bool = False  # shown in percent
    binary: bool = False  # for two classes, or one label


@dataclass(frozen=True, eq=False)
class Decisions:
    """Classes, one against the rest, or labels: what was predicted and what is right, one column for each."""

    predicted: NDArray[np.bool_]  # (n, k)
    actual: NDArray[np.bool_]  # (n, k)


def of_classes(outputs: Array, y: Array) -> Decisions:
    """Of logits (n, classes) and classes (n,)."""
    columns = np.arange(outputs.shape[1])
    return Decisions(outputs.argmax(axis=1)[:, None] == columns, y[:, None] == columns)


def of_labels(outputs: Array, y: Array) -> Decisions:
    """Of logits (n, labels) and labels (n,) or (n, labels), 0 or 1; a label is predicted above a logit of 0."""
    return Decisions(outputs > 0, y.reshape(outputs.shape) > 0)


def accuracy(outputs: Array, y: Array) -> float:
    """Share of samples whose class has the highest logit."""
    return float((outputs.argmax(axis=1) == y).mean())


def label_accuracy(outputs: Array, y: Array) -> float:
    """Share of labels that are right, over all samples and labels."""
    labels = of_labels(outputs, y)
    return float((labels.predicted == labels.actual).mean())


def balanced_accuracy(classes: Decisions) -> float:
    """Mean recall over the classes that the samples have."""
    return _mean(_recall(classes.predicted, classes.actual))


def balanced_label_accuracy(labels: Decisions) -> float:
    """Mean over labels of the mean of sensitivity and specificity, or of the one that is defined."""
    recalls = np.stack([_recall(labels.predicted, labels.actual), _recall(~labels.predicted, ~labels.actual)])
    return _mean(np.array([_mean(of_label) for of_label in recalls.T]))


def macro_f1(decisions: Decisions) -> float:
    """Mean F1 over the classes, or labels, that occur or are predicted."""
    hits = (decisions.predicted & decisions.actual).sum(axis=0)
    return _mean(_ratio(2 * hits, decisions.predicted.sum(axis=0) + decisions.actual.sum(axis=0)))


def auroc(outputs: Array, y: Array) -> float:
    """Area under the ROC curve: mean over the classes, one against the rest, that have it."""
    return _area(_log_odds(outputs), of_classes(outputs, y).actual)


def label_auroc(outputs: Array, y: Array) -> float:
    """Area under the ROC curve: mean over the labels that have it."""
    return _area(outputs, of_labels(outputs, y).actual)


def sensitivity(decisions: Decisions) -> float:
    """Share of the samples of class 1, or with the label, that are predicted so."""
    return float(_recall(decisions.predicted, decisions.actual)[-1])


def specificity(decisions: Decisions) -> float:
    """Share of the samples of class 0, or without the label, that are predicted so."""
    return float(_recall(~decisions.predicted, ~decisions.actual)[-1])


def calibration_error(outputs: Array, y: Array) -> float:
    """Expected calibration error of the predicted class.

    Predictions are put into 15 bins of equal width (a, b] by their probability. The error is the mean over bins,
    weighted by their samples, of |share of right predictions - mean probability|.
    """
    log_p = log_softmax(outputs.astype(np.float64), axis=1)
    return _calibration_error(np.exp(log_p.max(axis=1)), outputs.argmax(axis=1) == y)


def label_calibration_error(outputs: Array, y: Array) -> float:
    """The same over all labels: each is predicted to be there or not, whichever is more probable."""
    labels = of_labels(outputs, y)
    probability = 1 / (1 + np.exp(-np.abs(outputs.astype(np.float64))))
    return _calibration_error(probability.ravel(), (labels.predicted == labels.actual).ravel())


def log_loss(outputs: Array, y: Array) -> float:
    """Mean of -log p of the right classes."""
    return float(-np.take_along_axis(log_softmax(outputs.astype(np.float64), axis=1), y[:, None], axis=1).mean())


def label_log_loss(outputs: Array, y: Array) -> float:
    """Mean of -log p of what is right, over all samples and labels."""
    logits = outputs.astype(np.float64)
    return float(np.logaddexp(0, np.where(of_labels(outputs, y).actual, -logits, logits)).mean())


def mae(outputs: Array, y: Array) -> float:
    """Mean absolute error, over all samples and values."""
    return float(np.abs(_errors(outputs, y)).mean())


def rmse(outputs: Array, y: Array) -> float:
    """Root of the mean squared error; the mean over values."""
    return float(np.sqrt((_errors(outputs, y) ** 2).mean(axis=0)).mean())


def r2(outputs: Array, y: Array) -> float:
    """1 - squared error / squared deviation from the mean; the mean over the values that vary."""
    right = y.reshape(outputs.shape).astype(np.float64)
    deviation = ((right - right.mean(axis=0)) ** 2).sum(axis=0)
    varies = (right != right[0]).any(axis=0)  # rounding of the mean may leave a deviation where nothing varies
    return _mean(1 - _ratio((_errors(outputs, y) ** 2).sum(axis=0), np.where(varies, deviation, 0)))


def _both(decide: Callable[[Decisions], float]) -> "dict[Targets, Function]":
    return {
        "classes": lambda outputs, y: decide(of_classes(outputs, y)),
        "labels": lambda outputs, y: decide(of_labels(outputs, y)),
    }


METRICS: Final[Mapping[str, Metric]] = {
    "accuracy": Metric({"classes": accuracy, "labels": label_accuracy}, share=True),
    "balanced-accuracy": Metric(
        {**_both(balanced_accuracy), "labels": _both(balanced_label_accuracy)["labels"]}, share=True
    ),
    "macro-f1": Metric(_both(macro_f1)),
    "auroc": Metric({"classes": auroc, "labels": label_auroc}),
    "sensitivity": Metric(_both(sensitivity), share=True, binary=True),
    "specificity": Metric(_both(specificity), share=True, binary=True),
    "calibration-error": Metric(
        {"classes": calibration_error, "labels": label_calibration_error}, higher_is_better=False, share=True
    ),
    "log-loss": Metric({"classes": log_loss, "labels": label_log_loss}, higher_is_better=False),
    "mae": Metric({"values": mae}, higher_is_better=False),
    "rmse": Metric({"values": rmse}, higher_is_better=False),
    "r2": Metric({"values": r2}),
}


def _log_odds(outputs: Array) -> NDArray[np.float64]:
    """Of every class, log p / (1 - p). Where p rounds to 1, they still differ."""
    logits = outputs.astype(np.float64)
    rows, top = np.arange(len(logits)), logits.argmax(axis=1)
    log_p = log_softmax(logits, axis=1)
    others = logits.copy()
    others[rows, top] = -np.inf
    log_p[rows, top] = -np.log(2)  # a stand-in: replaced below
    odds: NDArray[np.float64] = log_p - np.log1p(-np.exp(log_p))
    odds[rows, top] = logits[rows, top] - logsumexp(others, axis=1)
    return odds


def _area(scores: Array, actual: NDArray[np.bool_]) -> float:
    """The statistic of Mann and Whitney by column, the mean over columns; ties count one half."""
    positive = actual.sum(axis=0)
    ranks = (rankdata(scores, axis=0) * actual).sum(axis=0)
    return _mean(_ratio(ranks - positive * (positive + 1) / 2, positive * (len(actual) - positive)))


def _recall(predicted: NDArray[np.bool_], actual: NDArray[np.bool_]) -> NDArray[np.float64]:
    """By column."""
    return _ratio((predicted & actual).sum(axis=0), actual.sum(axis=0))


def _calibration_error(probability: NDArray[np.float64], right: NDArray[np.bool_]) -> float:
    bins = np.searchsorted(np.linspace(0, 1, BINS + 1)[1:-1], probability)
    gaps = np.bincount(bins, right, BINS) - np.bincount(bins, probability, BINS)
    return float(np.abs(gaps).sum() / len(right))


def _errors(outputs: Array, y: Array) -> NDArray[np.float64]:
    return outputs.astype(np.float64) - y.reshape(outputs.shape)


def _ratio(a: Array, b: Array) -> NDArray[np.float64]:
    """NaN where b is 0."""
    ratio: NDArray[np.float64] = np.divide(a, b, out=np.full(b.shape, np.nan), where=b > 0)
    return ratio


def _mean(values: NDArray[np.float64]) -> float:
    """Of those that are defined; NaN if none is."""
    defined = values[~np.isnan(values)]
    return float(defined.mean()) if len(defined) else np.nan
