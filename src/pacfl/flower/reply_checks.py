"""Checks of replies: the server accepts nothing that it has not checked."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from pacfl.errors import InvalidReplyError
from pacfl.federation.algorithm import Algorithm
from pacfl.federation.message import ClientId, Message
from pacfl.learning.client_context import ClientContext, LocalTraining, Samples
from pacfl.learning.model import Model, Vector
from pacfl.subspace.split_half import SPLITS

ORTHONORMAL_WITHIN: Final = 1e-3  # of signatures in float32
LARGEST_NORM: Final = 1e3  # of an array in a reply, relative to the initial model
LARGEST_SITE: Final = 10**8  # training samples that a client may claim
LARGEST_PROFILE: Final = 2**26  # bytes
PER_CLASS_COLUMNS: Final = 10_000


@dataclass(frozen=True)
class ArraySpec:
    """What a valid array looks like."""

    shape: tuple[int, ...]  # -1: any length
    kind: str  # of its dtype, as numpy says it: f, i
    most: int | None = None  # along the last axis


ArraySpecs = Mapping[str, ArraySpec]


def upload_specs(algorithm: Algorithm, model: Model, down: Message) -> ArraySpecs:
    """What a valid upload looks like: what the algorithm itself returns for dummy samples, without training."""
    up, _ = algorithm.train(_dummy_context(model), down, algorithm.init_client(model))
    return {name: ArraySpec(array.shape, array.dtype.kind) for name, array in up.items()}


def profile_specs(algorithm: Algorithm, model: Model) -> ArraySpecs:
    """The same for a profile; of its shapes only the number of axes is known, and some limits."""
    profile = algorithm.profile(_dummy_context(model))
    most = {"basis": _most_columns(algorithm), "split_half_angles": SPLITS}
    return {name: ArraySpec((-1,) * array.ndim, array.dtype.kind, most.get(name)) for name, array in profile.items()}


def check_upload(up: Message, specs: ArraySpecs, model: Model, n_models: int) -> None:
    """Refuse an upload that does not fit, is not finite, or is implausibly large."""
    _check_arrays(up, specs)
    limit = LARGEST_NORM * (1.0 + float(np.linalg.norm(model.initial)))
    for name, array in up.items():
        norm = float(np.linalg.norm(array.astype(np.float64)))
        if norm > limit:
            raise InvalidReplyError(f"{name!r} has norm {norm:.3g}, expected at most {limit:.3g}")
    if "choice" in up and not 0 <= int(up["choice"][0]) < n_models:
        raise InvalidReplyError(f"chose model {int(up['choice'][0])} of {n_models}")
    if "steps" in up and not float(up["steps"][0]) > 0:
        raise InvalidReplyError(f"took {float(up['steps'][0])} steps")


def check_profile(profile: Message, specs: ArraySpecs) -> None:
    """Refuse a profile that does not fit, is not finite, or whose basis is not orthonormal."""
    _check_arrays(profile, specs)
    if "basis" in profile:
        _check_basis(profile["basis"])
    if {"basis", "split_half_angles"} <= profile.keys():
        _check_split_half_angles(profile["split_half_angles"].astype(np.float64), profile["basis"].shape[1])


def check_size(size: object) -> int:
    """A number of training samples, which weighs a client's update."""
    if not isinstance(size, int) or isinstance(size, bool) or not 1 <= size <= LARGEST_SITE:
        raise InvalidReplyError(f"claims {size!r} training samples, expected 1 to {LARGEST_SITE:,}")
    return size


def incompatible(profiles: Mapping[ClientId, Message], features: int | None) -> dict[ClientId, str]:
    """Clients whose signatures have another number of features than most, and why they are refused."""
    rows = {c: len(profile["basis"]) for c, profile in profiles.items() if "basis" in profile}
    if not rows:
        return {}
    expected = features or Counter(rows.values()).most_common(1)[0][0]
    return {c: f"'basis' has {n} features, expected {expected}" for c, n in rows.items() if n != expected}


def _check_arrays(message: Message, specs: ArraySpecs) -> None:
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


def _fits(shape: tuple[int, ...], expected: tuple[int, ...]) -> bool:
    return len(shape) == len(expected) and all(e in (-1, n) for n, e in zip(shape, expected, strict=True))


def _check_basis(basis: NDArray[Any]) -> None:
    features, columns = basis.shape
    if not 1 <= columns <= min(features, PER_CLASS_COLUMNS):
        raise InvalidReplyError(f"'basis' has {columns} columns of {features} features")
    exact = basis.astype(np.float64)
    error = float(np.abs(exact.T @ exact - np.eye(columns)).max())
    if error > ORTHONORMAL_WITHIN:
        raise InvalidReplyError(f"'basis' is not orthonormal (off by {error:.2g})")


def _check_split_half_angles(degrees: NDArray[np.float64], columns: int) -> None:
    """Refuse what no two subspaces have. Within that a claim is accepted: docs/hostile.md says what it can do."""
    if not ((degrees >= 0) & (degrees <= 90 * columns)).all():
        raise InvalidReplyError(f"'split_half_angles' must be degrees from 0 to {90 * columns}")


def _most_columns(algorithm: Algorithm) -> int:
    """A basis of more columns than the rank would be near everybody's."""
    per_class = getattr(algorithm, "per_class", False)
    return PER_CLASS_COLUMNS if per_class else int(getattr(algorithm, "rank", PER_CLASS_COLUMNS))


def _dummy_context(model: Model) -> ClientContext:
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
