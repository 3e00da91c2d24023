"""Messages as Flower's records, and back. The size of what came over the network is checked before it is read."""

from collections.abc import Mapping

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict

from pacfl.errors import InvalidReplyError
from pacfl.federation.message import Message
from pacfl.federation.rounds import Score

LARGEST_HEADER = 4096  # bytes of numpy's header of an array

About = Mapping[str, str | int | bool]


def pack(message: Message, about: About, scores: Mapping[str, Score] | None = None) -> RecordDict:
    """Arrays, a header (`about`), and scores."""
    arrays = {name: Array(np.ascontiguousarray(array)) for name, array in message.items()}
    flat = {f"{p}.{what}": getattr(s, what) for p, s in (scores or {}).items() for what in ("accuracy", "loss")}
    return RecordDict({"arrays": ArrayRecord(arrays), "about": ConfigRecord(dict(about)), "scores": MetricRecord(flat)})


def unpack(content: RecordDict, largest: int) -> Message:
    """The arrays, if they have at most `largest` bytes."""
    arrays = content.array_records.get("arrays")
    if arrays is None:
        raise InvalidReplyError("has no arrays")
    size = sum(len(array.data) for array in arrays.values())
    if size > largest + LARGEST_HEADER * (1 + len(arrays)):
        raise InvalidReplyError(f"has {size:,} bytes of arrays, expected at most {largest:,}")
    try:
        return {str(name): array.numpy() for name, array in arrays.items()}
    except Exception as error:  # numpy's reader raises many types for forged bytes
        raise InvalidReplyError(f"has arrays that cannot be read: {error}") from None


def about(content: RecordDict) -> Mapping[str, object]:
    """The header."""
    return dict(content.config_records.get("about") or {})


def scores(content: RecordDict) -> dict[str, Score]:
    """Scores by protocol. False ones mislead only readers of a report."""
    flat: Mapping[str, object] = dict(content.metric_records.get("scores") or {})
    protocols = dict.fromkeys(key.rpartition(".")[0] for key in flat)
    return {p: Score(*(_finite(flat.get(f"{p}.{what}")) for what in ("accuracy", "loss"))) for p in protocols}


def _finite(value: object) -> float:
    if not isinstance(value, int | float) or not np.isfinite(value):
        raise InvalidReplyError(f"has a score of {value!r}")
    return float(value)
