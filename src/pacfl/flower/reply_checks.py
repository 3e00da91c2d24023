"""What a server believes of a reply: nothing that it has not checked."""

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
LARGEST_NORM: Final = 1e3  # of an array in a reply, in norms of the model that training began with
LARGEST_SITE: Final = 10**8  # training samples that a client may claim
LARGEST_PROFILE: Final = 2**26  # bytes
PER_CLASS_COLUMNS: Final = 10_000


@dataclass(frozen=True)
class Form:
    """What an honest array looks like."""

    shape: tuple[int, ...]  # -1: of any length
    kind: str  # of numbers, as numpy says it: f, i
    most: int | None = None  # along the last axis


Forms = Mapping[str, Form]


def forms_of_training(algorithm: Algorithm, model: Model, down: Message) -> Forms:
    """The form of an honest upload: what the algorithm itself makes of two made-up samples, learning nothing."""
    up, _ = algorithm.train(_imagined(model), down, algorithm.init_client(model))
    return {name: Form(array.shape, array.dtype.kind) for name, array in up.items()}


def forms_of_profile(algorithm: Algorithm, model: Model) -> Forms:
    """The same for what a client tells of its data; of shapes the axes are known before it does, and some limits."""
    told = algorithm.profile(_imagined(model))
    most = {"basis": _most_columns(algorithm), "split_half_angles": SPLITS}
    return {name: Form((-1,) * array.ndim, array.dtype.kind, most.get(name)) for name, array in told.items()}


def check_upload(up: Message, forms: Forms, model: Model, n_models: int) -> None:
    """Refuse an upload of another form, with values that are no numbers, or beyond all reason."""
    _check_forms(up, forms)
    limit = LARGEST_NORM * (1.0 + float(np.linalg.norm(model.initial)))
    for name, array in up.items():
        norm = float(np.linalg.norm(array.astype(np.float64)))
        if norm > limit:
            raise InvalidReplyError(f"{name!r} has norm {norm:.3g}, at most {limit:.3g} is believed")
    if "choice" in up and not 0 <= int(up["choice"][0]) < n_models:
        raise InvalidReplyError(f"chose model {int(up['choice'][0])} of {n_models}")
    if "steps" in up and not float(up["steps"][0]) > 0:
        raise InvalidReplyError(f"took {float(up['steps'][0])} steps")


def check_profile(told: Message, forms: Forms) -> None:
    """Refuse a profile of another form, with values that are no numbers, or a basis that is not orthonormal."""
    _check_forms(told, forms)
    if "basis" in told:
        _check_basis(told["basis"])
    if {"basis", "split_half_angles"} <= told.keys():
        _check_split_half_angles(told["split_half_angles"].astype(np.float64), told["basis"].shape[1])


def check_size(size: object) -> int:
    """A number of training samples, which weighs a client's vote."""
    if not isinstance(size, int) or isinstance(size, bool) or not 1 <= size <= LARGEST_SITE:
        raise InvalidReplyError(f"claims {size!r} training samples, 1 to {LARGEST_SITE:,} are believed")
    return size


def incompatible(told: Mapping[ClientId, Message], features: int | None) -> dict[ClientId, str]:
    """Clients whose signatures cannot be compared with the others', by the features that most have, and why."""
    rows = {c: len(message["basis"]) for c, message in told.items() if "basis" in message}
    if not rows:
        return {}
    wanted = features or Counter(rows.values()).most_common(1)[0][0]
    return {c: f"'basis' has {n} features, {wanted} are wanted" for c, n in rows.items() if n != wanted}


def _check_forms(message: Message, forms: Forms) -> None:
    if message.keys() != forms.keys():
        raise InvalidReplyError(f"has arrays {sorted(message)}, wanted {sorted(forms)}")
    for name, form in forms.items():
        array = message[name]
        if array.dtype.kind != form.kind or not _fits(array.shape, form.shape):
            raise InvalidReplyError(
                f"{name!r} is {array.dtype} of shape {array.shape}, wanted {form.shape} of kind {form.kind!r}"
            )
        if form.most is not None and array.shape[-1] > form.most:
            raise InvalidReplyError(f"{name!r} has {array.shape[-1]:,} columns, at most {form.most:,} are wanted")
        if not np.isfinite(array).all():
            raise InvalidReplyError(f"{name!r} has values that are no numbers")


def _fits(shape: tuple[int, ...], wanted: tuple[int, ...]) -> bool:
    return len(shape) == len(wanted) and all(w in (-1, n) for n, w in zip(shape, wanted, strict=True))


def _check_basis(basis: NDArray[Any]) -> None:
    features, columns = basis.shape
    if not 1 <= columns <= min(features, PER_CLASS_COLUMNS):
        raise InvalidReplyError(f"'basis' has {columns} columns of {features} features")
    exact = basis.astype(np.float64)
    error = float(np.abs(exact.T @ exact - np.eye(columns)).max())
    if error > ORTHONORMAL_WITHIN:
        raise InvalidReplyError(f"'basis' is not orthonormal (off by {error:.2g})")


def _check_split_half_angles(degrees: NDArray[np.float64], columns: int) -> None:
    """Refuse what no two subspaces show. Within that a claim is believed: docs/hostile.md says what it can do."""
    if not ((degrees >= 0) & (degrees <= 90 * columns)).all():
        raise InvalidReplyError(f"'split_half_angles' are degrees from 0 to {90 * columns}")


def _most_columns(algorithm: Algorithm) -> int:
    """More columns than were asked for would lie near everybody's."""
    per_class = getattr(algorithm, "per_class", False)
    return PER_CLASS_COLUMNS if per_class else int(getattr(algorithm, "rank", PER_CLASS_COLUMNS))


def _imagined(model: Model) -> ClientContext:
    """A client with a few made-up samples that learns nothing."""
    raw = np.eye(8, dtype=np.float32)
    samples = Samples(raw, np.zeros(8, dtype=np.int64))
    return ClientContext(model, samples, LocalTraining(epochs=1), _Still(), (0, 0, 0), raw)


class _Still:
    """An engine that stays where it is."""

    batch_dependent = False

    def sgd(self, w: Vector, *_: Any) -> Vector:
        return w.copy()

    def gradient(self, w: Vector, samples: Samples) -> Vector:  # noqa: ARG002 - one form for all engines
        return np.zeros_like(w)

    def losses(self, w: Vector, samples: Samples) -> tuple[NDArray[np.bool_], NDArray[np.float32]]:  # noqa: ARG002
        n = len(samples.y)
        return np.zeros(n, dtype=bool), np.zeros(n, dtype=np.float32)
