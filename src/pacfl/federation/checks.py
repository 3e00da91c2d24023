"""Checks of what clients send: the server accepts nothing that it has not checked. Algorithms add their own."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from pacfl.errors import InvalidReplyError
from pacfl.federation.message import Message
from pacfl.learning.client_context import ClientContext, LocalTraining, Samples
from pacfl.learning.model import Model, Vector

LARGEST_NORM: Final = 1e3  # of an array in a reply, relative to the initial model
CLASS_SHARES: Final = "class_shares"  # in a download: (C,), or (k, C) beside k models
CLASS_COUNTS: Final = "class_counts"  # in an upload: how many training samples the client has of each class


@dataclass(frozen=True)
class ArraySpec:
    """What a valid array looks like."""

    shape: tuple[int, ...]  # -1: any length
    kind: str  # of its dtype, as numpy says it: f, i
    most: int | None = None  # along the last axis


ArraySpecs = Mapping[str, ArraySpec]


def check_arrays(message: Message, specs: ArraySpecs) -> None:
    """Refuse a message with other arrays than declared, or with values that are not finite."""
    if message.keys() != specs.keys():
        raise InvalidReplyError(f"has arrays {sorted(message)}, expected {sorted(specs)}")
    for name, spec in specs.items():
        array = message[name]
        if array.dtype.kind != spec.kind or not _fits(array.shape, spec.shape):
            raise InvalidReplyError(
                f"{name!r} is {array.dtype} of shape {array.shape}, expected {spec.shape} of kind {spec.kind!r}"
            )
        if spec.most is not None and array.shape[-1] > spec.most:
            raise InvalidReplyError(f"{name!r} has {array.shape[-1]:,} columns, expected at most {spec.most:,}")
        if not np.isfinite(array).all():
            raise InvalidReplyError(f"{name!r} has values that are NaN or infinite")


def check_norms(message: Message, model: Model) -> None:
    """Refuse arrays that are implausibly large."""
    limit = LARGEST_NORM * (1.0 + float(np.linalg.norm(model.initial)))
    for name, array in message.items():
        norm = float(np.linalg.norm(array.astype(np.float64)))
        if norm > limit:
            raise InvalidReplyError(f"{name!r} has norm {norm:.3g}, expected at most {limit:.3g}")


def class_count_specs(model: Model) -> ArraySpecs:
    """The array that an upload also has where the label prior is corrected."""
    place = model.output_bias
    return {} if place is None else {CLASS_COUNTS: ArraySpec((place.stop - place.start,), "i")}


def check_class_counts(up: Message, specs: ArraySpecs, size: int | None = None) -> None:
    """Refuse class counts that are none, or not those of as many samples as the client claims to have."""
    check_arrays({name: array for name, array in up.items() if name in specs}, specs)
    counts = up[CLASS_COUNTS]
    if counts.min() < 0:
        raise InvalidReplyError(f"{CLASS_COUNTS!r} has {counts.min()} samples of a class")
    total = sum(counts.tolist())  # of integers without bounds: forged ones may overflow
    if total != size if size is not None else total < 1:
        expected = "1 or more" if size is None else f"the {size:,} that it claims to have"
        raise InvalidReplyError(f"{CLASS_COUNTS!r} are of {total:,} samples, expected {expected}")


def dummy_context(model: Model) -> ClientContext:
    """A client with a few dummy samples that does not train."""
    raw = np.eye(8, dtype=np.float32)
    samples = Samples(raw, np.zeros(8, dtype=np.int64))
    return ClientContext(model, samples, LocalTraining(epochs=1), _NoTraining(), (0, 0, 0), raw)


class _NoTraining:
    """An engine that returns the weights that it was given."""

    batch_dependent = False

    def sgd(self, w: Vector, *_: Any) -> Vector:
        return w.copy()

    def gradient(self, w: Vector, samples: Samples) -> Vector:  # noqa: ARG002 - one signature for all engines
        return np.zeros_like(w)

    def evaluate(self, w: Vector, samples: Samples) -> tuple[NDArray[np.float32], NDArray[np.float32]]:  # noqa: ARG002
        n = len(samples.y)
        return np.zeros((n, 1), dtype=np.float32), np.zeros(n, dtype=np.float32)


def _fits(shape: tuple[int, ...], expected: tuple[int, ...]) -> bool:
    return len(shape) == len(expected) and all(e in (-1, n) for n, e in zip(shape, expected, strict=True))
