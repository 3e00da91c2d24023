"""Messages as Flower's records, and back. What came over the network is measured before it is read."""

from collections.abc import Mapping

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict

from pacfl.errors import InvalidReplyError
from pacfl.federation.message import Message
from pacfl.federation.rounds import Score

FRAMING = 4096  # bytes that numpy's header of an array may take

About = Mapping[str, str | int | bool]


def pack(message: Message, about: About, scores: Mapping[str, Score] | None = None) -> RecordDict:
    """Arrays, what they are about, and scores that ride along."""
    arrays = {name: Array(np.ascontiguousarray(array)) for name, array in message.items()}
    told = {f"{p}.{what}": getattr(s, what) for p, s in (scores or {}).items() for what in ("accuracy", "loss")}
    return RecordDict({"arrays": ArrayRecord(arrays), "about": ConfigRecord(dict(about)), "scores": MetricRecord(told)})


def unpack(content: RecordDict, largest: int) -> Message:
    """The arrays, if they take no more than `largest` bytes."""
    arrays = content.array_records.get("arrays")
    if arrays is None:
        raise InvalidReplyError("has no arrays")
    size = sum(len(array.data) for array in arrays.values())
    if size > largest + FRAMING * (1 + len(arrays)):
        raise InvalidReplyError(f"has {size:,} bytes of arrays, at most {largest:,} are wanted")
    try:
        return {str(name): array.numpy() for name, array in arrays.items()}
    except Exception as error:  # numpy's reader has errors of many kinds for bytes that nobody wrote in good faith
        raise InvalidReplyError(f"has arrays that cannot be read: {error}") from None


def about(content: RecordDict) -> Mapping[str, object]:
    """What the arrays are about."""
    return dict(content.config_records.get("about") or {})


def scores(content: RecordDict) -> dict[str, Score]:
    """Scores by protocol. Nobody but the reader of a report is misled by false ones."""
    told: Mapping[str, object] = dict(content.metric_records.get("scores") or {})
    protocols = dict.fromkeys(key.rpartition(".")[0] for key in told)
    return {p: Score(*(_number(told.get(f"{p}.{what}")) for what in ("accuracy", "loss"))) for p in protocols}


def _number(value: object) -> float:
    if not isinstance(value, int | float) or not np.isfinite(value):
        raise InvalidReplyError(f"has a score of {value!r}")
    return float(value)
